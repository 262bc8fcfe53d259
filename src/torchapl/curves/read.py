"""Read learned curves: every function takes a layer of units and answers for all of them at once.

Results have the shape ``(*unit_shape, ...)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchapl.curves.kinks import Kinks, result_dtype
from torchapl.functional import apl
from torchapl.modules import AffineAPL, Unit, inner_unit


class Asymptote(NamedTuple):
    """The lines slope*x + intercept that curves follow on one side."""

    slope: Tensor
    intercept: Tensor


@dataclass(frozen=True)
class Shape:
    """What kind of curve each unit is: boolean tensors of shape ``unit_shape``.

    Attributes:
        convex: The slope never falls, as in ReLU; a straight line counts.
        concave: The slope never rises.
        increasing: The slope is nowhere negative.
        decreasing: The slope is nowhere positive.
    """

    convex: Tensor
    concave: Tensor
    increasing: Tensor
    decreasing: Tensor

    @property
    def monotone(self) -> Tensor:
        """Whether the curve never turns."""
        return self.increasing | self.decreasing

    @property
    def non_convex(self) -> Tensor:
        """Whether the curve is neither convex nor concave: no single maxout unit makes it."""
        return ~(self.convex | self.concave)


@torch.no_grad()
def sample(unit: Unit, x: Tensor) -> Tensor:
    """Evaluate every curve at the same points.

    Args:
        unit: A layer of units.
        x: The points, of shape ``(N,)``.

    Returns:
        Values of shape ``(*unit_shape, N)``.

    Example:
        >>> sample(APL(3, init="leaky"), torch.tensor([-1.0, 2.0]))
        tensor([[-0.2500,  2.0000],
                [-0.2500,  2.0000],
                [-0.2500,  2.0000]])
    """
    if not isinstance(x, Tensor) or x.dim() != 1 or not x.is_floating_point():
        raise ValueError(f"x must be a floating-point tensor of shape (N,), got {x!r}")
    inner = inner_unit(unit)
    x = x.to(inner.slope.device, result_dtype(unit))
    center = unit.center if isinstance(unit, AffineAPL) else 0.0
    columns = (x - center).reshape(-1, *(1,) * len(inner.unit_shape))
    wide = columns.expand(-1, *inner.unit_shape)
    y = apl(wide, inner.slope, inner.offset, unit_dim=1).movedim(0, -1)
    if isinstance(unit, AffineAPL):
        return unit.scale * y + unit.skip * x + unit.shift
    return y


def knots(unit: Unit) -> Tensor:
    """Return where the curves can bend, ascending, 0 included: ``(*unit_shape, S + 1)``.

    Example:
        >>> knots(APL(num_hinges=3, init="leaky"))
        tensor([-1.,  0.,  0.,  1.])
    """
    return Kinks.of(unit).position.to(result_dtype(unit))


def segment_slopes(unit: Unit) -> Tensor:
    """Return the slopes between the :func:`knots`, left to right: ``(*unit_shape, S + 2)``.

    Example:
        >>> segment_slopes(APL(num_hinges=1, init="leaky"))
        tensor([0.2500, 0.2500, 1.0000])
    """
    return Kinks.of(unit).slopes().to(result_dtype(unit))


def left_slope(unit: Unit) -> Tensor:
    """Return the slopes left of all knots, -sum of a: ``unit_shape``.

    Example:
        >>> left_slope(APL(num_hinges=2, init="leaky"))
        tensor(0.2500)
    """
    return left_asymptote(unit).slope


def left_asymptote(unit: Unit) -> Asymptote:
    """Return the lines that the curves are left of all knots; on the right they are x.

    Example:
        >>> left_asymptote(APL(num_hinges=2, init="leaky"))
        Asymptote(slope=tensor(0.2500), intercept=tensor(0.))
    """
    kinks, dtype = Kinks.of(unit), result_dtype(unit)
    slope = kinks.right_slope - kinks.jump.sum(-1)
    return Asymptote(slope.to(dtype), kinks.left_intercept().to(dtype))


def value_at_zero(unit: Unit) -> Tensor:
    """Return h(0), the bias that a unit brings along: ``unit_shape``.

    Example:
        >>> value_at_zero(APL(num_hinges=2, init="leaky"))
        tensor(0.)
    """
    kinks = Kinks.of(unit)
    return kinks.evaluate(torch.zeros_like(kinks.position[..., :1]))[..., 0].to(result_dtype(unit))


def classify(unit: Unit, *, tolerance: float = 1e-6) -> Shape:
    """Tell which curves are convex, concave, increasing, decreasing.

    Args:
        unit: A layer of units.
        tolerance: Slopes, and changes of slope, up to this size count as 0.

    Example:
        >>> shape = classify(APL(init="leaky"))
        >>> shape.convex, shape.monotone
        (tensor(True), tensor(True))
    """
    slopes = Kinks.of(unit).slopes()
    changes = slopes.diff(dim=-1)
    return Shape(
        convex=(changes >= -tolerance).all(-1),
        concave=(changes <= tolerance).all(-1),
        increasing=(slopes >= -tolerance).all(-1),
        decreasing=(slopes <= tolerance).all(-1),
    )


def lipschitz(unit: Unit) -> Tensor:
    """Return the smallest L with |h(x) - h(y)| <= L*|x - y|, the steepest slope: ``unit_shape``.

    Example:
        >>> lipschitz(APL(init="leaky"))
        tensor(1.)
    """
    return Kinks.of(unit).slopes().abs().amax(-1).to(result_dtype(unit))


def slope_variation(unit: Unit) -> Tensor:
    """Return the total variation of the slope, how much a curve bends in all: ``unit_shape``.

    Example:
        >>> slope_variation(APL(init="leaky"))
        tensor(0.7500)
    """
    return Kinks.of(unit).slopes().diff(dim=-1).abs().sum(-1).to(result_dtype(unit))


def distance(
    first: Unit,
    second: Unit,
    *,
    interval: tuple[float, float] | None = None,
    norm: Literal["uniform", "squares"] = "uniform",
) -> Tensor:
    """Return how far apart the curves of two layers are, unit by unit.

    Args:
        first: A layer of units.
        second: Another one, of the same unit shape or of one that broadcasts with it.
        interval: Where they are compared; by default on the whole line, where curves with different
            slopes at an end are infinitely far apart.
        norm: ``"uniform"`` gives the largest difference, ``"squares"`` the root of the mean squared
            one, which needs an interval.

    Example:
        >>> distance(APL(init="leaky"), APL(init="relu"), interval=(-2.0, 2.0))
        tensor(0.5000)
    """
    if norm not in ("uniform", "squares"):
        raise ValueError(f"norm must be 'uniform' or 'squares', got {norm!r}")
    if interval is None and norm == "squares":
        raise ValueError("norm='squares' needs an interval: the mean over the whole line has none")
    if interval is not None and not interval[0] < interval[1]:
        raise ValueError(f"interval must ascend, got {interval}")
    if norm == "squares" and not all(map(math.isfinite, interval or ())):
        raise ValueError(f"norm='squares' needs a finite interval, got {interval}")
    difference = kinks_of_difference(Kinks.unordered(first), Kinks.unordered(second))
    dtype = torch.promote_types(result_dtype(first), result_dtype(second))
    if norm == "squares" and interval is not None:
        return _rms(difference, interval).to(dtype)
    low, high = interval or (-torch.inf, torch.inf)
    return largest_value(difference, low, high).to(dtype)


def kinks_of_difference(first: Kinks, second: Kinks) -> Kinks:
    """Return the curves first - second."""
    shape = (first.right_slope + second.right_slope).shape
    position = torch.cat([kinks.position.expand(*shape, -1) for kinks in (first, second)], -1)
    jump = torch.cat([first.jump.expand(*shape, -1), -second.jump.expand(*shape, -1)], -1)
    return Kinks(
        position,
        jump,
        (first.right_slope - second.right_slope).expand(shape),
        (first.right_intercept - second.right_intercept).expand(shape),
    ).ordered()


def largest_value(
    kinks: Kinks, low: float | Tensor, high: float | Tensor, rounding: float = 1e-12
) -> Tensor:
    """Return the largest |f| between two bounds: numbers, or tensors of unit shape.

    Slopes at an infinite end that are smaller than ``rounding``, relative to what they are the sum
    of, count as 0.
    """
    low, high = (
        # Not to the device that `with torch.device(...)` says.
        torch.as_tensor(bound, dtype=kinks.position.dtype, device=kinks.position.device).expand(
            kinks.right_slope.shape
        )[..., None]
        for bound in (low, high)
    )
    # A piecewise-linear function is largest at a knot or at an end, unless it rises for ever.
    first, last = kinks.position[..., :1], kinks.position[..., -1:]
    ends = torch.cat(
        [torch.where(low.isinf(), first, low), torch.where(high.isinf(), last, high)], -1
    )
    inside = (kinks.position > low) & (kinks.position < high)
    at_knots = torch.where(inside, kinks.at_knots(), 0.0)
    largest = torch.cat([at_knots, kinks.evaluate(ends)], -1).abs().amax(-1)
    left, right = kinks.right_slope - kinks.jump.sum(-1), kinks.right_slope
    negligible = rounding * (kinks.jump.abs().sum(-1) + right.abs())
    unbounded = (low[..., 0].isinf() & (left.abs() > negligible)) | (
        high[..., 0].isinf() & (right.abs() > negligible)
    )
    return torch.where(unbounded, torch.inf, largest)


def _rms(kinks: Kinks, interval: tuple[float, float]) -> Tensor:
    low, high = interval
    ends = kinks.position.new_tensor([low, high]).expand(*kinks.right_slope.shape, 2)
    at_ends = kinks.evaluate(ends)
    at_low, at_high = at_ends[..., :1], at_ends[..., 1:]
    places = torch.cat([ends[..., :1], kinks.position.clamp(low, high), ends[..., 1:]], -1)
    values = torch.where(kinks.position < low, at_low, kinks.at_knots())
    values = torch.where(kinks.position > high, at_high, values)
    values = torch.cat([at_low, values, at_high], -1)
    start, end = values[..., :-1], values[..., 1:]
    # The integral of the square of a line from p to q over a length l is l*(p*p + p*q + q*q)/3.
    squares = places.diff(dim=-1) * (start * start + start * end + end * end) / 3
    return (squares.sum(-1) / (high - low)).clamp(min=0).sqrt()
