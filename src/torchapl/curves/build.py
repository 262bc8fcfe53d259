"""Theorem 1 in both directions: units from piecewise-linear functions, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchapl.curves.kinks import Kinks
from torchapl.form import build, with_spare_hinges
from torchapl.modules import Unit
from torchapl.theorem import (
    AffineForm,
    affine_form,
    check_piecewise_linear,
    hinges_from_piecewise_linear,
)


@dataclass(frozen=True)
class PiecewiseLinear:
    """Continuous piecewise-linear functions, in float64.

    Attributes:
        knots: Where they bend, ascending, of shape ``(*unit_shape, K)``.
        slopes: The slopes of their segments, left to right, of shape ``(*unit_shape, K + 1)``.
        intercept: What the last segment adds to ``slopes[..., -1] * x``, of shape ``unit_shape``.
    """

    knots: Tensor
    slopes: Tensor
    intercept: Tensor


def from_piecewise_linear(
    knots: Tensor | Sequence[float],
    slopes: Tensor | Sequence[float],
    intercept: float = 0.0,
    *,
    affine: bool = False,
    num_hinges: int | None = None,
    unit_shape: int | Sequence[int] = (),
    unit_dim: int = 1,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Unit:
    """Return units that are the continuous piecewise-linear g with these knots (Theorem 1).

    An APL unit is every such g that (1) is x right of some point and (2) has a constant slope left
    of some point. For any other g the next layer of a network can make up, as the paper argues: the
    unit becomes ``w * h(x) + z``, and where g ends in a horizontal line, which no w makes of a line
    of slope 1, ``w * h(x - c) + k * x + z``, see :class:`AffineAPL`.

    Args:
        knots: Where g bends, ascending.
        slopes: The slopes of its ``len(knots) + 1`` segments, left to right.
        intercept: g(x) is ``slopes[-1] * x + intercept`` right of the last knot.
        affine: Return an :class:`AffineAPL` where condition 1 fails, instead of an error.
        num_hinges: Of the result; by default as few as g takes, at least one. Further ones have no
            slope.
        unit_shape: As in :class:`APL`; all units are g.
        unit_dim: As in :class:`APL`.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Example:
        >>> unit = from_piecewise_linear([-1.0, 0.0], [0.0, 0.5, 1.0])
        >>> unit(torch.tensor([-3.0, -0.5, 2.0])).tolist()
        [-0.5, -0.25, 2.0]
        >>> relu6 = from_piecewise_linear([0.0, 6.0], [0.0, 1.0, 0.0], 6.0, affine=True)
        >>> relu6(torch.tensor([-3.0, 2.5, 8.0])).tolist()
        [0.0, 2.5, 6.0]
    """
    form = _form(_double(knots, "knots"), _double(slopes, "slopes"), float(intercept), affine)
    needed = form.slope.numel()
    if num_hinges is not None and num_hinges < max(needed, 1):
        raise ValueError(f"num_hinges={num_hinges} are too few: this function needs {needed}")
    form = with_spare_hinges(form, num_hinges or max(needed, 1), (-2.0, 2.0))
    return build(form, unit_shape, unit_dim, device=device, dtype=dtype)


def to_piecewise_linear(unit: Unit) -> PiecewiseLinear:
    """Return knots and slopes of all curves, the way back of :func:`from_piecewise_linear`.

    A layer of one unit, ``unit_shape == ()``, gives only the knots at which it bends. Otherwise
    every unit has ``num_hinges + 1`` of them, also such that coincide or have no effect.

    Example:
        >>> g = to_piecewise_linear(from_piecewise_linear([-1.0, 0.0], [0.0, 0.5, 1.0]))
        >>> g.knots.tolist(), g.slopes.tolist(), g.intercept.item()
        ([-1.0, 0.0], [0.0, 0.5, 1.0], 0.0)
    """
    kinks = Kinks.of(unit)
    slopes, position = kinks.slopes(), kinks.position
    if position.dim() == 1:
        # slopes() repeats the slope left of an empty segment, so the change is at the last of equal
        # knots.
        bends = slopes.diff() != 0
        position = position[bends]
        slopes = torch.cat([slopes[:1], slopes[1:][bends]])
    return PiecewiseLinear(position, slopes, kinks.right_intercept)


def _form(knots: Tensor, slopes: Tensor, intercept: float, affine: bool) -> AffineForm:
    check_piecewise_linear(knots, slopes)
    if not math.isfinite(intercept):
        raise ValueError(f"intercept must be finite, got {intercept}")
    right = float(slopes[-1])
    if not (right == 1 and intercept == 0) and not affine:
        raise ValueError(
            "condition 1 of Theorem 1 fails: g must be x on the right, but there it is "
            f"{right:g}*x + {intercept:g}; affine=True adds the affine map that is missing"
        )
    if right == 0:
        return affine_form(knots, slopes, intercept)
    a, b = hinges_from_piecewise_linear(knots, slopes / right)
    return AffineForm(a, b, right, intercept, 0.0, 0.0)


def _double(values: Tensor | Sequence[float], name: str) -> Tensor:
    tensor = torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()
    if tensor.dim() != 1:
        raise ValueError(f"{name} must be a sequence of numbers, got shape {tuple(tensor.shape)}")
    return tensor
