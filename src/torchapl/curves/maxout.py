"""APL units as the difference of two maxout units."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from torchapl.curves.kinks import Kinks, result_dtype
from torchapl.curves.replace import replace_units
from torchapl.modules import Unit, inner_unit


class MaxoutPair(nn.Module):
    """The difference of two maxout units with tied weights, for every unit of a layer.

    Each maxout unit is the largest of a few lines of the same input: a maxout unit over pieces
    whose weights are multiples of one weight vector.

    Args:
        convex: Slopes and intercepts of the first unit's pieces, each of shape ``(P,
            *unit_shape)``.
        concave: Those of the unit that is subtracted.
        unit_dim: As in :class:`APL`.
    """

    convex_slope: Tensor
    convex_intercept: Tensor
    concave_slope: Tensor
    concave_intercept: Tensor

    def __init__(
        self, convex: tuple[Tensor, Tensor], concave: tuple[Tensor, Tensor], unit_dim: int = 1
    ) -> None:
        super().__init__()
        self.unit_dim = unit_dim
        self.convex_slope, self.convex_intercept = map(nn.Parameter, convex)
        self.concave_slope, self.concave_intercept = map(nn.Parameter, concave)

    def forward(self, input: Tensor) -> Tensor:
        first = self._largest(input, self.convex_slope, self.convex_intercept)
        difference = first - self._largest(input, self.concave_slope, self.concave_intercept)
        # Pieces of curves in half precision are kept in float32.
        return difference.to(input.dtype)

    def _largest(self, input: Tensor, slope: Tensor, intercept: Tensor) -> Tensor:
        unit_dims = slope.dim() - 1
        start = self.unit_dim % input.dim() if unit_dims else input.dim()
        trailing = (1,) * (input.dim() - start - unit_dims)
        # One piece after the other: all of them at once would be S + 2 copies of the input.
        pieces = (
            a.reshape(a.shape + trailing) * input + b.reshape(b.shape + trailing)
            for a, b in zip(slope, intercept, strict=True)
        )
        largest: Tensor = next(pieces)
        for piece in pieces:
            largest = torch.maximum(largest, piece)
        return largest

    def extra_repr(self) -> str:
        pieces, *shape = self.convex_slope.shape
        return f"{tuple(shape)}, pieces={pieces}, unit_dim={self.unit_dim}"


def to_maxout(model: nn.Module) -> nn.Module:
    """Return a copy in which every layer of units is the difference of two maxout units.

    The terms that bend upwards add up to a convex curve, the others to a concave one, and a convex
    piecewise-linear curve is the largest of its lines. Hooks stay in force, and subclasses of the
    units with a ``forward`` of their own are left as they are.

    Args:
        model: Holds units somewhere, or is one.

    Example:
        >>> unit = APL(8, num_hinges=2, init=init.authors_)
        >>> to_maxout(unit)
        MaxoutPair((8,), pieces=4, unit_dim=1)
        >>> x = torch.randn(100, 8)
        >>> torch.allclose(to_maxout(unit)(x), unit(x), atol=1e-6)
        True
    """
    return replace_units(copy.deepcopy(model), lambda name, unit: _pair(unit))


def _pair(unit: Unit) -> MaxoutPair:
    kinks, dtype = Kinks.of(unit), result_dtype(unit)
    none = torch.zeros_like(kinks.right_slope)
    convex = _lines(kinks, kinks.jump.clamp(min=0), kinks.right_slope, kinks.right_intercept)
    concave = _lines(kinks, (-kinks.jump).clamp(min=0), none, none)
    return MaxoutPair(
        (convex[0].to(dtype), convex[1].to(dtype)),
        (concave[0].to(dtype), concave[1].to(dtype)),
        inner_unit(unit).unit_dim,
    )


def _lines(
    kinks: Kinks, jump: Tensor, right_slope: Tensor, right_intercept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return slopes and intercepts of all segments, ``(K + 1, *unit_shape)``."""
    lines = []
    for right, step in ((right_slope, -jump), (right_intercept, jump * kinks.position)):
        sums = step.flip(-1).cumsum(-1).flip(-1)
        lines.append(right[..., None] + torch.cat([sums, torch.zeros_like(sums[..., :1])], -1))
    slope, intercept = (line.movedim(-1, 0).contiguous() for line in lines)
    return slope, intercept
