"""Fewer hinges for many units at once, each within a tolerance."""

from __future__ import annotations

import torch
from torch import Tensor


def reduce_hinges(
    slope: Tensor, offset: Tensor, low: Tensor, high: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Drop and merge hinges of each unit, the cheapest step first, while the error allows.

    A dropped hinge costs what it was worth at the lower end of the range. Two neighbours merge into
    one with the sum of their slopes, so that the curve keeps its slope on the left, and the error
    of a merge is bounded on the whole line. Costs of one unit add up to at most the tolerance.

    Args:
        slope: float64, of shape ``(S, U)``.
        offset: float64, of the same shape.
        low: Lower ends of the inputs of each unit, of shape ``(U,)``, -inf for any input.
        high: Upper ends.
        tolerance: How far a curve may move.

    Returns:
        Slopes and offsets, those without slope last, and what was spent of the tolerance, ``(U,)``.
    """
    a, b = slope.clone(), offset.clone()
    spent = torch.zeros_like(low)
    # Equal hinges merge at a cost of rounding, which must not be refused.
    rounding = 16 * torch.finfo(a.dtype).eps * (a.abs() * (1 + b.abs())).sum(0)
    while True:
        a, b = _ordered(a, b)
        drop = _cost_of_drop(a, b, low)
        merged_a, merged_b, merge = _merge(a, b, low, high)
        cost, choice = torch.cat([drop, merge]).min(0)
        units = ((spent + cost <= tolerance + rounding) & cost.isfinite()).nonzero()[:, 0]
        if not units.numel():
            return a, b, spent
        spent[units] += cost[units]
        is_merge = choice[units] >= a.shape[0]
        dropped, which = units[~is_merge], choice[units[~is_merge]]
        a[which, dropped] = 0.0
        joined, pair = units[is_merge], choice[units[is_merge]] - a.shape[0]
        a[pair, joined], b[pair, joined] = merged_a[pair, joined], merged_b[pair, joined]
        a[pair + 1, joined] = 0.0


def _ordered(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.where(a == 0, torch.inf, b).argsort(0)
    return a.gather(0, order), b.gather(0, order)


def _cost_of_drop(a: Tensor, b: Tensor, low: Tensor) -> Tensor:
    reach = (b - low).clamp(min=0)
    # One that is gone already is no step; where it does not reach, 0 * inf must not be NaN.
    return torch.where(a == 0, torch.inf, torch.where(reach == 0, 0.0, a.abs() * reach))


def _merge(a: Tensor, b: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the hinges that replace neighbours, and the largest errors they make."""
    a1, a2, b1, b2 = a[:-1], a[1:], b[:-1], b[1:]
    total = a1 + a2
    mean = (a1 * b1 + a2 * b2) / torch.where(total == 0, 1.0, total)
    # The mean of opposite slopes lies outside, where it would make a kink of its own. Of two that
    # are right of all inputs, and there one line, none is nearer to that line.
    joint = torch.where(b1 >= high, mean, mean.clamp(b1, b2))
    joint = torch.where(total == 0, b1, joint)
    ends = torch.where(low.isinf(), b1, low.expand_as(b1))
    largest = torch.zeros_like(total)
    for x in (b1, joint, b2, ends):
        inside = x.clamp(low, high)
        error = (
            a1 * (b1 - inside).clamp(min=0)
            + a2 * (b2 - inside).clamp(min=0)
            - total * (joint - inside).clamp(min=0)
        )
        largest = torch.maximum(largest, error.abs())
    return total, joint, torch.where((a1 == 0) | (a2 == 0), torch.inf, largest)
