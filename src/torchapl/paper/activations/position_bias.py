"""The control for curves per position: their bias for every position without their shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl.paper.activations.base import ACTIVATIONS
from torchapl.paper.activations.fixed import LeakyReLU


class PositionBias(nn.Module):
    """Leaky ReLU of the input plus a learned number for each position of a map, 0 at the start.

    Example:
        >>> PositionBias((3, 4, 4), 0.25)(torch.full((1, 3, 4, 4), -1.0)).unique()
        tensor([-0.2500], grad_fn=<Unique2Backward0>)
    """

    def __init__(self, unit_shape: tuple[int, ...], negative_slope: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(unit_shape))
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input + self.bias, self.negative_slope)


@ACTIVATIONS.register
@dataclass(frozen=True)
class BiasedLeakyReLU(LeakyReLU):
    """``position-bias:0.25``, Leaky ReLU with a learned bias for each position.

    A curve per position is a bias per position, too: what it gains beyond this one is its shape.
    """

    kind = "position-bias"
    title = "Leaky ReLU, a bias per position"
    usual = "position-bias:0.25"
    # As curves do: a rate of their own, no decay.
    curves = PositionBias
    curves_decay = False

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return PositionBias(unit_shape, self.negative_slope)
