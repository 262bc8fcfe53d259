"""Ways to train curves, compared on held-out rows: decay, fewer bends, later, placed by data.

    python benchmarks/curve_training.py run atlas-dnn-apl-default --rates 0.004,0.008,0.016
    python benchmarks/curve_training.py run cifar10-cnn-apl-default --rates 0.04 --data DIR
    python benchmarks/curve_training.py table

Every way is tried at the same learning rates with the same seeds; the table shows the best mean of
each after the last epoch. Test rows are not looked at. A run is a line of the results, and one that
is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

import torch
from torch import Tensor

from torchapl.init import align_
from torchapl.optim import curve_parameters, slope_penalty
from torchapl.paper.config import Experiment, override_all
from torchapl.paper.experiments import EXPERIMENTS, get, scaled
from torchapl.paper.sweep.statistics import paired_difference
from torchapl.paper.train.trainer import DivergedError, Trainer
from torchapl.runs.folder import environment

RESULTS = Path(__file__).parents[1] / "results" / "curve_training.jsonl"
# The part of the training after which late curves begin to learn.
FIRST_PART = 0.1
# Batches that say where inputs fall.
LOOKED_AT = 10


@dataclass(frozen=True)
class Way:
    """How curves are trained, where it differs from the usual.

    Attributes:
        title: In the table.
        settings: Of the experiment.
        pull: Factor of half the squared distance of slopes and offsets to their start.
        bends: Factor of the sum of the slopes' sizes.
        is_late: Whether curves stay as they are in the first part of the training.
        placed: Whether free hinges move to where inputs fall when curves begin to learn.
    """

    title: str
    settings: tuple[str, ...] = ()
    pull: float = 0.0
    bends: float = 0.0
    is_late: bool = False
    placed: bool = False


LEAKY = ("activation=apl:8:channel:leaky:segments",)
WAYS = {
    "usual": Way("as usual"),
    "decay": Way("decay 0.001", ("optim.curve_decay=0.001",)),
    "pull": Way("pulled to the start, 0.001", pull=1e-3),
    "bends": Way("L1 of the slopes, 0.0001", bends=1e-4),
    "late": Way("fixed for the first tenth", is_late=True),
    "slow": Way("at 0.3 of the rate", ("optim.curve_lr=0.3",)),
    "leaky": Way("started as Leaky ReLU", LEAKY),
    "placed": Way("the same, free hinges placed by data", LEAKY, placed=True),
    "placed-late": Way("fixed for the first tenth, then placed", LEAKY, is_late=True, placed=True),
}


class Guided(Trainer):
    """A trainer whose loss has one more term."""

    penalty: Callable[[], Tensor | float] = staticmethod(lambda: 0.0)

    def forward_and_loss(
        self, inputs: Tensor, targets: Tensor, factor: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs, summed, loss = super().forward_and_loss(inputs, targets, factor)
        return outputs, summed, loss + self.penalty()


def penalty_of(way: Way, net: torch.nn.Module) -> Callable[[], Tensor | float]:
    """Return what a way adds to the loss, from here on."""
    curves = list(curve_parameters(net))
    start = [curve.detach().clone() for curve in curves]

    def penalty() -> Tensor | float:
        total: Tensor | float = way.bends * slope_penalty(net) if way.bends else 0.0
        if way.pull:
            distances = torch._foreach_norm(torch._foreach_sub(curves, start))
            total = total + way.pull / 2 * torch.stack(distances).square().sum()
        return total

    return penalty


def set_curve_rate(trainer: Trainer, factor: float) -> None:
    curves = set(map(id, curve_parameters(trainer.net)))
    for group in trainer.optimizer.param_groups:
        if id(group["params"][0]) in curves:
            group["lr_factor"] = factor


def batches(trainer: Trainer) -> Iterator[tuple[Tensor, Tensor]]:
    for epoch in range(trainer.experiment.epochs):
        yield from trainer.bundle.train.epoch(epoch)


def train(experiment: Experiment, way: Way, seed: int, data: Path | None) -> float:
    """Return the AUC or the error of the held-out rows after the last epoch; NaN if it diverged."""
    trainer = Guided(experiment, seed, device=torch.device("cpu"), data_root=data)
    trainer.penalty = penalty_of(way, trainer.net)
    usual = experiment.optim.curve_lr
    begins = round(FIRST_PART * trainer.total_steps) if way.is_late else 0
    try:
        for step, (inputs, targets) in enumerate(batches(trainer)):
            if way.placed and step == begins:
                align_(trainer.net, islice(trainer.bundle.train.epoch(0), LOOKED_AT))
            if step in (0, begins):
                set_curve_rate(trainer, usual if step == begins else 0.0)
            trainer.step(inputs, targets)
        assert trainer.bundle.validation is not None
        numbers = trainer.evaluate(trainer.bundle.validation).numbers
    except DivergedError:
        return math.nan
    return numbers.get("auc", numbers["error"])


def run(options: argparse.Namespace) -> None:
    shared = ["data.validation=0.1", *options.set]
    done = [
        (run["experiment"], run["way"], run["rate"], run["seed"], run["settings"])
        for run in stored(options.results)
    ]
    # All ways with one seed, then the next: whenever it is stopped, ways can be compared.
    for seed, rate, name in product(range(options.seeds), options.rates, options.ways):
        if (options.experiment, name, rate, seed, shared) in done:
            continue
        settings = [*shared, f"optim.lr={rate:g}", *WAYS[name].settings]
        experiment = override_all(scaled(get(options.experiment), options.scale), settings)
        made_by = environment(torch.device("cpu"))
        value = train(experiment, WAYS[name], seed, options.data)
        line = {"experiment": options.experiment, "scale": options.scale, "way": name}
        line |= {"rate": rate, "seed": seed, "settings": shared}
        line |= {"value": None if math.isnan(value) else value, **made_by}
        options.results.parent.mkdir(parents=True, exist_ok=True)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{options.experiment} {name} rate {rate:g} seed {seed}: {value:.4f}", flush=True)


def stored(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(runs: list[dict[str, object]], experiment: str) -> str:
    """Return the best rate of every way as Markdown."""
    values: dict[str, dict[float, dict[int, float]]] = {}
    for run in runs:
        if run["experiment"] == experiment:
            rates = values.setdefault(str(run["way"]), {})
            rates.setdefault(run["rate"], {})[run["seed"]] = run["value"]
    is_auc = get(experiment).net == "higgs-dnn"
    sign, digits = (-1, 4) if is_auc else (1, 2)

    def best(way: str) -> tuple[float, dict[int, float]]:
        whole = {r: seeds for r, seeds in values[way].items() if None not in seeds.values()}
        return min(whole.items(), key=lambda item: sign * statistics.fmean(item[1].values()))

    head = "validation AUC" if is_auc else "validation error, %"
    lines = [f"| curves of {experiment} | {head} (std), n | to the usual | rate |"]
    lines.append("|---|---|---|---|")
    for name in filter(values.get, WAYS):
        rate, seeds = best(name)
        numbers = list(seeds.values())
        spread = f" ({statistics.stdev(numbers):.{digits}f})" if len(numbers) > 1 else ""
        gap = paired_difference(seeds, best("usual")[1], None) if name != "usual" else None
        difference = f"{gap.mean:+.{digits}f} +- {gap.half_width:.{digits}f}" if gap else ""
        mean = f"{statistics.fmean(numbers):.{digits}f}{spread}, {len(numbers)}"
        lines.append(f"| {WAYS[name].title} | {mean} | {difference} | {rate:g} |")
    return "\n".join(lines)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="make the runs that are missing")
    runner.add_argument("experiment", choices=list(EXPERIMENTS), metavar="EXPERIMENT")
    runner.add_argument("--scale", default="lab")
    runner.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    numbers = lambda text: [float(number) for number in text.split(",")]  # noqa: E731
    runner.add_argument("--rates", type=numbers, required=True)
    runner.add_argument("--seeds", type=int, default=3)
    runner.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    runner.add_argument("--data", type=Path)
    commands.add_parser("table", help="print what is there")
    options = parser.parse_args()
    if options.command == "run":
        torch.set_num_threads(1)
        run(options)
        return
    runs = stored(options.results)
    for experiment in dict.fromkeys(str(run["experiment"]) for run in runs):
        print(table(runs, experiment), end="\n\n")


if __name__ == "__main__":
    main()
