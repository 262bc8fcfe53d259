"""The paper's tables with the numbers of some runs, and a plain table of every setting."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchapl.paper.experiments import EXPERIMENTS, SCALES, Table
from torchapl.paper.report.folders import Run
from torchapl.paper.sweep import Sweep
from torchapl.paper.sweep.comparison import saved_comparisons
from torchapl.paper.sweep.jobs import Results, by_job
from torchapl.paper.sweep.render import as_json, by_metric, mean_and_std, row_title, rows_of
from torchapl.paper.sweep.selection import selected_tables
from torchapl.paper.sweep.statistics import summarise
from torchapl.runs.log import OWN
from torchapl.runs.records import Json

HEADER = (
    "Method",
    "Data",
    "n",
    "Mean (std)",
    "Difference to {baseline}, 95 % interval",
    "Less error",
    "Chosen",
    "Published",
)
# The numbers of a result that a reader looks for first, with their digits.
_MAIN = {"test_error": 2, "test_auc": 4, "test_significance_histogram": 3}


def sweep_of(runs: Sequence[Run], scale: str) -> Sweep:
    """Return the sweep that these runs are from: as many seeds as there are, chosen if they chose.

    Example:
        >>> sweep_of([Run("cifar10-cnn-relu", "lab", 3, (), None, None)], "lab")
        Sweep(scale='lab', seeds=None, selection_seeds=0, rates=None, overrides=())
    """
    chosen = {run.seed for run in runs if run.scale == scale and run.selects}
    # Candidates are compared over seeds 0 to n - 1; one of another seed is somebody's own run.
    selection = next(seed for seed in range(len(chosen) + 1) if seed not in chosen)
    return Sweep(scale, None, selection)


def tables_of_runs(runs: Sequence[Run], source: Path) -> list[Json]:
    """Return the comparisons and the tables of the paper that the runs say something about."""
    results = by_job(run.result for run in runs if run.result is not None)
    tables: list[Json] = []
    for comparison in saved_comparisons(source):
        if comparison.experiment in EXPERIMENTS:
            tables += _parts(comparison.table(), comparison.sweep(), results, comparison.baseline)
        else:
            warnings.warn(
                f"no table of {comparison.experiment}: --load the file that registers it",
                stacklevel=2,
            )
    # Somebody's own runs may be of a scale that no table has.
    for scale in sorted({run.scale for run in runs} & SCALES.keys()):
        sweep = sweep_of(runs, scale)
        for table in selected_tables(["all"], scale=scale):
            tables += _parts(table, sweep, results, "relu")
    return tables


def _parts(table: Table, sweep: Sweep, results: Results, baseline: str) -> list[Json]:
    """Return a table for every metric that its runs have."""
    parts: list[Json] = []
    for metric, summaries in by_metric(summarise(table, sweep, results, baseline)).items():
        rows = rows_of(table, summaries)
        if rows:
            parts.append(
                {
                    "name": table.name,
                    "title": f"{table.title}, {metric.title}",
                    "scale": sweep.scale,
                    "header": [text.format(baseline=row_title(baseline)) for text in HEADER],
                    "rows": [list(row) for row in rows],
                    "cells": as_json([s for s in summaries if s.n or s.failed]),
                }
            )
    return parts


def groups_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs that differ only by their seed, by a name for them."""
    scales = {run.scale for run in runs}
    groups: dict[str, list[Run]] = {}
    for run in runs:
        name = run.setting if len(scales) == 1 else f"{run.setting} ({run.scale})"
        groups.setdefault(name, []).append(run)
    return groups


def settings_table(groups: Mapping[str, Sequence[Run]]) -> list[Json]:
    """Return n, failures, mean and deviation of every setting's main numbers."""
    rows: list[Json] = []
    for runs in groups.values():
        done = [run.result for run in runs if run.result and run.result.status == "finished"]
        numbers: dict[str, Json] = {}
        for metric in _main_metrics(runs):
            values = [result.metrics[metric] for result in done if metric in result.metrics]
            if values:
                std = statistics.stdev(values) if len(values) > 1 else math.nan
                mean = statistics.fmean(values)
                numbers[metric] = mean_and_std(mean, std, _MAIN.get(metric, _digits(mean)))
        rows.append(
            {
                "name": runs[0].setting,
                "scale": runs[0].scale,
                "n": len(done),
                "failed": sum(run.status == "failed" for run in runs),
                "unfinished": sum(run.status == "unfinished" for run in runs),
                "numbers": numbers,
            }
        )
    return rows


def _main_metrics(runs: Sequence[Run]) -> list[str]:
    """Return the numbers that are shown of some runs; of somebody's own, all."""
    names = dict.fromkeys(name for run in runs if run.result for name in run.result.metrics)
    return [name for name in names if name in _MAIN or runs[0].scale == OWN]


def _digits(value: float) -> int:
    """Return the decimals that give a number at least three digits."""
    return max(2, 3 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 2


def runs_table(runs: Sequence[Run]) -> list[Json]:
    """Return one entry for every run: what it is, how it ended, what it took."""
    entries: list[Json] = []
    for run in runs:
        lines = run.lines() if run.result is None else []
        result = run.result
        epoch = lines[-1]["epoch"] if lines else 0
        entries.append(
            {
                "name": run.setting,
                "scale": run.scale,
                "seed": run.seed,
                "status": run.status,
                "epochs": epoch if result is None else result.epochs,
                "seconds": (lines[-1].get("seconds") if lines else None)
                if result is None
                else round(result.seconds, 1),
                "parameters": None if result is None else result.n_parameters,
                "numbers": {}
                if result is None
                else {
                    key: result.metrics[key]
                    for key in _main_metrics([run])
                    if math.isfinite(result.metrics[key])
                },
                "error": None if result is None else result.error,
                # Results of older versions carry none.
                "has_checksum": result is not None and result.is_sealed,
                "commit": None if result is None else result.environment.get("commit"),
            }
        )
    return entries
