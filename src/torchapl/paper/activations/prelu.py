"""Parametric rectified linear units (He et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from torchapl.paper.activations.base import ACTIVATIONS, Activation


@ACTIVATIONS.register
@dataclass(frozen=True)
class PReLU(Activation):
    """A learned slope left of 0 for each channel, 0.25 at the start; its authors let it not decay.

    Example:
        >>> PReLU().build((96, 32, 32))
        PReLU(num_parameters=96)
    """

    kind = "prelu"
    title = "PReLU"
    curves = nn.PReLU
    curves_decay = False

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return nn.PReLU(unit_shape[0])
