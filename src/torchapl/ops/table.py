"""Curves as tables of segments, in the order in which kernels look them up."""

from __future__ import annotations

import torch
from torch import Tensor

# Tables have 2^levels segments. Fewer kinks than these are as quick without one.
FEWEST_KINKS = 5
LEVELS = range(3, 9)


def segment_table(
    position: Tensor, jump: Tensor, right_slope: Tensor, right_intercept: Tensor
) -> Tensor | None:
    """Return the tables of curves, ``(*unit_shape, 4 * 2**levels)`` in float32; None if none fits.

    A table has kinks, anchors, values and slopes: on a segment the curve is ``value + slope * (x -
    anchor)``. The anchor is the end of the segment that is nearer to 0, and not 0 itself: far from
    0 the two parts of ``slope * x + intercept`` would cancel.

    The search for a segment is a binary one, and bit d of a segment's index says whether x lies
    right of the kink of step d. So the index of a segment is its number with the bits reversed, and
    the kinks of step d begin at 2**d.

    Args:
        position: Where the curves bend, ascending, of shape ``(*unit_shape, K)``, in float64.
        jump: By how much their slopes rise there.
        right_slope: The line right of all kinks, of shape ``unit_shape``.
        right_intercept: Likewise.
    """
    count = position.shape[-1]
    levels = next((n for n in LEVELS if count < 2**n), None)
    if levels is None or count < FEWEST_KINKS:
        return None
    anchor, value, slope = _segments(position, jump, right_slope, right_intercept)
    size = 2**levels
    kinks = torch.nn.functional.pad(position, (0, size - 1 - count), value=torch.inf)
    segment = _reversed(levels).clamp(max=count)
    node = torch.cat([(2 * _reversed(d) + 1) * 2 ** (levels - 1 - d) - 1 for d in range(levels)])
    parts = [kinks[..., :1], kinks[..., node], *(t[..., segment] for t in (anchor, value, slope))]
    table = torch.cat(parts, -1).float()
    return table.contiguous() if table[..., size:].isfinite().all() else None


def _segments(
    position: Tensor, jump: Tensor, right_slope: Tensor, right_intercept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return anchor, value at the anchor and slope of all segments from left to right."""
    bends = jump.flip(-1).cumsum(-1).flip(-1)
    slope = right_slope[..., None] - torch.nn.functional.pad(bends, (0, 1))
    last = right_slope * position[..., -1] + right_intercept
    rises = (slope[..., 1:-1] * position.diff(dim=-1)).flip(-1).cumsum(-1).flip(-1)
    at_kink = last[..., None] - torch.nn.functional.pad(rises, (0, 1))
    # Every segment has a kink on its left, its right, or on both sides.
    left = torch.cat([position[..., :1], position], -1)
    right = torch.cat([position, position[..., -1:]], -1)
    at_left = torch.cat([at_kink[..., :1], at_kink], -1)
    at_right = torch.cat([at_kink, at_kink[..., -1:]], -1)
    nearer = left.abs() <= right.abs()
    anchor, value = torch.where(nearer, left, right), torch.where(nearer, at_left, at_right)
    # Right of its kinks an APL unit is x, without rounding.
    through_zero = right_intercept == 0
    anchor[..., -1] = torch.where(through_zero, 0.0, anchor[..., -1])
    value[..., -1] = torch.where(through_zero, 0.0, value[..., -1])
    return anchor, value, slope


def _reversed(bits: int) -> Tensor:
    """Return the numbers below 2**bits with their bits in reversed order."""
    number = torch.arange(2**bits)
    result = torch.zeros_like(number)
    for bit in range(bits):
        result |= (number >> bit & 1) << (bits - 1 - bit)
    return result
