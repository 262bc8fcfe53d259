"""All matplotlib figures that some runs allow, written to a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchapl.paper.activations.apl import AdaptivePiecewiseLinear
from torchapl.paper.experiments import EXPERIMENTS, TABLES
from torchapl.paper.report import figures
from torchapl.paper.report.events import read_scores
from torchapl.paper.report.explorer import read_curves
from torchapl.paper.report.folders import Run, made_of
from torchapl.paper.report.tables import groups_of
from torchapl.runs.folder import CURVES, SCORES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from torchapl.runs.curves import RunCurves

_OF_A_RUN: dict[str, Callable[[RunCurves], Figure]] = {
    "sample-curves": lambda curves: figures.sample_curves(next(iter(curves.learned.values()))),
    "initial-and-learned": figures.initial_and_learned,
    "overlaid": figures.overlaid,
    "grouped": figures.grouped,
    "movement": figures.movement,
    "inputs": figures.inputs_behind_curves,
    "heat-maps": figures.heat_maps,
}
# Learning curves of more settings than this cannot be told apart.
_LINES = len(figures.COLOURS)


def write_figures(source: Path, folder: Path) -> list[Path]:
    """Write every figure that the runs below ``source`` allow, as PDF and PNG.

    Curves and scores are drawn for the first seed of every setting that has them.

    Returns:
        The pictures' paths.
    """
    return made_of(source, lambda runs: _write(runs, folder))[0]


def _write(runs: Sequence[Run], folder: Path) -> list[Path]:
    groups = {name: group for name, group in groups_of(runs).items() if not group[0].selects}
    written: list[Path] = []

    def keep(figure: Figure, *words: str) -> None:
        name = "-".join(re.sub(r"[^\w.=+-]+", "_", word) for word in words)
        path = folder / f"{name}.png"
        figures.save(figure, path)
        written.append(path)

    for name, group in groups.items():
        recorded = [run for run in group if run.has(CURVES)]
        if recorded:
            curves = read_curves(recorded[0])
            for kind, draw in _OF_A_RUN.items():
                if kind in _possible(curves):
                    keep(draw(curves), name, kind)
    _learning(groups, keep)
    _hinges(runs, keep)
    first = {
        name: next((run for run in group if run.has(SCORES)), None)
        for name, group in groups.items()
    }
    scores = {name: read_scores(run) for name, run in first.items() if run is not None}
    if scores:
        keep(figures.classifier(dict(list(scores.items())[:_LINES])), "classifier")
    return written


def _possible(curves: RunCurves) -> set[str]:
    kinds = set(_OF_A_RUN)
    if not curves.inputs:
        kinds.remove("inputs")
    if not any(len(layer.unit_shape) == 3 for layer in curves.learned.values()):
        kinds.remove("heat-maps")
    return kinds


def _learning(groups: dict[str, list[Run]], keep: Callable[..., None]) -> None:
    for metric in ("test_error", "test_auc", "train_loss"):
        lines = {name: [run.lines() for run in group] for name, group in groups.items()}
        having = {
            name: [seed for seed in seeds if any(metric in line for line in seed)]
            for name, seeds in lines.items()
        }
        having = {name: seeds for name, seeds in having.items() if seeds}
        # Data sets do not share an axis.
        for data in sorted({groups[name][0].data for name in having}):
            some = {name: seeds for name, seeds in having.items() if groups[name][0].data == data}
            names = list(some)[:_LINES]
            if names:
                chosen = {name: some[name] for name in names}
                keep(figures.learning_curves(chosen, metric), "learning", data, metric)  # type: ignore[arg-type]  # numbers of JSON


def _hinges(runs: Sequence[Run], keep: Callable[..., None]) -> None:
    """Draw the error against the number of hinges, where Table 3 has two of them and ReLU."""
    for scale in sorted({run.scale for run in runs}):
        errors: dict[int, Sequence[float]] = {}
        baseline: list[float] = []
        for cell in TABLES["table3"].cells:
            values = [
                run.result.metrics["test_error"]
                for run in runs
                if run.result is not None
                and run.status == "finished"
                and (run.experiment, run.scale, run.overrides) == (cell.experiment, scale, ())
            ]
            activation = EXPERIMENTS.get(cell.experiment).activation
            if not isinstance(activation, AdaptivePiecewiseLinear):
                baseline += values
            elif activation.is_learned and values:
                errors[activation.num_hinges] = values
        if len(errors) > 1 and baseline:
            keep(figures.error_against_hinges(errors, baseline), "error-against-hinges", scale)
