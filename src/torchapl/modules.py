"""The module and its lazy form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

from torchapl import starts
from torchapl.functional import apl, as_int

Sharing = Literal["unit", "channel", "layer"]
Start = Callable[[Tensor, Tensor], None]


class APL(nn.Module):
    r"""Adaptive piecewise-linear units: an activation function learned for every unit.

    .. math::
        h(x) = \max(0, x) + \sum_{s=1}^{S} a_s \max(0, b_s - x)

    Frozen curves, the control of the paper, are ``APL(...).requires_grad_(False)``.

    Args:
        unit_shape: ``(C, H, W)`` gives every position of a feature map its own curve, ``C`` one to
            every channel, ``()`` one to the whole layer.
        num_hinges: The S of the formula.
        unit_dim: The axis of the input at which ``unit_shape`` starts: 1 for ``(N, C, ...)``, -1
            for units on the last axis, as in transformers.
        init: Fills slope and offset at the start, see :mod:`torchapl.init`.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Shape:
        Input and output: any shape that has ``unit_shape`` at ``unit_dim``.

    Attributes:
        slope: The :math:`a_s`, learnable, of shape ``(num_hinges, *unit_shape)``.
        offset: The :math:`b_s`, learnable, of the same shape.

    Example:
        >>> unit = APL(96, num_hinges=2)
        >>> unit(torch.randn(8, 96, 32, 32)).shape
        torch.Size([8, 96, 32, 32])
    """

    slope: nn.Parameter
    offset: nn.Parameter

    def __init__(
        self,
        unit_shape: int | Sequence[int] = (),
        num_hinges: int = 2,
        *,
        unit_dim: int = 1,
        init: Start = starts.leaky_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = _parameter_shape(num_hinges, unit_shape)
        self.unit_dim = as_int("unit_dim", unit_dim)
        self.init = init
        self.slope = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.offset = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @property
    def num_hinges(self) -> int:
        """The number S of hinges of each unit."""
        return self.slope.shape[0]

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """The shape of the part of the input whose elements have curves of their own."""
        return tuple(self.slope.shape[1:])

    def reset_parameters(self) -> None:
        """Put the curves back to their start."""
        self.init(self.slope, self.offset)

    def forward(self, input: Tensor) -> Tensor:
        return apl(input, self.slope, self.offset, unit_dim=self.unit_dim)

    def extra_repr(self) -> str:
        return f"{self.unit_shape}, num_hinges={self.num_hinges}, unit_dim={self.unit_dim}"


class LazyAPL(LazyModuleMixin, APL):  # type: ignore[misc]  # both define cls_to_become
    """An :class:`APL` that takes its unit shape from the first input, and is one from then on.

    Args:
        num_hinges: The S of the formula.
        per: ``"unit"`` gives every position from ``unit_dim`` on its own curve, ``"channel"`` one
            to every index of ``unit_dim``, ``"layer"`` one to the whole input.
        unit_dim: The axis of the channels.
        init: Fills slope and offset at the start, see :mod:`torchapl.init`.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), LazyAPL(per="unit"))
        >>> net(torch.randn(1, 3, 8, 8)).shape
        torch.Size([1, 8, 6, 6])
        >>> net[1]
        APL((8, 6, 6), num_hinges=2, unit_dim=1)
    """

    cls_to_become = APL  # type: ignore[assignment]  # the mixin declares None

    def __init__(
        self,
        num_hinges: int = 2,
        per: Sharing = "channel",
        *,
        unit_dim: int = 1,
        init: Start = starts.leaky_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if per not in ("unit", "channel", "layer"):
            raise ValueError(f"per must be 'unit', 'channel' or 'layer', got {per!r}")
        # The stand-in of one unit is not started: that would consume random numbers.
        super().__init__((), num_hinges, unit_dim=unit_dim, init=_leave)
        self.init = init
        self.per = per
        self._num_hinges = super().num_hinges
        # torch's stub hides both the arguments and that it is a Parameter.
        lazy: Any = UninitializedParameter
        self.slope = lazy(device=device, dtype=dtype)
        self.offset = lazy(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Put the curves to their start, once there are any."""
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the unit shape from ``input``."""
        # A state dict loaded before the first input has brought the parameters already.
        if not self.has_uninitialized_params():
            return
        if self.per != "layer" and not -input.dim() <= self.unit_dim < input.dim():
            raise ValueError(
                f"unit_dim={self.unit_dim} is not an axis of an input of shape {tuple(input.shape)}"
            )
        own = () if self.per == "layer" else tuple(input.shape[self.unit_dim :])
        unit_shape = own[:1] if self.per == "channel" else own
        with torch.no_grad():
            for parameter in (self.slope, self.offset):
                if isinstance(parameter, UninitializedParameter):
                    parameter.materialize((self._num_hinges, *unit_shape))
            self.reset_parameters()

    def extra_repr(self) -> str:
        return f"num_hinges={self._num_hinges}, per={self.per!r}, unit_dim={self.unit_dim}"


def _leave(slope: Tensor, offset: Tensor) -> None:
    pass


def _parameter_shape(num_hinges: int, unit_shape: int | Sequence[int]) -> tuple[int, ...]:
    num_hinges = as_int("num_hinges", num_hinges)
    if num_hinges < 1:
        raise ValueError(f"num_hinges must be at least 1, got {num_hinges}")
    sizes = unit_shape if isinstance(unit_shape, Iterable) else (unit_shape,)
    try:
        shape = tuple(as_int("a size", size) for size in sizes)
    except TypeError:
        raise TypeError(
            f"unit_shape must be an int or a sequence of ints, got {unit_shape!r}"
        ) from None
    if any(size < 0 for size in shape):
        raise ValueError(f"unit_shape must not be negative, got {shape}")
    return (num_hinges, *shape)
