"""What a classifier of events can do: ROC, and the significance of a cut, from stored scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchapl.paper.metrics import (
    BACKGROUND,
    FEWEST,
    SIGNAL,
    UNCERTAINTY,
    asimov_significance,
    auc,
)
from torchapl.paper.report.explorer import short
from torchapl.paper.report.folders import Run
from torchapl.runs.folder import SCORES
from torchapl.runs.records import Json, naming, read_tensors

THRESHOLDS = torch.linspace(0.0, 0.99, 100)
# Dense where classifiers differ, at small rates.
RATES = torch.linspace(0.0, 1.0, 101) ** 2


def read_scores(run: Run) -> tuple[Tensor, Tensor]:
    """Return the scores and labels of the test rows.

    Raises:
        DamagedError: If the file cannot be trusted.
    """
    if run.folder is None:
        raise ValueError(f"{run.setting} has no folder, so no scores")
    path = run.folder / SCORES
    stored = read_tensors(path)
    with naming(path):
        scores, labels = stored["scores"].flatten().float(), stored["labels"].flatten()
        if len(scores) != len(labels) or bool((labels > 1).any()):
            raise ValueError(f"holds {len(scores)} scores for {len(labels)} labels of 0 and 1")
        return scores, labels


def roc(scores: Tensor, labels: Tensor, rates: Tensor) -> Tensor:
    """Return the share of the signal accepted at these rates of accepted background.

    Example:
        >>> roc(torch.tensor([0.9, 0.8, 0.7, 0.1]), torch.tensor([1, 0, 1, 0]), torch.tensor([0.5]))
        tensor([1.], dtype=torch.float64)
    """
    order = scores.argsort(descending=True)
    signal = labels[order].double()
    # Rows of equal score are accepted together.
    ends = torch.cat([scores[order].diff() != 0, torch.ones(1, dtype=torch.bool)])
    passed = torch.cat([signal.new_zeros(1), signal.cumsum(0)[ends]])
    fooled = torch.cat([signal.new_zeros(1), (1 - signal).cumsum(0)[ends]])
    x, y = fooled / fooled[-1], passed / passed[-1]
    wanted = rates.double()
    right = torch.searchsorted(x, wanted, right=True).clamp(max=len(x) - 1)
    left = right - 1
    step = (x[right] - x[left]).clamp(min=1e-300)
    return y[left] + (y[right] - y[left]) * ((wanted - x[left]) / step).clamp(0, 1)


def cut_significances(scores: Tensor, labels: Tensor, thresholds: Tensor) -> list[float]:
    """Return the expected significance above each threshold; NaN below ten background rows.

    The paper's case: 100 signal and 5000 background events, 5 % background uncertainty.
    """
    signal, background = scores[labels == 1], scores[labels == 0]
    values = []
    for threshold in thresholds.tolist():
        selected = int((background >= threshold).sum())
        if selected < FEWEST:
            values.append(math.nan)
            continue
        s = SIGNAL * float((signal >= threshold).float().mean())
        b = BACKGROUND * selected / len(background)
        values.append(asimov_significance(s, b, UNCERTAINTY * b))
    return values


def classifiers(groups: Mapping[str, Sequence[Run]]) -> list[Json]:
    """Return, for each name, ROC and significance: mean and deviation over its runs."""
    summaries: list[Json] = []
    for name, runs in groups.items():
        tables = [read_scores(run) for run in runs if run.has(SCORES)]
        if not tables:
            continue
        curves = torch.stack([roc(*table, RATES) for table in tables])
        cuts = torch.tensor([cut_significances(*table, THRESHOLDS) for table in tables])
        areas = torch.tensor([auc(*table) for table in tables], dtype=torch.float64)
        summaries.append(
            {
                "name": name,
                "n": len(tables),
                "auc": short(float(areas.mean())),
                "rates": _shortened(RATES),
                "roc": _shortened(curves.mean(0)),
                "thresholds": _shortened(THRESHOLDS),
                "significance": _shortened(cuts.mean(0)),
                "significance_std": _shortened(cuts.std(0, correction=0)),
            }
        )
    return summaries


def _shortened(values: Tensor) -> list[Json]:
    return [short(value) for value in values.tolist()]
