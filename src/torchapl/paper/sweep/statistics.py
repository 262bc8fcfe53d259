"""What a table says: n, mean, spread, paired difference to a row, published number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from torchapl.paper.catalogue import unknown
from torchapl.paper.experiments import Cell, Metric, Table
from torchapl.paper.sweep.jobs import Results
from torchapl.paper.sweep.plan import Choice, Sweep
from torchapl.runs import RunResult

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences by seed, with its 95 % confidence interval."""

    n: int
    mean: float
    half_width: float
    # Part of the baseline's distance from a perfect classifier (its error, its 1 - AUC) that is
    # gone; None where there is no such distance.
    relative_reduction: float | None


@dataclass(frozen=True)
class Summary:
    """One number of one cell: what came out, beside what was published."""

    row: str
    column: str
    experiment: str
    metric: Metric
    # By seed, of the runs that finished.
    values: Mapping[int, float]
    failed: int
    choices: tuple[Choice, ...] = ()
    # The paper's mean and deviation.
    published: tuple[float, float | None] | None = None
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


def check_baseline(table: Table, baseline: str) -> None:
    """Refuse a baseline that no cell of a table has.

    Raises:
        ValueError: If there is none; the message names the rows there are.
    """
    rows = list(dict.fromkeys(row for cell in table.cells for row in cell.peers))
    if rows and baseline not in rows:
        raise ValueError(unknown("baseline", baseline, rows))


def summarise(
    table: Table, sweep: Sweep, results: Results, baseline: str = "relu"
) -> list[Summary]:
    """Return the summaries of a table's cells, one for each of their metrics.

    Args:
        table: Which cells.
        sweep: Scale and seeds.
        results: All runs at hand; missing ones simply do not count.
        baseline: Which row the others are compared with.

    Raises:
        ValueError: If no cell has such a row to be compared with.
    """
    check_baseline(table, baseline)
    summaries = []
    for row in table.rows:
        for column, cell in row.cells.items():
            made, runs = sweep.final_runs(cell, results)
            peer = cell.peers.get(baseline)
            others = _compared(cell, peer, sweep, results)
            for metric in cell.metrics:
                values = _values(cell, metric, runs)
                summaries.append(
                    Summary(
                        row.title,
                        column,
                        cell.experiment,
                        metric,
                        values,
                        sum(run.status == "failed" for run in runs.values()),
                        tuple(made),
                        _published(cell, metric),
                        None
                        if peer is None
                        else paired_difference(values, _values(peer, metric, others), metric.best),
                    )
                )
    return summaries


def _compared(
    cell: Cell, peer: Cell | None, sweep: Sweep, results: Results
) -> Mapping[int, RunResult]:
    """Return the runs that a cell is compared with; none for the baseline itself."""
    is_same = peer is None or (peer.experiment, peer.settings) == (cell.experiment, cell.settings)
    if peer is None or is_same or cell.kind != "run":
        return {}
    return sweep.final_runs(peer, results)[1]


def _values(cell: Cell, metric: Metric, runs: Mapping[int, RunResult]) -> dict[int, float]:
    name = f"replaced_{metric.name}" if cell.kind == "replaced" else metric.name
    return {
        seed: run.metrics[name]
        for seed, run in runs.items()
        if run.status == "finished" and name in run.metrics
    }


def _published(cell: Cell, metric: Metric) -> tuple[float, float | None] | None:
    if cell.published is None:
        return None
    mean, std = (getattr(cell.published, name) for name in metric.published)
    return None if mean is None else (mean, std)


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float], best: float | None = 0.0
) -> Difference | None:
    """Return the difference to the baseline over the seeds that both have; None below two.

    Args:
        values: By seed.
        baseline: By seed.
        best: The value of a perfect classifier, if there is one.

    Example:
        >>> gain = paired_difference({0: 9.0, 1: 8.0}, {0: 10.0, 1: 10.0})
        >>> gain.mean, round(gain.half_width, 2), gain.relative_reduction
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
    reduction = None
    if best is not None:
        distance = best - statistics.fmean(baseline[seed] for seed in seeds)
        # Of a baseline without error nothing can go.
        reduction = mean / distance if distance else None
    return Difference(len(seeds), mean, half_width, reduction)
