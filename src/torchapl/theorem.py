"""Theorem 1 of the paper: which hinges make a given piecewise-linear function."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class AffineForm(NamedTuple):
    """The numbers of w*h(x - c) + k*x + z: hinges of h, then scale w, shift z, skip k, centre c."""

    slope: Tensor
    offset: Tensor
    scale: float = 1.0
    shift: float = 0.0
    skip: float = 0.0
    center: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether h alone is the function."""
        return self[2:] == (1.0, 0.0, 0.0, 0.0)

    def evaluate(self, x: Tensor) -> Tensor:
        """Return the function at x, in the hinges' precision."""
        u = x.to(self.slope) - self.center
        hinges = (self.slope * (self.offset - u[..., None]).clamp(min=0)).sum(-1)
        return self.scale * (u.clamp(min=0) + hinges) + self.skip * x + self.shift


def hinges_from_piecewise_linear(knots: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fewest ``(a, b)`` whose unit is the g with these knots and segment slopes.

    g is continuous and equals x right of its last knot and of 0. A hinge a*max(0, b-x) raises the
    slope by a at b and by nothing right of it, and max(0, x) raises it by 1 at 0. So the slope
    changes of g, less 1 at 0, are the hinges, and g needs no others.

    Args:
        knots: Where g bends, ascending, of shape ``(K,)``.
        slopes: The slopes of its segments from left to right, of shape ``(K + 1,)``; the last is 1.
    """
    check_piecewise_linear(knots, slopes)
    if slopes[-1] != 1:
        raise ValueError(
            "condition 1 of Theorem 1 fails: g(x) = x on the right needs the last of slopes to be "
            f"1, got {slopes[-1].item():g}"
        )
    b = torch.cat([knots, knots.new_zeros(1)])
    a = torch.cat([slopes.diff(), knots.new_full((1,), -1.0)])
    b, index = torch.unique(b, return_inverse=True)
    a = torch.zeros_like(b).index_add_(0, index, a)
    return a[a != 0], b[a != 0]


def check_piecewise_linear(knots: Tensor, slopes: Tensor) -> None:
    """Refuse knots and slopes that describe no continuous piecewise-linear function."""
    if knots.dim() != 1 or slopes.shape != (knots.numel() + 1,):
        raise ValueError(
            f"slopes must have one value more than knots, got {tuple(slopes.shape)} and "
            f"{tuple(knots.shape)}"
        )
    for name, values in (("knots", knots), ("slopes", slopes)):
        if not values.isfinite().all():
            raise ValueError(
                f"condition 2 of Theorem 1 fails: {name} must be finite (a constant slope left of "
                f"some point), got {values.tolist()}"
            )
    if not (knots.diff() > 0).all():
        raise ValueError(f"knots must ascend without repetition, got {knots.tolist()}")


def affine_form(knots: Tensor, slopes: Tensor, intercept: float) -> AffineForm:
    """Write any g with these knots and slopes, and this right intercept, with the fewest hinges.

    The kink of max(0, x) is moved to the knot with the largest slope change, and scaled to it; the
    other knots take a hinge each. A straight line takes the one hinge that makes h the identity.
    """
    check_piecewise_linear(knots, slopes)
    jumps = slopes.diff()
    knots, jumps, right = knots[jumps != 0], jumps[jumps != 0], float(slopes[-1])
    if not knots.numel():
        scale = right if right != 0 else 1.0
        minus_one = knots.new_full((1,), -1.0)
        return AffineForm(minus_one, knots.new_zeros(1), scale, intercept, right - scale, 0.0)
    largest = int(jumps.abs().argmax())
    scale, center = float(jumps[largest]), float(knots[largest])
    others = torch.arange(knots.numel(), device=knots.device) != largest
    return AffineForm(
        slope=jumps[others] / scale,
        offset=knots[others] - center,
        scale=scale,
        shift=intercept + scale * center,
        skip=right - scale,
        center=center,
    )
