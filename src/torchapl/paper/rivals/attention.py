"""Selective attention over the maps of a finished network (dasNet, Stollenga et al. 2014)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Images that are classified already count little in the cost of a policy, those that are not fully.
_SOLVED_WEIGHT = 0.005
_NORM_WEIGHT = 0.005


def gates(policy: Tensor, averages: Tensor) -> Tensor:
    r"""Return one gate for every map of every image.

    .. math::
        g = A \, \mathrm{softmax}(W \, [o, 1])

    for A maps with averages o. The gates average 1; those of the policy 0 are all 1.

    Args:
        policy: The W as a vector of ``A * (A + 1)`` numbers.
        averages: Of shape ``(N, A)``.

    Example:
        >>> gates(torch.zeros(6), torch.randn(1, 2))
        tensor([[1., 1.]])
    """
    maps = averages.shape[1]
    if policy.numel() != maps * (maps + 1):
        raise ValueError(
            f"policy must have {maps} * {maps + 1} numbers for {maps} maps, got {policy.numel()}"
        )
    matrix = policy.reshape(maps, maps + 1)
    return maps * F.linear(averages, matrix[:, :-1], matrix[:, -1]).softmax(dim=1)


def policy_cost(logits: Tensor, targets: Tensor, policy: Tensor) -> Tensor:
    """Return the cost of a policy: cross-entropy, mostly of what it gets wrong, plus its norm.

    Example:
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0]])
        >>> wrong, right = torch.tensor([1, 1]), torch.tensor([0, 0])
        >>> print(f"{policy_cost(logits, wrong, torch.zeros(6)):.3f}")
        4.018
        >>> print(f"{policy_cost(logits, right, torch.zeros(6)):.5f}")
        0.00009
    """
    if logits.shape[1] == 1:
        flat, targets = logits[:, 0], targets.flatten()
        solved = (flat > 0) == (targets > 0.5)
        losses = F.binary_cross_entropy_with_logits(flat, targets.to(flat.dtype), reduction="none")
    else:
        solved = logits.argmax(dim=1) == targets
        losses = F.cross_entropy(logits, targets, reduction="none")
    weights = torch.where(solved, _SOLVED_WEIGHT, 1.0).to(losses.dtype)
    cost: Tensor = (weights * losses).mean() + _NORM_WEIGHT * torch.linalg.vector_norm(policy)
    return cost
