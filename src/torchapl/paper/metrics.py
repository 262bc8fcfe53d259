"""Error rate, AUC and expected discovery significance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# The paper's physics case: expected signal and background events, relative background uncertainty.
SIGNAL, BACKGROUND, UNCERTAINTY = 100.0, 5000.0, 0.05
# A cut or bin with fewer simulated background events than this says nothing about the background.
FEWEST = 10


def auc(scores: Tensor, labels: Tensor) -> float:
    """Return the area under the ROC curve, exact, with ties counted half.

    Args:
        scores: One number per row, higher for signal.
        labels: 1 for signal, 0 for background.

    Example:
        >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.875
    """
    scores, positive = _checked(scores, labels)
    # Mann-Whitney: the mean rank of the signal rows; equal scores share their mean rank.
    _, group, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = sizes.cumsum(0).double() - (sizes.double() - 1) / 2
    n_positive = int(positive.sum())
    n_negative = positive.numel() - n_positive
    total = float(ranks[group[positive]].sum())
    return (total - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)


def asimov_significance(signal: float, background: float, sigma: float) -> float:
    r"""Return the median discovery significance of a counting experiment.

    Cowan, Cranmer, Gross, Vitells (2011).

    Args:
        signal: Expected signal events.
        background: Expected background events.
        sigma: Absolute uncertainty of the background.

    Example:
        >>> round(asimov_significance(50, 100, 7), 2), round(asimov_significance(100, 5000, 250), 2)
        (3.72, 0.38)
    """
    if not (signal >= 0 and background > 0 and sigma >= 0):
        raise ValueError(
            "signal and sigma must not be negative and background must be positive, "
            f"got {signal}, {sigma} and {background}"
        )
    value = _asimov(*(torch.tensor(x, dtype=torch.float64) for x in (signal, background, sigma)))
    return float(value)


def _asimov(s: Tensor, b: Tensor, sigma: Tensor) -> Tensor:
    variance = sigma**2
    # log1p keeps the small ratios of a large background exact.
    without = (s + b) * torch.log1p(s / b) - s
    first = (s + b) * (
        torch.log1p(s / b) + torch.log((b + variance) / (b + (s + b) * variance / b))
    )
    second = b**2 / variance * torch.log1p(variance * s / (b * (b + variance)))
    return (2 * torch.where(variance > 0, first - second, without)).clamp(min=0).sqrt()


def cut_significance(
    scores: Tensor,
    labels: Tensor,
    *,
    signal: float = SIGNAL,
    background: float = BACKGROUND,
    uncertainty: float = UNCERTAINTY,
) -> float:
    """Return the significance of the best single cut on the scores.

    Every threshold that leaves at least ten simulated background events is tried.

    Args:
        scores: One number per simulated event, higher for signal.
        labels: 1 for signal, 0 for background.
        signal: Expected signal events before the cut.
        background: Expected background events before the cut.
        uncertainty: Relative uncertainty of the background.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.arange(20_000) % 2
        >>> scores = torch.randn(20_000, generator=generator) + 2 * labels
        >>> print(f"{cut_significance(scores, labels):.1f}")
        4.8
    """
    scores, positive = _checked(scores, labels)
    order = scores.argsort(descending=True)
    sorted_scores, positive = scores[order], positive[order]
    kept_signal = positive.cumsum(0)
    kept_background = (~positive).cumsum(0)
    # A threshold lies between two different scores.
    ends = torch.cat([sorted_scores[1:] != sorted_scores[:-1], torch.ones(1, dtype=torch.bool)])
    ends &= kept_background >= min(FEWEST, int(kept_background[-1]))
    s = kept_signal[ends].double() * (signal / int(kept_signal[-1]))
    b = kept_background[ends].double() * (background / int(kept_background[-1]))
    return float(_asimov(s, b, uncertainty * b).max())


def histogram_significance(
    probabilities: Tensor,
    labels: Tensor,
    *,
    bins: int = 50,
    signal: float = SIGNAL,
    background: float = BACKGROUND,
    uncertainty: float = UNCERTAINTY,
) -> float:
    """Return the profile-likelihood significance of the whole histogram of the classifier's output.

    Poisson bins and one Gaussian-constrained normalisation of the background, on Asimov data.

    Args:
        probabilities: Outputs in [0, 1], higher for signal.
        labels: 1 for signal, 0 for background.
        bins: Equal bins of [0, 1]; neighbours are joined until each has ten background rows.
        signal: Expected signal events.
        background: Expected background events.
        uncertainty: Relative uncertainty of the background's normalisation.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.arange(20_000) % 2
        >>> scores = torch.randn(20_000, generator=generator) + 2 * labels
        >>> print(f"{histogram_significance(scores.sigmoid(), labels):.1f}")
        5.4
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    probabilities, positive = _checked(probabilities, labels)
    if probabilities.min() < 0 or probabilities.max() > 1:
        raise ValueError(
            "probabilities must lie in [0, 1], got "
            f"[{float(probabilities.min()):.4g}, {float(probabilities.max()):.4g}]"
        )
    index = (probabilities * bins).long().clamp(max=bins - 1)
    s, b = _joined(
        torch.bincount(index[positive], minlength=bins).tolist(),
        torch.bincount(index[~positive], minlength=bins).tolist(),
    )
    return binned_significance(s / s.sum() * signal, b / b.sum() * background, uncertainty)


def binned_significance(signal: Tensor, background: Tensor, uncertainty: float) -> float:
    """Return the profile-likelihood significance of expected counts per bin.

    Args:
        signal: Expected signal events of each bin.
        background: Expected background events of each bin, positive.
        uncertainty: Relative uncertainty of the background's normalisation, common to all bins.

    Example:
        >>> counts = torch.tensor([20.0, 30.0]), torch.tensor([50.0, 40.0])
        >>> print(f"{binned_significance(*counts, uncertainty=0.05):.3f}")
        4.555
    """
    s, b = signal.double(), background.double()
    n, total_n, total_b = s + b, float((s + b).sum()), float(b.sum())
    # Without signal the likelihood is maximal where N / t - B - (t - 1) / u^2 = 0.
    if uncertainty > 0:
        half = (total_b * uncertainty**2 - 1) / 2
        scale = -half + math.sqrt(half**2 + total_n * uncertainty**2)
        constraint = ((scale - 1) / uncertainty) ** 2
    else:
        scale, constraint = 1.0, 0.0
    deviance = 2 * float((n * torch.log(n / (scale * b)) - n + scale * b).sum())
    return math.sqrt(max(0.0, deviance + constraint))


def _joined(signal: list[int], background: list[int]) -> tuple[Tensor, Tensor]:
    """Join bins from the signal's side until each holds enough background."""
    joined: list[tuple[int, int]] = []
    s = b = 0
    for more_s, more_b in zip(reversed(signal), reversed(background), strict=True):
        s, b = s + more_s, b + more_b
        if b >= FEWEST:
            joined.append((s, b))
            s = b = 0
    if joined:
        joined[-1] = (joined[-1][0] + s, joined[-1][1] + b)
    else:
        joined = [(s, b)]
    counts = torch.tensor(joined, dtype=torch.float64)
    return counts[:, 0], counts[:, 1]


def _checked(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    scores, positive = scores.detach().flatten().cpu(), labels.detach().flatten().cpu() > 0.5
    if scores.shape != positive.shape:
        raise ValueError(f"{scores.numel()} scores do not fit {positive.numel()} labels")
    if not 0 < int(positive.sum()) < positive.numel():
        raise ValueError(
            "both classes must be present, "
            f"got {int(positive.sum())} signal rows of {positive.numel()}"
        )
    if not bool(torch.isfinite(scores).all()):
        raise ValueError(f"{int((~torch.isfinite(scores)).sum())} scores are not finite")
    return scores, positive
