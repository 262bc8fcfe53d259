"""Ensembles: the mean of the members' scores on the test rows, kept like a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from torchapl.paper import metrics
from torchapl.paper.sweep.jobs import Job, Results, ensemble_job
from torchapl.runs.folder import SCORES, RunResult, write_result
from torchapl.runs.records import read_tensors


def make_ensemble(jobs: Sequence[Job], results: Results, root: Path) -> RunResult | None:
    """Return, and store below ``root``, the ensemble of these runs; None if one lacks scores.

    Args:
        jobs: The members; all of one experiment.
        results: Holds their results, with folders.
        root: Folder of all runs.
    """
    runs = [results.get(job) for job in jobs]
    tables = []
    for run in runs:
        path = None if run is None or run.folder is None else run.folder / SCORES
        if path is None or not path.exists():
            return None
        tables.append(read_tensors(path))
    scores = torch.stack([table["scores"] for table in tables]).mean(0)
    labels = tables[0]["labels"]
    job = ensemble_job(jobs[0], len(jobs))
    first = results[jobs[0]]
    result = replace(
        first,
        seed=0,
        overrides=job.overrides,
        metrics={
            "test_auc": metrics.auc(scores, labels),
            "test_significance_cut": metrics.cut_significance(scores, labels),
            "test_significance_histogram": metrics.histogram_significance(scores, labels),
        },
        n_parameters=sum(run.n_parameters for run in runs if run is not None),
        seconds=sum(run.seconds for run in runs if run is not None),
        folder=job.folder(root),
    )
    job.folder(root).mkdir(parents=True, exist_ok=True)
    write_result(job.folder(root), result)
    return result
