"""Companion losses, or deep supervision (Lee et al. 2014)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor, nn

from torchapl.paper.rivals.losses import cross_entropy

Loss = Callable[[Tensor, Tensor], Tensor]


class Companions(nn.Module):
    r"""Linear classifiers on hidden maps, whose losses guide the layers below them.

    .. math::
        [t < T] \sum_m \ell(W_m x_m + c_m, y)

    with t the part of the training that is over: the companions are dropped at T. Their weights
    start from :math:`U(\pm\sqrt{3 / \text{inputs}})`, Caffe's "xavier".

    Args:
        map_shapes: Shape of every supervised map, without the batch.
        num_classes: Number of logits; 1 for two classes.
        loss: Mean loss of logits and targets.
        until: The T of the formula.

    Example:
        >>> companions = Companions([(4, 2, 2)], num_classes=10)
        >>> logits = companions([torch.randn(3, 4, 2, 2)])
        >>> companions.loss(logits, torch.tensor([0, 1, 2]), progress=0.5)
        tensor(0., grad_fn=<MulBackward0>)
    """

    def __init__(
        self,
        map_shapes: Sequence[tuple[int, ...]],
        num_classes: int,
        loss: Loss = cross_entropy,
        until: float = 0.25,
    ) -> None:
        super().__init__()
        if not map_shapes:
            raise ValueError("map_shapes must name at least one map")
        if not 0 <= until <= 1:
            raise ValueError(f"until must be from 0 to 1, got {until}")
        self.until, self._loss = until, loss
        self.heads = nn.ModuleList(nn.Linear(prod(shape), num_classes) for shape in map_shapes)
        for head in self.heads:
            weight = head.get_parameter("weight")
            bound = (3 / weight.shape[1]) ** 0.5
            nn.init.uniform_(weight, -bound, bound)
            nn.init.zeros_(head.get_parameter("bias"))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of every companion."""
        if len(maps) != len(self.heads):
            raise ValueError(f"maps must be {len(self.heads)} tensors, got {len(maps)}")
        return [head(map.flatten(1)) for head, map in zip(self.heads, maps, strict=True)]

    def loss(self, logits: Sequence[Tensor], targets: Tensor, progress: float) -> Tensor:
        """Return the sum of the companions' losses, 0 once they are dropped.

        Args:
            logits: What ``forward`` returned.
            targets: Class indices, or 0 and 1 for a single logit.
            progress: The t of the formula, 0 to 1.
        """
        if not 0 <= progress <= 1:
            raise ValueError(f"progress must be from 0 to 1, got {progress}")
        total = torch.stack([self._loss(output, targets) for output in logits]).sum()
        # Multiplied, not left out: processes that train together expect all gradients.
        return total * float(progress < self.until)
