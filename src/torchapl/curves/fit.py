"""The best unit for a given function: hinge positions and slopes together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchapl.curves import squares, tube
from torchapl.form import build, with_spare_hinges
from torchapl.modules import Unit
from torchapl.theorem import AffineForm, affine_form

Norm = Literal["uniform", "squares"]
ScalarFunction = Callable[[Tensor], Tensor]

# A hinge right of the interval makes its last segment something other than x; this many widths away
# at most, so that slopes stay moderate.
REACH = 4.0
# A tolerance that takes more hinges is refused: such a unit is slow, and hardly what was meant.
MOST_HINGES = 128
# Without a tolerance a jump by this part of a function's range is refused; steps of functions that
# compute in float32 are far smaller.
JUMP = 1e-4
# More jumps than hinges could follow are the steps of a function that computes in 16 bits.
MOST_JUMPS = MOST_HINGES // 2
# All tensors are on the CPU, whatever `with torch.device(...)` says: on meta they have no values.
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Fit:
    """A unit that approximates a function: ``scale * h(x - center) + skip * x + shift``.

    Attributes:
        slope: The hinges' slopes of h, of shape ``(S,)``, float64.
        offset: Their positions.
        scale: 1 for a plain unit.
        shift: 0 for a plain unit.
        skip: 0 for a plain unit.
        center: 0 for a plain unit.
        interval: Where function and unit were compared.
        max_error: Largest difference there, at 20,001 points and the kinks; a jump that is too
            small to be refused may add half of its height.
        rms_error: Root of the mean squared difference there.
    """

    slope: Tensor
    offset: Tensor
    scale: float
    shift: float
    skip: float
    center: float
    interval: tuple[float, float]
    max_error: float
    rms_error: float

    @property
    def form(self) -> AffineForm:
        """The numbers of the curve alone."""
        return AffineForm(self.slope, self.offset, self.scale, self.shift, self.skip, self.center)

    def module(
        self,
        unit_shape: int | Sequence[int] = (),
        unit_dim: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Unit:
        """Return units that all start as this curve; an :class:`APL` wherever that suffices."""
        return build(self.form, unit_shape, unit_dim, device=device, dtype=dtype)


def fit(
    function: ScalarFunction,
    num_hinges: int | None,
    interval: tuple[float, float],
    *,
    norm: Norm = "uniform",
    affine: bool | None = None,
    tolerance: float | None = None,
    accuracy: float = 1e-4,
) -> Fit:
    """Return the unit that is nearest to a function on an interval, or near enough.

    Positions and slopes of the hinges are optimised together. The result of the uniform norm is the
    global optimum up to the resolution of the samples; that of least squares is the best of several
    descents. Outside the interval the unit continues along straight lines, a plain one eventually
    along x.

    Args:
        function: Maps a float64 tensor of any shape to one of the same shape, element by element.
            It must be continuous: a jump by more than twice the tolerance, or without one by more
            than a part in 10,000 of the function's range, is refused. More than 64 of them are
            taken for rounding.
        num_hinges: The S of the unit; None takes as few as the tolerance allows.
        interval: Where the function is approximated.
        norm: ``"uniform"`` minimises the largest error, ``"squares"`` the mean squared error.
        affine: Whether the unit may have an affine map around it (:class:`AffineAPL`), which gives
            it three more numbers and any right slope. By default only where the function does not
            itself approach x on the right.
        tolerance: The largest error that is acceptable, if any: an error is raised where
            ``num_hinges``, or 128, are too few.
        accuracy: By about which part of it the error may exceed the smallest possible one, of the
            uniform norm with a given number of hinges: 0.01 is some five times as fast as the
            default.

    Example:
        >>> silu = fit(nn.functional.silu, num_hinges=4, interval=(-8.0, 8.0))
        >>> print(f"{silu.max_error:.3f}")
        0.050
        >>> silu.module(unit_shape=64)
        APL((64,), num_hinges=4, unit_dim=1)
        >>> fit(nn.functional.silu, None, (-8.0, 8.0), tolerance=0.01).module()
        APL((), num_hinges=10, unit_dim=1)
        >>> fit(torch.tanh, num_hinges=4, interval=(-3.0, 3.0)).module().scale.item() != 1.0
        True
    """
    _check_arguments(num_hinges, interval, norm, tolerance, accuracy)
    if (jump := jump_of(function, interval, tolerance or 0.0)) is not None:
        raise ValueError(
            f"function is {jump}, and units are continuous; give an interval without the jump"
        )
    plain = _approaches_x(function, interval) if affine is None else not affine

    def target(x: Tensor) -> Tensor:
        # Less max(0, x) a plain unit is the sum of its hinges.
        return _values(function, x) - (x.clamp(min=0) if plain else 0.0)

    if num_hinges is None:
        pieces = _within(target, interval, tolerance or 0.0, plain)
        num_hinges = max(1, len(pieces.knots) if plain else len(pieces.knots) - 1)
    else:
        pieces = _uniform(target, interval, num_hinges, plain, accuracy)
    if norm == "squares":
        pieces = _squares(target, interval, num_hinges, plain, pieces.knots)
    knots, slopes = _without_rounding(
        pieces, interval, float(target(_grid(interval, 101)).abs().max())
    )
    if plain:
        form = AffineForm(slopes.diff(), knots, 1.0, 0.0, 0.0, 0.0)
    else:
        form = affine_form(knots, slopes, pieces.intercept)
    form = with_spare_hinges(form, num_hinges, interval)
    max_error, rms_error = _errors(function, form, interval)
    if tolerance is not None and max_error > tolerance:
        raise ValueError(
            f"num_hinges={num_hinges} are too few for tolerance={tolerance:g} on {interval}: "
            f"the best unit errs by {max_error:.3g}"
        )
    return Fit(*form, interval=interval, max_error=max_error, rms_error=rms_error)


class _Pieces(NamedTuple):
    """A continuous piecewise-linear function; the intercept is that of the last segment."""

    knots: Tensor
    slopes: Tensor
    intercept: float

    def evaluate(self, x: Tensor) -> Tensor:
        bends = (self.slopes.diff() * (self.knots - x[:, None]).clamp(min=0)).sum(-1)
        return self.slopes[-1] * x + self.intercept + bends


def _grid(interval: tuple[float, float], count: int) -> Tensor:
    x = torch.linspace(*interval, count, dtype=torch.float64, device=CPU)
    if interval[0] < 0 < interval[1]:
        # The unit's own kink is at 0: the error may be largest there.
        x[x.abs().argmin()] = 0.0
    return x


def _values(function: ScalarFunction, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = function(x.clone())  # it may work in place
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise ValueError(
            "function must map a tensor to a tensor of the same shape, gave "
            f"{tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__} for {tuple(x.shape)}"
        )
    if not y.isfinite().all():
        where = float(x[~y.isfinite()][0])
        raise ValueError(f"function must be finite on the interval, it is not at {where:g}")
    return y.to(torch.float64)


def jump_of(
    function: ScalarFunction, interval: tuple[float, float], tolerance: float
) -> str | None:
    """Say where a function jumps, if it does: halve gaps until no two samples differ by much."""
    x = _grid(interval, 2049)
    y = _values(function, x)
    allowed = 2 * tolerance or JUMP * float(y.max() - y.min())
    # Of every gap its left and its right end.
    x, y = (torch.stack([values[:-1], values[1:]]) for values in (x, y))
    for _ in range(60):
        steep = y.diff(dim=0)[0].abs() > allowed
        x, y = x[:, steep], y[:, steep]
        if not steep.any():
            return None
        middle = x.mean(0)
        value = _values(function, middle)
        on_left = (value - y[0]).abs() > (y[1] - value).abs()
        x = torch.stack([torch.where(on_left, x[0], middle), torch.where(on_left, middle, x[1])])
        y = torch.stack([torch.where(on_left, y[0], value), torch.where(on_left, value, y[1])])
    if x.shape[1] > MOST_JUMPS:
        return None
    worst = int(y.diff(dim=0).abs().argmax())
    return (
        f"not continuous near x = {float(x[1, worst]):g}: it jumps from {float(y[0, worst]):g} to "
        f"{float(y[1, worst]):g}"
    )


def _approaches_x(function: ScalarFunction, interval: tuple[float, float]) -> bool:
    """Tell whether the function is x far right of the interval, like an APL unit."""
    width = interval[1] - interval[0]
    far = max(interval[1], 0.0) + 100 * width * _double([1.0, 2.0])
    with torch.no_grad():
        return bool(((function(far.clone()) - far).abs() <= 1e-3 * width).all())


def _uniform(
    target: ScalarFunction,
    interval: tuple[float, float],
    num_hinges: int,
    plain: bool,
    accuracy: float,
) -> _Pieces:
    x = _grid(interval, max(2049, 64 * num_hinges + 1))
    y = target(x)
    size = float(y.abs().max())
    # Of the bisection: 1e-6 by default.
    resolution = accuracy**1.5
    # Few samples bound the error from below, and are enough for a function that is piecewise
    # linear itself.
    low, lines = _best_lines(
        x[::16], y[::16], num_hinges, (0.0, size), plain, resolution, between=False
    )
    pieces = _pieces(lines)
    error = float((y - pieces.evaluate(x)).abs().max())
    if error <= 1e-11 * size:
        return pieces
    x = _samples(target, x[::16], max(accuracy * low, 0.03 * accuracy * error), most=len(x))
    bounds = (0.999 * low, max(1.01 * low, 1e-9 * size))
    _, lines = _best_lines(x, target(x), num_hinges, bounds, plain, resolution, between=True)
    return _pieces(lines)


def _within(
    target: ScalarFunction, interval: tuple[float, float], tolerance: float, plain: bool
) -> _Pieces:
    """Return the fewest pieces that err by at most the tolerance."""
    samples = _samples(target, _grid(interval, 513), 0.025 * tolerance, most=20_000)
    x, y, start = _tube(samples, target(samples), plain)
    between = (samples[1:] + samples[:-1]) / 2
    # What the samples do not show takes a part of the tolerance, at kinks a larger one. The value
    # at 0 is kept: most functions are 0 there, and a layer that sees next to nothing passes it on.
    for share in (0.94, 0.9, 0.8):
        width = torch.where(x == 0, 1e-6, share) * tolerance
        lower, upper = (y - width).tolist(), (y + width).tolist()
        if start is not None:
            lower[0] = upper[0] = 0.0
        links = MOST_HINGES + (1 if plain else 2)
        lines = tube.fewest_links(x.tolist(), lower, upper, limit=links, start=start)
        if lines is None:
            raise ValueError(
                f"tolerance={tolerance:g} takes more than {MOST_HINGES} hinges on {interval}: give "
                "a larger one, or num_hinges"
            )
        pieces = _pieces(_mirrored(lines) if plain else lines)
        probes = torch.cat([between, pieces.knots.clamp(*interval), _grid(interval, 20_001)])
        if float((pieces.evaluate(probes) - target(probes)).abs().max()) < tolerance:
            break
    return pieces


def _samples(target: ScalarFunction, x: Tensor, allowed: float, most: int) -> Tensor:
    """Add points until the function is straight between them, up to the allowed error."""
    for _ in range(24):  # a jump is never straight
        if len(x) >= most:
            break
        middle = (x[1:] + x[:-1]) / 2
        y = target(x)
        bent = (target(middle) - (y[1:] + y[:-1]) / 2).abs() > allowed
        if not bent.any():
            break
        x = torch.cat([x, middle[bent]]).sort().values
    return x


def _tube(x: Tensor, y: Tensor, plain: bool) -> tuple[Tensor, Tensor, tube.Line | None]:
    """Return the samples as the tube sees them, and the line that it begins with.

    Less max(0, x) a plain unit is 0 on the right. There, mirrored, begins the way through the tube,
    with a gate far outside that keeps the first hinge within reach.
    """
    if not plain:
        return x, y, None
    far = x[-1] + REACH * (x[-1] - x[0])
    return (
        torch.cat([-far[None], -x.flip(0)]),
        torch.cat([y.new_zeros(1), y.flip(0)]),
        tube.Line(0.0, 0.0),
    )


def _mirrored(lines: list[tube.Line]) -> list[tube.Line]:
    return [tube.Line(-slope, intercept) for slope, intercept in reversed(lines)]


def _best_lines(
    x: Tensor,
    y: Tensor,
    num_hinges: int,
    bounds: tuple[float, float],
    plain: bool,
    resolution: float,
    *,
    between: bool,
) -> tuple[float, list[tube.Line]]:
    x, y, start = _tube(x, y, plain)
    error, lines = tube.best_lines(
        x.tolist(),
        y.tolist(),
        links=num_hinges + (1 if plain else 2),
        bounds=bounds,
        resolution=resolution,
        between=between,
        start=start,
    )
    return error, _mirrored(lines) if plain else lines


def _pieces(lines: list[tube.Line]) -> _Pieces:
    knots = [(f.intercept - g.intercept) / (g.slope - f.slope) for f, g in pairwise(lines)]
    slopes = [line.slope for line in lines]
    return _Pieces(_double(knots), _double(slopes), lines[-1].intercept)


def _squares(
    target: ScalarFunction,
    interval: tuple[float, float],
    num_hinges: int,
    plain: bool,
    start: Tensor,
) -> _Pieces:
    x = _grid(interval, max(2049, 64 * num_hinges + 1))
    y = target(x)
    low, high = interval
    width = high - low

    def basis(knots: Tensor) -> tuple[Tensor, Tensor]:
        gap = knots - x[:, None]
        hinges, active = gap.clamp(min=0), (gap > 0).to(x)
        if plain:
            return hinges, active
        return torch.cat([torch.ones_like(x)[:, None], x[:, None], hinges], 1), active

    count = num_hinges if plain else num_hinges + 1
    starts = squares.starts(x, y, count)
    if start.numel() == count:
        starts.append(start)
    knots = squares.best_knots(x, y, starts, basis, (low, high + REACH * width if plain else high))
    heights = squares.solve(basis(knots)[0], y)
    jumps = heights[-count:]
    intercept, right = (0.0, 0.0) if plain else (float(heights[0]), float(heights[1]))
    slopes = right - torch.cat([jumps.flip(0).cumsum(0).flip(0), jumps.new_zeros(1)])
    return _Pieces(knots, slopes, intercept)


def _without_rounding(
    pieces: _Pieces, interval: tuple[float, float], size: float
) -> tuple[Tensor, Tensor]:
    """Drop kinks, and a right slope, that are rounding alone: the affine form divides by them."""
    knots, slopes = pieces.knots, pieces.slopes
    negligible = 1e-12 * size / (interval[1] - interval[0])
    jumps = slopes.diff()
    real = jumps.abs() > negligible
    right = torch.where(slopes[-1:].abs() > negligible, slopes[-1:], 0.0)
    bends = jumps[real].flip(0).cumsum(0).flip(0)
    return knots[real], torch.cat([right - bends, right])


def _errors(
    function: ScalarFunction, form: AffineForm, interval: tuple[float, float]
) -> tuple[float, float]:
    low, high = interval
    even = _grid(interval, 20_001)
    difference = _values(function, even) - form.evaluate(even)
    kinks = torch.cat([form.offset, form.offset.new_zeros(1)]) + form.center
    kinks = kinks.clamp(low, high)
    at_kinks = _values(function, kinks) - form.evaluate(kinks)
    largest = torch.cat([difference, at_kinks]).abs().max()
    return float(largest), float(difference.square().mean().sqrt())


def _check_arguments(
    num_hinges: int | None,
    interval: tuple[float, float],
    norm: str,
    tolerance: float | None,
    accuracy: float,
) -> None:
    if num_hinges is None and (not tolerance or norm != "uniform"):
        raise ValueError(
            "num_hinges=None needs a tolerance above 0 and norm='uniform', got "
            f"tolerance={tolerance} and norm={norm!r}"
        )
    if num_hinges is not None and num_hinges < 1:
        raise ValueError(f"num_hinges must be at least 1, got {num_hinges}")
    low, high = interval
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"interval must be finite and ascending, got {interval}")
    if norm not in ("uniform", "squares"):
        raise ValueError(f"norm must be 'uniform' or 'squares', got {norm!r}")
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy must be between 0 and 1, got {accuracy}")


def _double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=CPU)
