"""The unit that starts as a given activation function."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl import starts
from torchapl.curves.affine import AffineAPL
from torchapl.curves.fit import fit
from torchapl.modules import APL
from torchapl.theorem import AffineForm, affine_form

Unit = APL | AffineAPL
Interval = tuple[float, float]


@dataclass(frozen=True)
class Start:
    """Fills slope and offset with given hinges; a class, so that a model with it can be pickled."""

    slope: Tensor  # (S,), or (S, C) for a curve of its own for each channel
    offset: Tensor  # (S,)

    @torch.no_grad()
    def __call__(self, slope: Tensor, offset: Tensor) -> None:
        for source, target in ((self.slope, slope), (self.offset, offset)):
            trailing = (1,) * (target.dim() - source.dim())
            target.copy_(source.reshape(*source.shape, *trailing).expand_as(target))


@dataclass(frozen=True)
class Geometry:
    """How the units of one place are laid out."""

    unit_shape: tuple[int, ...]
    unit_dim: int
    num_hinges: int
    dtype: torch.dtype
    device: torch.device

    def build(self, form: AffineForm | None = None, *, affine: bool = False) -> Unit:
        """Return units with the curve ``form``, by default ReLU, in an affine map if needed."""
        start = starts.relu_ if form is None else Start(form.slope, form.offset)
        if form is None or form.is_plain:
            numbers = {}
        else:
            affine = True
            numbers = dict(zip(("scale", "shift", "skip", "center"), form[2:], strict=True))
        kind = AffineAPL if affine else APL
        return kind(
            self.unit_shape,
            self.num_hinges,
            unit_dim=self.unit_dim,
            init=start,
            device=self.device,
            dtype=self.dtype,
            **numbers,
        )


class Forms:
    """Curves that are given functions, exactly where that is possible and else fitted.

    Fits are kept: a model calls one function in many places, on similar ranges.
    """

    def __init__(self, num_hinges: int) -> None:
        self._num_hinges = num_hinges
        self._fits: dict[object, AffineForm] = {}

    def of(self, function: nn.Module, interval: Interval) -> AffineForm:
        """Return the curve of an elementwise module; a fit is made for the interval."""
        if isinstance(function, nn.ReLU):
            return _leaky(torch.zeros((), dtype=torch.float64), self._num_hinges)
        if isinstance(function, nn.LeakyReLU):
            slope = torch.tensor(function.negative_slope, dtype=torch.float64)
            return _leaky(slope, self._num_hinges)
        if isinstance(function, nn.PReLU):
            return _leaky(function.weight.detach().cpu().double(), self._num_hinges)
        # ReLU6 is a Hardtanh.
        if isinstance(function, nn.Hardtanh):
            low, high = float(function.min_val), float(function.max_val)
            return _exact([low, high], [0.0, 1.0, 0.0], high, self._num_hinges)
        if isinstance(function, nn.Softshrink):
            width = float(function.lambd)
            return _exact([-width, width], [1.0, 0.0, 1.0], -width, self._num_hinges)
        return self._fit(function, _rounded(_proper(interval)))

    def _fit(self, function: nn.Module, interval: Interval) -> AffineForm:
        settings = {name: repr(value) for name, value in vars(function).items() if name[0] != "_"}
        key = (type(function), frozenset(settings.items()), interval)
        if key not in self._fits:
            self._fits[key] = fit(function, self._num_hinges, interval).form
        return self._fits[key]


@torch.no_grad()
def largest_error(
    form: AffineForm,
    function: nn.Module,
    interval: Interval,
    *,
    parameter_dtype: torch.dtype,
    input_dtype: torch.dtype,
) -> float:
    """Return the largest difference of unit and function on the interval, rounding included."""
    low, high = _proper(interval)
    channels = tuple(form.slope.shape[1:])
    unit = Geometry(channels, 1, form.slope.shape[0], parameter_dtype, torch.device("cpu")).build(
        form
    )
    # Between kinks a fit errs most somewhere in the middle, else at a kink.
    kinks = torch.cat([form.offset + form.center, torch.tensor([form.center])]).clamp(low, high)
    grid = torch.cat([torch.linspace(low, high, 16_385, dtype=torch.float64), kinks])
    x = grid.to(input_dtype)[:, None].expand(-1, *(channels or (1,)))
    if isinstance(function, nn.PReLU):
        reference = F.prelu(x, function.weight.detach().to(x.device, x.dtype))
    else:
        reference = function(x.clone())
    return float((unit(x).double() - reference.double()).abs().max())


def _leaky(negative_slope: Tensor, num_hinges: int) -> AffineForm:
    """Return the curve with the given slopes left of 0, one or one for each channel."""
    slope = torch.empty(num_hinges, *negative_slope.squeeze().shape, dtype=torch.float64)
    offset = torch.empty(num_hinges, dtype=torch.float64)
    starts.relu_(slope[:, 0] if slope.dim() > 1 else slope, offset)
    slope.zero_()[0] = -negative_slope.squeeze()
    return AffineForm(slope, offset, 1.0, 0.0, 0.0, 0.0)


def _exact(
    knots: list[float], slopes: list[float], intercept: float, num_hinges: int
) -> AffineForm:
    form = affine_form(
        torch.tensor(knots, dtype=torch.float64),
        torch.tensor(slopes, dtype=torch.float64),
        intercept,
    )
    # Further hinges have no slope and places of their own.
    places = torch.arange(1, 2 * num_hinges + 1, dtype=torch.float64) / -num_hinges
    free = places[~torch.isin(places, form.offset)][: num_hinges - form.slope.numel()]
    return form._replace(
        slope=torch.cat([form.slope, torch.zeros_like(free)]),
        offset=torch.cat([form.offset, free]),
    )


def _proper(interval: Interval) -> Interval:
    low, high = interval
    # An example input of one value says little; a fit needs some width.
    return (low, high) if high - low > 1e-3 else (low - 0.5, high + 0.5)


def _rounded(interval: Interval) -> Interval:
    """Widen an interval by an eighth at most, so that layers with similar inputs share a fit."""
    low, high = interval
    step = 2.0 ** (math.floor(math.log2(high - low)) - 3)
    return (math.floor(low / step) * step, math.ceil(high / step) * step)
