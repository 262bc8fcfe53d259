"""Activations that learn nothing: ReLU, Leaky ReLU, SiLU, GELU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from torchapl.paper.activations.base import ACTIVATIONS, Activation


@ACTIVATIONS.register
@dataclass(frozen=True)
class ReLU(Activation):
    """``max(0, x)``, the paper's baseline."""

    kind = "relu"
    title = "ReLU"

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return nn.ReLU()


@ACTIVATIONS.register
@dataclass(frozen=True)
class LeakyReLU(Activation):
    """A fixed slope left of 0, ``leaky:0.05``; it may be negative, as in the paper.

    Example:
        >>> LeakyReLU(0.2).build((274,))
        LeakyReLU(negative_slope=0.2)
    """

    kind = "leaky"
    title = "Leaky ReLU"
    # torch's own slope.
    usual = "leaky:0.01"

    negative_slope: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.negative_slope):
            raise ValueError(f"negative_slope must be finite, got {self.negative_slope}")

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return nn.LeakyReLU(self.negative_slope)


@ACTIVATIONS.register
@dataclass(frozen=True)
class SiLU(Activation):
    """``x * sigmoid(x)``, also called Swish."""

    kind = "silu"
    title = "SiLU"

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return nn.SiLU()


@ACTIVATIONS.register
@dataclass(frozen=True)
class GELU(Activation):
    """``x * Phi(x)``, with the distribution function of the normal distribution."""

    kind = "gelu"
    title = "GELU"

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return nn.GELU()
