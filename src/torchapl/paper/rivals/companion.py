"""Companion losses, or deep supervision (Lee et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Companions(nn.Module):
    r"""Linear classifiers on hidden maps, whose losses guide the layers below them.

    .. math::
        \alpha \, (1 - t) \sum_m \ell(W_m x_m + c_m, y)

    with t the part of the training that is over: their weight fades to 0. The original takes the
    positive part of each loss less a threshold; here the threshold is 0.

    Args:
        map_shapes: Shape of every supervised map, without the batch.
        num_classes: Number of logits; 1 means sigmoid cross-entropy.
        weight: The :math:`\alpha`.

    Example:
        >>> companions = Companions([(4, 2, 2)], num_classes=10)
        >>> logits = companions([torch.randn(3, 4, 2, 2)])
        >>> companions.loss(logits, torch.tensor([0, 1, 2]), progress=1.0)
        tensor(0., grad_fn=<MulBackward0>)
    """

    def __init__(
        self, map_shapes: Sequence[tuple[int, ...]], num_classes: int, weight: float = 0.1
    ) -> None:
        super().__init__()
        if not map_shapes:
            raise ValueError("map_shapes must name at least one map")
        if not weight >= 0:
            raise ValueError(f"weight must not be negative, got {weight}")
        self.weight = weight
        self.heads = nn.ModuleList(nn.Linear(prod(shape), num_classes) for shape in map_shapes)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of every companion."""
        if len(maps) != len(self.heads):
            raise ValueError(f"maps must be {len(self.heads)} tensors, got {len(maps)}")
        return [head(map.flatten(1)) for head, map in zip(self.heads, maps, strict=True)]

    def loss(self, logits: Sequence[Tensor], targets: Tensor, progress: float) -> Tensor:
        """Return the weighted sum of the companions' losses.

        Args:
            logits: What ``forward`` returned.
            targets: Class indices, or 0 and 1 for a single logit.
            progress: The t of the formula, 0 to 1.
        """
        if not 0 <= progress <= 1:
            raise ValueError(f"progress must be from 0 to 1, got {progress}")
        total = torch.stack([classification_loss(part, targets) for part in logits]).sum()
        return self.weight * (1 - progress) * total


def classification_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean softmax cross-entropy, or sigmoid cross-entropy of a single logit.

    It is computed in at least float32, whatever precision a network's layers run in.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], targets.flatten().to(logits.dtype))
    return F.cross_entropy(logits, targets)
