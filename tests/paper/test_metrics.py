from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from torchapl.paper.metrics import (
    asimov_significance,
    auc,
    binned_significance,
    cut_significance,
    histogram_significance,
)


def events(rows: int, separation: float = 1.5) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(2, (rows,))
    return (torch.randn(rows) + separation * labels).sigmoid(), labels


@pytest.mark.parametrize("decimals", [1, 3, 8])
def test_auc_equals_scikit_learn(decimals: int) -> None:
    scores, labels = events(5000)
    scores = scores.round(decimals=decimals)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@pytest.mark.slow
def test_auc_is_exact_on_millions_of_rows() -> None:
    # More rows than float32 can count, with ties.
    scores, labels = events(20_000_000)
    scores = scores.half().float()
    exact = roc_auc_score(labels.numpy().astype(np.int8), scores.numpy())
    assert auc(scores, labels) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize(
    ("s", "b", "sigma", "expected"), [(50, 100, 7, 3.72), (100, 5000, 250, 0.38)]
)
def test_asimov_check_values(s: float, b: float, sigma: float, expected: float) -> None:
    assert asimov_significance(s, b, sigma) == pytest.approx(expected, abs=0.005)


def test_asimov_limit_without_uncertainty() -> None:
    exact = math.sqrt(2 * (150 * math.log(1.5) - 50))
    assert asimov_significance(50, 100, 0) == pytest.approx(exact)
    assert asimov_significance(50, 100, 1e-3) == pytest.approx(exact, rel=1e-5)


def test_best_cut_is_the_best_of_all_thresholds() -> None:
    scores, labels = events(400)
    scores = scores.round(decimals=2)
    best = 0.0
    for threshold in scores.unique():
        kept = scores >= threshold
        s = int((kept & (labels == 1)).sum()) / int((labels == 1).sum()) * 100
        background = int((kept & (labels == 0)).sum())
        b = background / int((labels == 0).sum()) * 5000
        if background >= 10:
            best = max(best, asimov_significance(s, b, 0.05 * b))
    assert cut_significance(scores, labels) == pytest.approx(best, rel=1e-12)


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
@pytest.mark.parametrize("uncertainty", [0.01, 0.05, 0.3])
def test_profile_likelihood_agrees_with_pyhf(uncertainty: float) -> None:
    pyhf = pytest.importorskip("pyhf")
    signal, background = [5.0, 20.0, 75.0], [3000.0, 1500.0, 500.0]
    model = pyhf.Model(
        {
            "channels": [
                {
                    "name": "scores",
                    "samples": [
                        {
                            "name": "signal",
                            "data": signal,
                            "modifiers": [{"name": "mu", "type": "normfactor", "data": None}],
                        },
                        {
                            "name": "background",
                            "data": background,
                            "modifiers": [
                                {
                                    "name": "norm",
                                    "type": "histosys",
                                    "data": {
                                        "hi_data": [b * (1 + uncertainty) for b in background],
                                        "lo_data": [b * (1 - uncertainty) for b in background],
                                    },
                                }
                            ],
                        },
                    ],
                }
            ]
        },
        poi_name="mu",
    )
    observed = [s + b for s, b in zip(signal, background, strict=True)] + model.config.auxdata
    bounds = [(-5.0, 5.0)] * 2
    p_value = pyhf.infer.hypotest(0.0, observed, model, test_stat="q0", par_bounds=bounds)
    expected = -float(torch.special.ndtri(torch.tensor(float(p_value), dtype=torch.float64)))
    found = binned_significance(torch.tensor(signal), torch.tensor(background), uncertainty)
    assert found == pytest.approx(expected, rel=0.01)


def test_histogram_beats_a_single_cut_without_uncertainty() -> None:
    scores, labels = events(100_000)
    one = cut_significance(scores, labels, uncertainty=0.0)
    assert one < histogram_significance(scores, labels, uncertainty=0.0) < 2 * one


def test_histogram_of_one_bin_is_a_counting_experiment() -> None:
    scores, labels = events(1000)
    expected = binned_significance(torch.tensor([100.0]), torch.tensor([5000.0]), 0.05)
    assert histogram_significance(scores, labels, bins=1) == pytest.approx(expected)


def test_empty_background_bins_are_joined() -> None:
    scores = torch.cat([torch.full((1000,), 0.2), torch.full((1000,), 0.9)])
    labels = torch.cat([torch.zeros(1000), torch.ones(1000)])
    assert math.isfinite(histogram_significance(scores, labels))
    assert math.isfinite(cut_significance(scores, labels))


def test_bins_are_joined_from_the_signals_side_until_each_has_ten_background_rows() -> None:
    # Signal and background rows by output; nine are too few, ten are enough.
    rows = {0.9: (100, 9), 0.7: (50, 1), 0.5: (30, 10), 0.2: (10, 1000), 0.1: (5, 4)}
    scores = torch.cat([torch.full((sum(counts),), at) for at, counts in rows.items()])
    labels = torch.cat([torch.tensor([1] * s + [0] * b) for s, b in rows.values()])
    joined = torch.tensor([[150, 10], [30, 10], [15, 1004]], dtype=torch.float64)
    signal, background = (joined / joined.sum(0) * torch.tensor([7.0, 90.0])).unbind(1)
    found = histogram_significance(scores, labels, signal=7.0, background=90.0, uncertainty=0.1)
    assert found == pytest.approx(binned_significance(signal, background, 0.1))


def test_bins_without_uncertainty_are_independent_counting_experiments() -> None:
    signal, background = torch.tensor([3.0, 40.0]), torch.tensor([20.0, 500.0])
    single = [asimov_significance(s, b, 0.0) for s, b in ((3.0, 20.0), (40.0, 500.0))]
    assert binned_significance(signal, background, 0.0) == pytest.approx(math.hypot(*single))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="3 scores do not fit 2 labels"):
        auc(torch.rand(3), torch.ones(2))
    with pytest.raises(ValueError, match="both classes must be present, got 2 signal rows of 2"):
        auc(torch.rand(2), torch.ones(2))
    with pytest.raises(ValueError, match="1 scores are not finite"):
        auc(torch.tensor([0.0, math.nan]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got \[-1, 2\]"):
        histogram_significance(torch.tensor([-1.0, 2.0]), torch.tensor([0, 1]))


@pytest.mark.parametrize("counts", [(10, 0, 1), (-1, 5, 1), (1, 5, -1), (math.nan, 5, 1)])
def test_impossible_counts_have_no_significance(counts: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="background must be positive"):
        asimov_significance(*counts)
