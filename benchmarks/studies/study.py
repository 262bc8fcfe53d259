"""Rows of a table: a rate for each, chosen on validation text, then seeds whose test text counts.

A run is a line of a JSON-lines file, and a run that is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

import torchapl
from torchapl.paper.sweep.statistics import paired_difference
from torchapl.runs import RunResult
from torchapl.runs.folder import environment, result_from_dict

# Rates are chosen on a seed that is none of those of the table.
TUNING_SEED = 0
TUNING, FINAL = "tuning", "final"
# Of fine-tuning: a head starts from nothing.
HEAD_FACTOR = 10.0
FINE_TUNING_DECAY = 0.01


@dataclass(frozen=True)
class Outcome:
    """What training came to: numbers on validation text, or on test text if those were asked."""

    metrics: Mapping[str, float]
    n_parameters: int


@dataclass(frozen=True)
class Run:
    """What to train."""

    row: str
    rate: float
    seed: int
    steps: int
    # Whether the test text is looked at in the end; if not, the validation text.
    is_final: bool


Train = Callable[[Run], Outcome]


def schedule(step: int, steps: int) -> float:
    """Return the share of the rate: a linear rise over a tenth, then a linear fall to 0.

    >>> [schedule(step, 20) for step in (0, 1, 11, 19)]
    [0.5, 1.0, 0.5, 0.05555555555555555]
    """
    rise = max(1, steps // 10)
    return min((step + 1) / rise, (steps - step) / (steps - rise))


class Pretrained(nn.Module):
    """What has been trained before, and a linear layer on what comes out of it."""

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, classes)


def fine_tune(
    model: Pretrained,
    batches: Iterable[Tensor],
    loss: Callable[[Tensor], Tensor],
    run: Run,
    curve_factor: float = 1.0,
) -> None:
    """Train a model on batches of row numbers.

    Args:
        model: A new one; changed.
        batches: One for each step.
        loss: The mean loss of the rows with such numbers.
        run: Its rate is the encoder's.
        curve_factor: Of the rate of curves.
    """
    # Whatever a swap has drawn: the same head and dropout for all rows of the table.
    torch.manual_seed(run.seed)
    model.head.reset_parameters()
    groups = torchapl.parameter_groups(
        model.encoder,
        lr=run.rate,
        weight_decay=FINE_TUNING_DECAY,
        curve_lr=run.rate * curve_factor,
    )
    head = {"params": list(model.head.parameters()), "lr": run.rate * HEAD_FACTOR}
    optimizer = torch.optim.AdamW([*groups, head], lr=run.rate, weight_decay=FINE_TUNING_DECAY)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, run.steps))
    model.train()
    for rows in batches:
        value = loss(rows)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()


@dataclass(frozen=True)
class Study:
    """Which runs there are to make.

    Args:
        name: Of the experiment; rows follow it in the file.
        rows: Titles by name.
        trials: More of them, for which only validation text is looked at, by one run.
        middle: The rate with which the search of every row starts.
        metrics: What is small for a good run, without ``valid_`` or ``test_``; the first chooses.
        settings: What all runs share; kept with each of them.
        steps: Of training.
        followers: Rows that take the rate of another one.
    """

    name: str
    rows: dict[str, str]
    trials: dict[str, str]
    middle: float
    metrics: Sequence[str]
    settings: Sequence[str]
    steps: int
    followers: Mapping[str, str]

    @property
    def _shared(self) -> tuple[str, ...]:
        return (f"steps={self.steps}", *self.settings)

    def tune(self, row: str, path: Path, train: Train) -> float:
        """Return the best rate of a ladder with steps of two, climbed until both sides are worse.

        Every row is searched by this rule, but those that follow another one.
        """
        if row in self.followers:
            return self.tune(self.followers[row], path, train)
        losses: dict[float, float] = {}

        def loss(rate: float) -> float:
            if rate not in losses:
                losses[rate] = self._valid_loss(
                    self._run(row, rate, TUNING_SEED, path, train, TUNING)
                )
            return losses[rate]

        best = self.middle
        for factor in (2.0, 0.5):
            while loss(best * factor) < loss(best):
                best *= factor
        return best

    def attempt(self, row: str, path: Path, train: Train) -> None:
        """Train a row with the rate of the one that it follows, for the validation text."""
        rate = self.tune(row, path, train)
        self._run(row, rate, TUNING_SEED, path, train, TUNING)

    def measure(self, row: str, seed: int, path: Path, train: Train) -> None:
        """Train a row with its rate and a seed of the table, and look at the test text."""
        self._run(row, self.tune(row, path, train), seed, path, train, FINAL)

    def table(self, path: Path, baseline: str) -> str:
        """Return the table as Markdown."""
        runs: dict[str, dict[int, RunResult]] = {row: {} for row in self.rows}
        for run in self._stored(path):
            if run.scale == FINAL:
                runs[run.experiment.removeprefix(f"{self.name}-")][run.seed] = run
        heads = [cell for metric in self.metrics for cell in (f"test {metric}", f"to {baseline}")]
        lines = [
            f"| activation | parameters | rate | n | {' | '.join(heads)} |",
            "| --- " * (4 + len(heads)) + "|",
        ]
        for row, title in self.rows.items():
            if not runs[row]:
                continue
            example = next(iter(runs[row].values()))
            cells = [title, f"{example.n_parameters:,}", f"{_rate(example):g}", str(len(runs[row]))]
            for metric in self.metrics:
                values, others = (
                    {
                        seed: run.metrics[f"test_{metric}"]
                        for seed, run in runs[name].items()
                        if run.status == "finished"
                    }
                    for name in (row, baseline)
                )
                cells += [_mean(values), _gap(values, others) if row != baseline else ""]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def tuning_table(self, path: Path) -> str:
        """Return the validation losses of all rates and rows as Markdown."""
        runs = [run for run in self._stored(path) if run.scale == TUNING]
        rates = sorted({_rate(run) for run in runs})
        lines = [
            f"| validation {self.metrics[0]} at rate | "
            + " | ".join(f"{r:g}" for r in rates)
            + " |",
            "| --- |" + " --- |" * len(rates),
        ]
        for row, title in (self.rows | self.trials).items():
            losses = {
                _rate(run): self._valid_loss(run)
                for run in runs
                if run.experiment == f"{self.name}-{row}"
            }
            if losses:
                cells = [f"{losses[rate]:.4f}" if rate in losses else "" for rate in rates]
                lines.append(f"| {title} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def _valid_loss(self, run: RunResult) -> float:
        return run.metrics.get(f"valid_{self.metrics[0]}", math.inf)

    def _stored(self, path: Path) -> list[RunResult]:
        return [run for run in stored(path) if run.overrides[:-1] == self._shared]

    def _run(
        self, row: str, rate: float, seed: int, path: Path, train: Train, scale: str
    ) -> RunResult:
        experiment = f"{self.name}-{row}"
        for run in self._stored(path):
            if (run.experiment, _rate(run), run.seed) == (experiment, rate, seed):
                return run
        # Before the training: the files may be another commit's when it ends.
        made_by, start = environment(torch.device("cpu")), time.process_time()
        outcome = train(Run(row, rate, seed, self.steps, scale == FINAL))
        # Not RunResult's numbers: JSON has no infinity.
        finite = {name: value for name, value in outcome.metrics.items() if math.isfinite(value)}
        run = RunResult(
            experiment,
            scale,
            seed,
            "finished" if len(finite) == len(outcome.metrics) else "failed",
            finite,
            (*self._shared, f"rate={rate:g}"),
            outcome.n_parameters,
            round(time.process_time() - start, 1),
            environment=made_by,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        # One write: two processes may share the file.
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run.to_dict()) + "\n")
        print(f"{scale} {experiment} rate {rate:g} seed {seed}: {dict(finite)}", flush=True)
        return run


def stored(path: Path) -> list[RunResult]:
    """Return the runs in a file; none where there is no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [result_from_dict(json.loads(line)) for line in lines]


def _mean(values: Mapping[int, float]) -> str:
    numbers = list(values.values())
    spread = f" ({statistics.stdev(numbers):.4f})" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.4f}{spread}" if numbers else ""


def _gap(values: Mapping[int, float], baseline: Mapping[int, float]) -> str:
    difference = paired_difference(values, baseline, None)
    return f"{difference.mean:+.4f} +- {difference.half_width:.4f}" if difference else ""


def _rate(run: RunResult) -> float:
    return float(run.overrides[-1].removeprefix("rate="))


def command(study: Study, train: Train, default: Path, description: str) -> None:
    """Read the command line: ``run`` makes what is missing, ``table`` prints what is there."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("--results", type=Path, default=default)
    every = [*study.rows, *study.trials]
    parser.add_argument("--rows", type=lambda text: text.split(","), default=every)
    parser.add_argument("--seeds", type=int, default=5, help="of the table; 1 to this number")
    parser.add_argument("--baseline", choices=list(study.rows), default=next(iter(study.rows)))
    parser.add_argument("--steps", type=int, default=study.steps)
    options = parser.parse_args()
    study = replace(study, steps=options.steps)
    if options.action == "table":
        print(study.table(options.results, options.baseline), end="\n\n")
        print(study.tuning_table(options.results))
        return
    if unknown := set(options.rows) - set(every):
        parser.error(f"no rows {sorted(unknown)}: there are {', '.join(every)}")
    for row in options.rows:
        if row in study.trials:
            study.attempt(row, options.results, train)
        else:
            study.tune(row, options.results, train)
    # All rows with one seed, then the next: whenever it is stopped, rows can be compared.
    for seed in range(1, options.seeds + 1):
        for row in filter(study.rows.get, options.rows):
            study.measure(row, seed, options.results, train)
