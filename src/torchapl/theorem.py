"""Theorem 1 of the paper: which hinges make a given piecewise-linear function."""

from __future__ import annotations

import torch
from torch import Tensor


def hinges_from_piecewise_linear(knots: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fewest ``(a, b)`` whose unit is the g with these knots and segment slopes.

    g is continuous and equals x right of its last knot and of 0. A hinge a*max(0, b-x) raises the slope by
    a at b and by nothing right of it, and max(0, x) raises it by 1 at 0. So the slope changes of g,
    less 1 at 0, are the hinges, and g needs no others.

    Args:
        knots: Where g bends, ascending, of shape ``(K,)``.
        slopes: The slopes of its segments from left to right, of shape ``(K + 1,)``; the last is 1.
    """
    if knots.dim() != 1 or slopes.shape != (knots.numel() + 1,):
        raise ValueError(
            f"slopes must have one value more than knots, got {tuple(slopes.shape)} and "
            f"{tuple(knots.shape)}"
        )
    if not (knots.isfinite().all() and slopes.isfinite().all()):
        raise ValueError("knots and slopes must be finite")
    if not (knots.diff() > 0).all():
        raise ValueError(f"knots must ascend without repetition, got {knots.tolist()}")
    if slopes[-1] != 1:
        raise ValueError(f"the last of slopes must be 1 (g(x) = x on the right), got {slopes[-1]}")
    b = torch.cat([knots, knots.new_zeros(1)])
    a = torch.cat([slopes.diff(), knots.new_full((1,), -1.0)])
    b, place = b.unique(return_inverse=True)
    a = torch.zeros_like(b).index_add_(0, place, a)
    return a[a != 0], b[a != 0]
