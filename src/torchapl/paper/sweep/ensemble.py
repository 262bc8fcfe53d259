"""Ensembles: the mean of the members' scores on the test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from torchapl.paper import metrics
from torchapl.paper.sweep.jobs import of_members
from torchapl.runs.folder import SCORES, RunResult
from torchapl.runs.records import read_tensors


def averaged(members: Sequence[RunResult | None]) -> RunResult | None:
    """Return the ensemble of some runs of one experiment; None if one is missing or has no scores.

    Args:
        members: In the order of their seeds, from 0 on.
    """
    runs, tables = [], []
    for run in members:
        path = None if run is None or run.folder is None else run.folder / SCORES
        if run is None or path is None or not path.exists():
            return None
        runs.append(run)
        tables.append(read_tensors(path))
    scores = torch.stack([table["scores"] for table in tables]).mean(0)
    labels = tables[0]["labels"]
    ensemble = replace(
        runs[0],
        metrics={
            "test_auc": metrics.auc(scores, labels),
            "test_significance_cut": metrics.cut_significance(scores, labels),
            "test_significance_histogram": metrics.histogram_significance(scores, labels),
        },
        n_parameters=sum(run.n_parameters for run in runs),
        seconds=sum(run.seconds for run in runs),
        folder=None,
    )
    return of_members(ensemble, len(runs))
