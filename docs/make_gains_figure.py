"""Draw what the default gains over fixed activations, from the stored results.

    python docs/make_gains_figure.py          # docs/images/gains.png, and the numbers

A point is the part of a rival's error (of its 1 - AUC, of its bits per byte) that is gone with the
library's default, paired by seed; a bar is the 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from torchapl.paper.experiments import TABLES
from torchapl.paper.experiments.rows import DEFAULT
from torchapl.paper.sweep.jobs import read_results
from torchapl.paper.sweep.plan import Sweep
from torchapl.paper.sweep.statistics import paired_difference

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "docs" / "images" / "gains.png"
RIVALS = {
    "relu": "ReLU",
    "prelu": "PReLU",
    "gelu": "GELU",
    "silu": "SiLU",
    "relu2": "ReLU squared",
}
# Of tables with one column, whose network is in the names of the rows.
TITLES = {"modern": "CIFAR-10, ResNet"}
# The interval of two seeds is wider than the picture.
_FEWEST = 3
COLOURS = {
    "relu": "#999999",
    "prelu": "#ee7733",
    "gelu": "#228833",
    "silu": "#4477aa",
    "relu2": "#aa3377",
}


@dataclass(frozen=True)
class Task:
    """What a network reached on some data, by row and seed; the default's row is ``DEFAULT``'s."""

    title: str
    best: float
    values: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Gain:
    """The part of a rival's error that is gone, in percent, and half its 95 % interval."""

    mean: float
    half_width: float
    seeds: int


def tabled(table: str) -> Iterator[Task]:
    """Yield the columns of a table of ``torchapl reproduce`` at lab scale."""
    results, sweep = read_results(ROOT / "results" / "lab.jsonl"), Sweep("lab")
    for column, title in TABLES[table].columns.items():
        cells = TABLES[table].rows[0].cells[column].peers
        metric = cells[DEFAULT.name].metrics[0]
        values = {
            row: {
                seed: run.metrics[metric.name]
                for seed, run in sweep.final_runs(cells[row], results)[1].items()
                if run.status == "finished"
            }
            for row in (*RIVALS, DEFAULT.name)
            if row in cells
        }
        yield Task(TITLES.get(table, title), metric.best or 0.0, values)


def read(path: Path, study: str, curves: str, title: str, metric: str) -> Iterator[Task]:
    """Yield what ``benchmarks/studies`` has stored of a study; ``curves`` is its row of curves."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for line in path.read_text().splitlines() if path.exists() else ():
        run = json.loads(line)
        row = run["experiment"].removeprefix(f"{study}-")
        if run["scale"] == "final" and run["status"] == "finished" and row != run["experiment"]:
            values[DEFAULT.name if row == curves else row][run["seed"]] = run[metric]
    yield Task(title, 0.0, values)


def gain(task: Task, rival: str) -> Gain | None:
    if rival not in task.values or DEFAULT.name not in task.values:
        return None
    difference = paired_difference(task.values[DEFAULT.name], task.values[rival], task.best)
    if difference is None or difference.relative_reduction is None or difference.n < _FEWEST:
        return None
    scale = abs(difference.relative_reduction / difference.mean) if difference.mean else 0.0
    return Gain(
        100 * difference.relative_reduction, 100 * scale * difference.half_width, difference.n
    )


def draw(gains: Mapping[str, Mapping[str, Gain]], output: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.62 * len(gains)), layout="constrained")
    for place, by_rival in enumerate(gains.values()):
        for number, (rival, value) in enumerate(by_rival.items()):
            y = -place - 0.16 * (number - (len(by_rival) - 1) / 2)
            axes.errorbar(
                value.mean,
                y,
                xerr=value.half_width,
                fmt="o",
                markersize=5,
                capsize=2,
                color=COLOURS[rival],
                label=RIVALS[rival],
            )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks([-place for place in range(len(gains))], list(gains))
    axes.set_xlabel("error that is gone with learned curves, in % of the rival's (right is better)")
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(once.values(), once.keys(), title="instead of", frameon=False, fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(output, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output = parser.parse_args().output
    tasks = [*tabled("modern"), *tabled("activations")]
    text = ROOT / "results" / "text.jsonl"
    tasks += read(text, "gpt", "apl", "Text, GPT", "test_bits_per_byte")
    gains: dict[str, dict[str, Gain]] = {}
    for task in tasks:
        found = {rival: value for rival in RIVALS if (value := gain(task, rival)) is not None}
        if found:
            gains[task.title] = found
    for title, by_rival in gains.items():
        for rival, value in by_rival.items():
            print(
                f"{title:32}{RIVALS[rival]:8}{value.mean:6.1f} +- {value.half_width:.1f} %"
                f"   n = {value.seeds}"
            )
    draw(gains, output)


if __name__ == "__main__":
    main()
