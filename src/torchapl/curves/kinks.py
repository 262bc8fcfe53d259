"""The common view of all units: kinks, and the line right of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchapl.modules import AffineAPL, Unit, inner_unit


class Kinks(NamedTuple):
    """Curves f(x) = right_slope*x + right_intercept + sum of jump*max(0, position - x), in float64.

    Attributes:
        position: Where the curves bend, ascending, of shape ``(*unit_shape, K)``.
        jump: By how much their slopes rise there.
        right_slope: Of shape ``unit_shape``, as the next.
        right_intercept: Both 1 and 0 for an APL unit.
    """

    position: Tensor
    jump: Tensor
    right_slope: Tensor
    right_intercept: Tensor

    @classmethod
    def of(cls, unit: Unit) -> Kinks:
        """Read a layer of units."""
        return cls.unordered(unit).ordered()

    @classmethod
    def unordered(cls, unit: Unit) -> Kinks:
        """Read a layer without sorting its kinks; max(0, x) = x + max(0, -x) makes that at 0."""
        inner = inner_unit(unit)
        slope, offset = (p.detach().double().movedim(0, -1) for p in (inner.slope, inner.offset))
        zero = slope.new_zeros(*slope.shape[:-1], 1)
        position, jump = torch.cat([offset, zero], -1), torch.cat([slope, zero + 1], -1)
        right_slope, right_intercept = torch.ones_like(zero[..., 0]), zero[..., 0]
        if isinstance(unit, AffineAPL):
            scale, shift, skip, center = (
                number.double() for number in (unit.scale, unit.shift, unit.skip, unit.center)
            )
            position, jump = position + center, jump * scale
            right_slope = right_slope * (scale + skip)
            right_intercept = right_intercept + shift - scale * center
        return cls(position, jump, right_slope, right_intercept)

    def ordered(self) -> Kinks:
        """Return the same curves with ascending positions."""
        position, order = self.position.sort(-1)
        return self._replace(position=position, jump=self.jump.gather(-1, order))

    def slopes(self) -> Tensor:
        """Return the slopes of all segments, ``(*unit_shape, K + 1)``.

        A segment of length 0, between two kinks at one place, repeats the slope left of it: it is
        no part of the curve.
        """
        slopes = self._slopes()
        real = torch.ones_like(slopes, dtype=torch.bool)
        real[..., 1:-1] = self.position.diff(dim=-1) > 0
        index = torch.arange(slopes.shape[-1], device=slopes.device).expand_as(slopes)
        return slopes.gather(-1, torch.where(real, index, 0).cummax(-1).values)

    def _slopes(self) -> Tensor:
        bends = self.jump.flip(-1).cumsum(-1).flip(-1)
        bends = torch.cat([bends, torch.zeros_like(bends[..., :1])], -1)
        return self.right_slope[..., None] - bends

    def left_intercept(self) -> Tensor:
        """Return f(x) - left slope * x, left of all kinks."""
        return self.right_intercept + (self.jump * self.position).sum(-1)

    def at_knots(self) -> Tensor:
        """Return the values at all positions, ``(*unit_shape, K)``, in linear time."""
        last = self.right_slope * self.position[..., -1] + self.right_intercept
        rises = self._slopes()[..., 1:-1] * self.position.diff(dim=-1)
        below = rises.flip(-1).cumsum(-1).flip(-1)
        return last[..., None] - torch.cat([below, torch.zeros_like(last[..., None])], -1)

    def evaluate(self, x: Tensor) -> Tensor:
        """Return the curves at ``x``, of shape ``(*unit_shape, N)``."""
        y = self.right_slope[..., None] * x + self.right_intercept[..., None]
        for position, jump in zip(self.position.unbind(-1), self.jump.unbind(-1), strict=True):
            y = y + jump[..., None] * (position[..., None] - x).clamp(min=0)
        return y


def result_dtype(unit: Unit) -> torch.dtype:
    """Return the precision of what is read: that of the parameters, at least float32."""
    return torch.promote_types(inner_unit(unit).slope.dtype, torch.float32)
