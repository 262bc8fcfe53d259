"""Adaptive piecewise-linear units, the paper's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from torchapl import APL, init
from torchapl.modules import Sharing, Start
from torchapl.optim import Steps
from torchapl.paper.activations.base import ACTIVATIONS, Activation

StartName = Literal[
    "authors", "relu", "leaky", "leaky_silu", "silu", "gelu", "mish", "squared_relu"
]

_LEAKY = {"leaky": init.leaky_, "leaky_silu": init.leaky_silu_}
# The paper has at most 5; a typing error should not ask for gigabytes.
_MOST_HINGES = 1000


@ACTIVATIONS.register
@dataclass(frozen=True)
class AdaptivePiecewiseLinear(Activation):
    """APL units, ``apl:S`` with options as in ``apl:2:channel:leaky``.

    Bare ``apl`` is the library's default, with a curve for each channel.

    Args:
        num_hinges: The S.
        per: What shares one curve; ``"unit"`` as in the paper.
        start: Starting curves, see :mod:`torchapl.init`.
        slope_bound: The r of the authors' start, see :func:`torchapl.init.authors_`.
        leak: The slope on the left of the starts ``"leaky"`` and ``"leaky_silu"``; their own by
            default.
        steps: How optimisers move the slopes: each by itself, as the authors did, or by segments,
            see :mod:`torchapl.segments`.
        frozen: Leave the curves at their start, the paper's control.

    Example:
        >>> AdaptivePiecewiseLinear(num_hinges=2).build((96, 32, 32))
        APL((96, 32, 32), num_hinges=2, unit_dim=1)
    """

    kind = "apl"
    title = "APL"
    usual = "apl:8:channel:leaky_silu:segments"
    curves = APL

    num_hinges: int = 1
    per: Sharing = "unit"
    start: StartName = "authors"
    slope_bound: float | None = field(default=None, metadata={"text": "bound"})
    leak: float | None = None
    steps: Steps = "slopes"
    frozen: bool = False

    def __post_init__(self) -> None:
        for name, choices in (("per", Sharing), ("start", StartName), ("steps", Steps)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(
                    f"{name} must be one of {', '.join(get_args(choices))}, "
                    f"got {getattr(self, name)!r}"
                )
        if not 1 <= self.num_hinges <= _MOST_HINGES:
            raise ValueError(
                f"num_hinges must be between 1 and {_MOST_HINGES}, got {self.num_hinges}"
            )
        if self.slope_bound is not None and not 0 < self.slope_bound < math.inf:
            raise ValueError(f"slope_bound must be positive and finite, got {self.slope_bound}")
        if self.leak is not None and not (self.start in _LEAKY and math.isfinite(self.leak)):
            raise ValueError(
                f"leak must be finite, for the starts {' and '.join(_LEAKY)}, "
                f"got {self.leak} for {self.start}"
            )

    @property
    def is_learned(self) -> bool:
        return not self.frozen

    def build(self, unit_shape: tuple[int, ...]) -> APL:
        shapes = {"unit": unit_shape, "channel": unit_shape[:1], "layer": ()}
        start: Start = init.STARTS[self.start]
        if self.start == "authors":
            start = partial(init.authors_, slope_bound=self.slope_bound)
        elif self.leak is not None:
            start = partial(_LEAKY[self.start], negative_slope=self.leak)
        unit = APL(shapes[self.per], self.num_hinges, init=start)
        return unit.requires_grad_(not self.frozen)
