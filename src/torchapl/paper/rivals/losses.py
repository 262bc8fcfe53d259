"""Losses of classifiers."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum"]


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the softmax cross-entropy, or sigmoid cross-entropy of a single logit.

    It is computed in at least float32, whatever precision a network's layers run in.

    Args:
        logits: Of shape ``(N, classes)``.
        targets: Class indices, or 0 and 1 for a single logit.
        reduction: Over rows.
        label_smoothing: Part of the targets' probability that is spread evenly over all classes.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(1.3863)
    """
    logits = _wide(logits)
    if logits.shape[1] == 1:
        signal = targets.flatten().to(logits.dtype).mul(1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(logits[:, 0], signal, reduction=reduction)
    return F.cross_entropy(logits, targets, reduction=reduction, label_smoothing=label_smoothing)


def squared_hinge(logits: Tensor, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
    r"""Return the squared hinge loss of one classifier against the rest for each class.

    .. math::
        \sum_c \max(0, 1 - t_c z_c)^2

    with t = 1 for the row's class and -1 for the others (Lee et al. 2014). Arguments as in
    :func:`cross_entropy`.

    Example:
        >>> squared_hinge(torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([0]))
        tensor(2.2500)
    """
    logits = _wide(logits)
    if logits.shape[1] == 1:
        signs = 2.0 * targets.flatten().to(logits.dtype)[:, None] - 1
    else:
        signs = 2.0 * F.one_hot(targets, logits.shape[1]).to(logits.dtype) - 1
    total = F.relu(1 - signs * logits).square().sum()
    return total if reduction == "sum" else total / len(logits)


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
