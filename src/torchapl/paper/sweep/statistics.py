"""What a table says: n, mean, spread, paired difference to the ReLU row, published number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchapl.paper.config import Published
from torchapl.paper.experiments import Cell, Table
from torchapl.paper.sweep.jobs import (
    Choice,
    Results,
    Sweep,
    chooses_settings,
    ensemble_job,
)
from torchapl.runs import RunResult

# Result's number, digits shown, whether higher is better.
ERROR = ("test_error", 2, False)
AUC = ("test_auc", 4, True)
SIGNIFICANCE = ("test_significance_histogram", 3, True)
# Rows that the others can be compared with, and how tables write them.
BASELINES = {
    "relu": "ReLU",
    "leaky": "Leaky ReLU",
    "prelu": "PReLU",
    "silu": "SiLU",
    "gelu": "GELU",
}
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences by seed, with its 95 % confidence interval."""

    n: int
    mean: float
    half_width: float
    # Part of the baseline's error (or of its 1 - AUC) that is gone; None for a significance, or
    # where the baseline has none.
    relative_reduction: float | None


@dataclass(frozen=True)
class Summary:
    """One cell: what came out, beside what was published."""

    experiment: str
    metric: str
    values: Mapping[int, float]
    failed: int
    choices: tuple[Choice, ...] = ()
    published: Published | None = None
    difference: Difference | None = None

    @property
    def n(self) -> int:
        """Runs that finished."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean over the finished runs."""
        return statistics.fmean(self.values.values()) if self.values else math.nan

    @property
    def std(self) -> float:
        """Standard deviation over the finished runs; NaN for fewer than two."""
        return statistics.stdev(self.values.values()) if self.n > 1 else math.nan


def summarise(
    table: Table,
    sweep: Sweep,
    results: Results,
    metric: str | None = None,
    baseline: str = "relu",
) -> dict[str, dict[str, Summary]]:
    """Return the summaries of a table by row title and column.

    Args:
        table: Which cells.
        sweep: Scale and seeds.
        results: All runs at hand; missing ones simply do not count.
        metric: Name of the number; by default test error, or AUC for events.
        baseline: Which row the others are compared with, of :data:`BASELINES`.
    """
    choose = chooses_settings(table)
    rows: dict[str, dict[str, Summary]] = {}
    for row in table.rows:
        rows[row.title] = {
            column: _cell(cell, sweep, results, metric, baseline, choose=choose)
            for column, cell in row.cells.items()
        }
    return rows


def _cell(
    cell: Cell, sweep: Sweep, results: Results, metric: str | None, baseline: str, *, choose: bool
) -> Summary:
    made, missing = sweep.choices(cell.experiment, results, choose=choose)
    runs = {} if missing else sweep.final_runs(cell.experiment, made, results)
    if cell.kind == "ensemble" and not missing:
        job = ensemble_job(sweep.final_jobs(cell.experiment, made, 1)[0], cell.members)
        runs = {job.seed: results[job]} if job in results else {}
    values, failed, name = _values(cell, runs, metric)
    return Summary(
        cell.experiment,
        name,
        values,
        failed,
        tuple(made),
        _published(cell.published, name),
        _paired(cell, name, values, sweep, results, baseline, choose=choose),
    )


def _values(
    cell: Cell, runs: Mapping[int, RunResult], metric: str | None
) -> tuple[dict[int, float], int, str]:
    failed = sum(run.status == "failed" for run in runs.values())
    finished = {seed: run for seed, run in runs.items() if run.status == "finished"}
    name = metric or _metric_of(cell.experiment)
    if cell.kind == "replaced":
        name = f"replaced_{name}"
    values = {seed: run.metrics[name] for seed, run in finished.items() if name in run.metrics}
    return values, failed, name


def _published(number: Published | None, metric: str) -> Published | None:
    if number is None or "significance" not in metric:
        return number
    if number.significance is None:
        return None
    return Published(number.significance, number.significance_std, number.trials)


def _metric_of(experiment: str) -> str:
    return (ERROR if experiment.startswith("cifar") else AUC)[0]


def baseline_of(experiment: str, row: str = "relu") -> str:
    """Return the experiment that one is compared with: same data, same kind of network.

    Example:
        >>> baseline_of("cifar10-aug-nin-apl"), baseline_of("cifar100-maxout", "silu")
        ('cifar10-aug-nin-relu', 'cifar100-cnn-silu')
    """
    for family in ("nin", "resnet", "dnn", "cnn"):
        head, found, _ = experiment.partition(f"-{family}-")
        if found:
            return f"{head}-{family}-{row}"
    column = next(
        name
        for name in ("cifar100-aug", "cifar10-aug", "cifar100", "cifar10")
        if experiment.startswith(name)
    )
    return f"{column}-cnn-{row}"


def _paired(
    cell: Cell,
    metric: str,
    values: Mapping[int, float],
    sweep: Sweep,
    results: Results,
    baseline: str,
    *,
    choose: bool,
) -> Difference | None:
    other = baseline_of(cell.experiment, baseline)
    if other == cell.experiment or cell.kind != "run":
        return None
    made, missing = sweep.choices(other, results, choose=choose)
    runs = {} if missing else sweep.final_runs(other, made, results)
    others, _, _ = _values(Cell(other), runs, metric)
    found = paired_difference(values, others, higher_is_better=metric.endswith("auc"))
    if found is not None and "significance" in metric:
        return replace(found, relative_reduction=None)
    return found


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float], *, higher_is_better: bool = False
) -> Difference | None:
    """Return the difference to the baseline over the seeds that both have; None below two.

    Example:
        >>> found = paired_difference({0: 9.0, 1: 8.0}, {0: 10.0, 1: 10.0})
        >>> found.mean, round(found.half_width, 2), found.relative_reduction
        (-1.5, 6.35, 0.15)
    """
    from scipy import stats

    seeds = sorted(values.keys() & baseline.keys())
    if len(seeds) < 2:
        return None
    differences = [values[seed] - baseline[seed] for seed in seeds]
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(seeds))
    half_width = float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(seeds) - 1)) * error
    reference = statistics.fmean(baseline[seed] for seed in seeds)
    left, gone = (1 - reference, mean) if higher_is_better else (reference, -mean)
    # Of a baseline without error nothing can go.
    reduction = gone / left if left > 0 else None
    return Difference(len(seeds), mean, half_width, reduction)
