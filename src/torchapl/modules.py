"""The modules: the unit, its lazy form, and the unit with an affine map around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

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
        num_hinges: The S of the formula. Numbers from 5 on serve about equally well.
        unit_dim: The axis of the input at which ``unit_shape`` starts: 1 for ``(N, C, ...)``, -1
            for units on the last axis, as in transformers. 1 by default, with a warning where
            ``(N, C, L)`` might as well be ``(B, T, D)``.
        init: The curve at the start: ``"leaky_silu"``, ``"silu"``, ``"gelu"``, ``"mish"``,
            ``"squared_relu"``, ``"leaky"``, ``"relu"`` or ``"authors"``, see
            :mod:`torchapl.init`, or any function that fills slope and offset. By default
            ``"gelu"`` with ``unit_dim=-1``, else ``"leaky_silu"``: each serves well in such
            networks.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Shape:
        Input and output: any shape that has ``unit_shape`` at ``unit_dim``.

    Attributes:
        slope: The :math:`a_s`, learnable, of shape ``(num_hinges, *unit_shape)``. A hinge is
            :math:`\max(0, b_s - x)`, which falls: where it is active the curve's own slope is
            smaller by :math:`a_s`. Leaky ReLU with a slope of 0.25 has :math:`a_1 = -0.25`.
        offset: The :math:`b_s`, learnable, of the same shape.

    Example:
        >>> unit = APL(96)
        >>> unit(torch.randn(8, 96, 32, 32)).shape
        torch.Size([8, 96, 32, 32])
        >>> APL(2, init="relu").left_slope
        tensor([0., 0.])
    """

    slope: nn.Parameter
    offset: nn.Parameter

    def __init__(
        self,
        unit_shape: int | Sequence[int] = (),
        num_hinges: int = 8,
        *,
        unit_dim: int | None = None,
        init: Start | str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = _parameter_shape(num_hinges, unit_shape)
        self.unit_dim = 1 if unit_dim is None else as_int("unit_dim", unit_dim)
        self._axis_given = unit_dim is not None
        self.init = _start(init, self.unit_dim)
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

    @property
    def left_slope(self) -> Tensor:
        """The curves' own slope left of all hinges; ``curves.segment_slopes`` has all of them."""
        return 0.0 - self.slope.detach().sum(0)

    def reset_parameters(self) -> None:
        """Put the curves back to their start."""
        self.init(self.slope, self.offset)

    def forward(self, input: Tensor) -> Tensor:
        unit_dim = self.unit_dim if self._axis_given else None
        parameters: dict[str, Any] = self._parameters
        try:
            # nn.Module finds an attribute only after two searches in vain.
            slope, offset = parameters["slope"], parameters["offset"]
        except KeyError:
            # Parametrised or pruned.
            slope, offset = self.slope, self.offset
        return apl(input, slope, offset, unit_dim=unit_dim)

    def extra_repr(self) -> str:
        return f"{self.unit_shape}, num_hinges={self.num_hinges}, unit_dim={self.unit_dim}"


class LazyAPL(LazyModuleMixin, APL):  # type: ignore[misc]  # both define cls_to_become
    """An :class:`APL` that takes its unit shape from the first input, and is one from then on.

    Args:
        num_hinges: The S of the formula.
        per: ``"unit"`` gives every position from ``unit_dim`` on its own curve, ``"channel"`` one
            to every index of ``unit_dim``, ``"layer"`` one to the whole input.
        unit_dim: The axis of the channels, 1 by default; an input of three axes, which may be
            ``(N, C, L)`` or ``(B, T, D)``, asks for it.
        init: As in :class:`APL`.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), LazyAPL(per="unit"))
        >>> net(torch.randn(1, 3, 8, 8)).shape
        torch.Size([1, 8, 6, 6])
        >>> net[1]
        APL((8, 6, 6), num_hinges=8, unit_dim=1)
    """

    cls_to_become = APL  # type: ignore[assignment]  # the mixin declares None

    def __init__(
        self,
        num_hinges: int = 8,
        per: Sharing = "channel",
        *,
        unit_dim: int | None = None,
        init: Start | str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if per not in ("unit", "channel", "layer"):
            raise ValueError(f"per must be 'unit', 'channel' or 'layer', got {per!r}")
        # The stand-in of one unit is not started: that would consume random numbers.
        super().__init__((), num_hinges, unit_dim=unit_dim, init=_leave)
        self.init = _start(init, self.unit_dim)
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
        if self.per != "layer" and input.dim() == 3 and not self._axis_given:
            raise ValueError(
                f"an input of shape {tuple(input.shape)} does not tell which axis has the curves: "
                "give unit_dim=1 if it is (N, C, L), unit_dim=-1 if it is (B, T, D)"
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


class AffineAPL(nn.Module):
    r"""Any continuous piecewise-linear function: an APL unit between two affine maps.

    .. math::
        f(x) = w\,h(x - c) + k\,x + z

    An APL unit is x on the right. A network's next layer turns that into any other line but a
    horizontal one, as the paper argues: :math:`w\,h(x) + z` has the right slope w, and w = 0 would
    leave nothing of the curve. Nor does :math:`w\,h(vx + c) + z` help: one of its ends always rises
    or falls, so it is never a bounded function such as ReLU6 or hardtanh. A multiple k of the input
    is the one number that is missing. With the centre c the kink of max(0, x) falls on a knot of f,
    which saves up to two hinges: K knots take K - 1 of them.

    The four numbers are buffers: the layers around the unit learn such maps already.

    Args:
        unit_shape: As in :class:`APL`.
        num_hinges: As in :class:`APL`.
        unit_dim: As in :class:`APL`.
        init: As in :class:`APL`.
        scale: The w above.
        shift: The z.
        skip: The k.
        center: The c.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Example:
        >>> hardtanh = curves.AffineAPL(num_hinges=1, scale=1.0, skip=-1.0, center=-1.0)
        >>> with torch.no_grad():
        ...     _ = hardtanh.unit.slope.fill_(-1.0), hardtanh.unit.offset.fill_(2.0)
        >>> hardtanh(torch.tensor([-3.0, 0.5, 3.0])).tolist()
        [-1.0, 0.5, 1.0]
    """

    scale: Tensor
    shift: Tensor
    skip: Tensor
    center: Tensor

    def __init__(
        self,
        unit_shape: int | Sequence[int] = (),
        num_hinges: int = 8,
        *,
        unit_dim: int | None = None,
        init: Start | str | None = None,
        scale: float = 1.0,
        shift: float = 0.0,
        skip: float = 0.0,
        center: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.unit = APL(
            unit_shape, num_hinges, unit_dim=unit_dim, init=init, device=device, dtype=dtype
        )
        for name, value in (("scale", scale), ("shift", shift), ("skip", skip), ("center", center)):
            self.register_buffer(name, torch.tensor(value, dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        curve: Tensor = self.scale * self.unit(input - self.center)
        return curve + self.skip * input + self.shift

    def extra_repr(self) -> str:
        numbers = ("scale", "shift", "skip", "center")
        return ", ".join(f"{name}={_shown(getattr(self, name))}" for name in numbers)


def _shown(number: Tensor) -> str:
    # On the meta device there are no values.
    return "?" if number.is_meta else f"{number.item():.6g}"


Unit = APL | AffineAPL


def inner_unit(unit: Unit) -> APL:
    """Return the APL unit that is, or is inside, ``unit``."""
    if isinstance(unit, AffineAPL):
        return unit.unit
    if isinstance(unit, APL):
        return unit
    raise TypeError(f"unit must be an APL or AffineAPL module, got {type(unit).__name__}")


def default_start(*, in_transformer: bool = False, normalised: bool = False) -> str:
    """Return the name of the start that learned best in networks of a kind, see docs/recipe.md.

    Args:
        in_transformer: Whether the residual path passes signals on, so that a leak is of no use.
        normalised: Whether a normalisation feeds the unit, which makes a leak needless too.
    """
    if in_transformer:
        return "gelu"
    return "silu" if normalised else "leaky_silu"


def _start(init: Start | str | None, unit_dim: int) -> Start:
    if callable(init):
        return init
    if init is None:
        init = default_start(in_transformer=unit_dim == -1)
    # By name, because the starts need the modules and not the other way round.
    starts: dict[str, Start] = import_module("torchapl.init").STARTS
    if isinstance(init, str) and init in starts:
        return starts[init]
    names = ", ".join(map(repr, starts))
    message = (
        f"init must be one of {names}, or a function that fills slope and offset, got {init!r}"
    )
    raise ValueError(message) if isinstance(init, str) else TypeError(message)


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
