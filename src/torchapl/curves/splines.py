"""Curves given by their values on a grid, and PReLU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchapl.curves.build import from_piecewise_linear
from torchapl.curves.kinks import Kinks, result_dtype
from torchapl.curves.reduce import reduce_hinges
from torchapl.form import Hinges, with_spare_hinges
from torchapl.modules import APL, Unit, inner_unit
from torchapl.theorem import AffineForm


class LinearSpline(nn.Module):
    """Curves by linear interpolation between values on a grid, continued along the outer segments.

    Args:
        grid: Ascending positions, of shape ``(K,)``, or ``(*unit_shape, K)`` for a grid of each
            unit.
        values: The learnable values there, of shape ``(*unit_shape, K)``.
        unit_dim: As in :class:`APL`.

    Example:
        >>> spline = LinearSpline(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([[0.0, 0.0, 1.0]]))
        >>> spline(torch.tensor([[-5.0], [0.5], [3.0]])).flatten().tolist()
        [0.0, 0.5, 3.0]
    """

    grid: Tensor

    def __init__(self, grid: Tensor, values: Tensor, unit_dim: int = 1) -> None:
        super().__init__()
        points = values.shape[-1] if values.dim() else 0
        if points < 2 or grid.shape not in (values.shape, values.shape[-1:]):
            raise ValueError(
                "grid must have the shape of values or of its last axis, with at least 2 points, "
                f"got {tuple(grid.shape)} and {tuple(values.shape)}"
            )
        if not (grid.isfinite().all() and values.isfinite().all()):
            raise ValueError("grid and values must be finite")
        if not (grid.diff(dim=-1) > 0).all():
            raise ValueError("grid must ascend without repetition")
        self.unit_dim = unit_dim
        self.register_buffer("grid", grid)
        self.values = nn.Parameter(values)

    def forward(self, input: Tensor) -> Tensor:
        unit_dims = self.values.dim() - 1
        start = self.unit_dim % input.dim() if unit_dims else input.dim()
        trailing = (1,) * (input.dim() - start - unit_dims)
        grid, values = (
            [p.reshape(p.shape + trailing) for p in t.unbind(-1)] for t in (self.grid, self.values)
        )
        output = values[0].expand_as(input)
        last = len(grid) - 2
        for i in range(last + 1):
            slope = (values[i + 1] - values[i]) / (grid[i + 1] - grid[i])
            # The part of the way from the first grid point that lies on this segment; the outer
            # segments have no end.
            x = input if i == 0 else torch.maximum(input, grid[i])
            x = x if i == last else torch.minimum(x, grid[i + 1])
            output = output + slope * (x - grid[i])
        # Values of curves in half precision are kept in float32.
        return output.to(input.dtype)

    def extra_repr(self) -> str:
        *shape, points = self.values.shape
        return f"{tuple(shape)}, points={points}, unit_dim={self.unit_dim}"


@torch.no_grad()
def to_spline(unit: Unit, grid: Tensor | None = None) -> LinearSpline:
    """Return the curves by their values on a grid, exactly.

    Args:
        unit: A layer of units.
        grid: Ascending positions that contain every place where a curve bends, of shape ``(K,)``,
            with points on both sides of all of these. By default every unit gets a grid of its own.

    Example:
        >>> to_spline(APL(8, 2, init="leaky"), torch.linspace(-2, 2, 5))
        LinearSpline((8,), points=5, unit_dim=1)
    """
    kinks, dtype = Kinks.of(unit), result_dtype(unit)
    if grid is None:
        points = _own_grid(kinks)
    else:
        points = grid.detach().to(kinks.position)
        _check_on_grid(kinks, points)
    values = kinks.evaluate(points.expand(*kinks.right_slope.shape, -1))
    return LinearSpline(points.to(dtype), values.to(dtype), inner_unit(unit).unit_dim)


@torch.no_grad()
def from_spline(spline: LinearSpline, *, affine: bool = False) -> Unit:
    """Return the units that are these splines, with as few hinges as the layer takes.

    Args:
        spline: Its last segment lies on y = x.
        affine: For a single spline, ``unit_shape == ()``, that ends otherwise: return an affine
            unit.

    Example:
        >>> unit = APL(8, num_hinges=2, init=init.authors_)
        >>> x = torch.randn(100, 8)
        >>> torch.allclose(from_spline(to_spline(unit))(x), unit(x), atol=1e-5)
        True
    """
    grid = spline.grid.double().expand(spline.values.shape)
    values = spline.values.detach().double()
    slopes = values.diff(dim=-1) / grid.diff(dim=-1)
    intercept = values[..., -1] - slopes[..., -1] * grid[..., -1]
    # What rounding of the stored values does to the last segment.
    unsure = 8 * torch.finfo(spline.values.dtype).eps * values.abs().amax(-1)
    unsure = unsure / (grid[..., -1] - grid[..., -2])
    ends_as_x = (slopes[..., -1] - 1).abs() <= unsure
    ends_as_x &= (values[..., -1] - grid[..., -1]).abs() <= unsure * grid.diff(dim=-1)[..., -1]
    dtype, device = spline.values.dtype, spline.values.device
    if not ends_as_x.all():
        if affine and values.dim() == 1:
            return from_piecewise_linear(
                grid[1:-1], slopes, float(intercept), affine=True, device=device, dtype=dtype
            )
        raise ValueError(
            "condition 1 of Theorem 1 fails: the last segment of the spline must lie on y = x, "
            f"which it does for {int(ends_as_x.sum())} of {ends_as_x.numel()} units"
        )
    slopes[..., -1] = 1.0
    zero = torch.zeros_like(slopes[..., :1])
    a = torch.cat([slopes.diff(dim=-1), zero - 1], -1).movedim(-1, 0)
    b = torch.cat([grid[..., 1:-1], zero], -1).movedim(-1, 0)
    return _unit(a, b, spline)


def to_prelu(unit: APL) -> nn.PReLU:
    """Return the PReLU that a layer is; an error says which unit is none.

    Example:
        >>> to_prelu(APL(8, init="leaky")).weight[:2].tolist()
        [0.25, 0.25]
    """
    if not isinstance(unit, APL):
        raise TypeError(f"unit must be an APL module, got {type(unit).__name__}")
    kinks = Kinks.of(unit)
    slopes, shape = kinks.slopes(), unit.unit_shape
    bent = (slopes.diff(dim=-1).abs() > 1e-7 * slopes.abs().amax(-1, keepdim=True)) & (
        kinks.position != 0
    )
    if bent.any():
        where = bent.any(-1).nonzero()[:1].flatten().tolist()
        raise ValueError(f"unit {where} bends elsewhere than at 0, so it is no PReLU")
    if len(shape) > 1 or (shape and unit.unit_dim != 1):
        raise ValueError(
            "nn.PReLU has one slope, or one for each index of axis 1, got units of shape "
            f"{shape} at unit_dim={unit.unit_dim}"
        )
    weight = -unit.slope.detach().sum(0).reshape(-1)
    prelu = nn.PReLU(weight.numel(), device=weight.device, dtype=weight.dtype)
    prelu.weight = nn.Parameter(weight, requires_grad=unit.slope.requires_grad)
    return prelu


def from_prelu(prelu: nn.PReLU, *, num_hinges: int = 1) -> APL:
    """Return the units that are a PReLU: one for the layer, or one for each channel.

    Example:
        >>> from_prelu(nn.PReLU(8))
        APL((8,), num_hinges=1, unit_dim=1)
    """
    weight = prelu.weight.detach()
    shape = () if weight.numel() == 1 else tuple(weight.shape)
    slope = -weight.cpu().double().reshape(1, *shape)
    form = with_spare_hinges(AffineForm(slope, slope.new_zeros(1)), num_hinges)
    unit = APL(
        shape,
        num_hinges,
        init=Hinges(form.slope, form.offset),
        device=weight.device,
        dtype=weight.dtype,
    )
    return unit.requires_grad_(prelu.weight.requires_grad)


def _own_grid(kinks: Kinks) -> Tensor:
    """Return the kinks of each unit and a point on either side; equal ones move to the right."""
    position = kinks.position
    twice = torch.zeros_like(position, dtype=torch.bool)
    twice[..., 1:] = position.diff(dim=-1) == 0
    index = torch.arange(1, position.shape[-1] + 1, device=position.device, dtype=position.dtype)
    # Wide enough to be seen in float32 beside kinks that are far from 0.
    step = (position.abs().amax(-1, keepdim=True) / 1024).clamp(min=1.0)
    moved = torch.where(twice, position[..., -1:] + step * index, position).sort(-1).values
    return torch.cat([moved[..., :1] - step, moved, moved[..., -1:] + step], -1)


def _check_on_grid(kinks: Kinks, grid: Tensor) -> None:
    bends = kinks.slopes().diff(dim=-1) != 0
    off = bends & ~torch.isin(kinks.position, grid[1:-1])
    if off.any():
        bend = float(kinks.position[off][0])
        raise ValueError(
            f"grid must contain every place where a curve bends, between its ends; {bend:g} is "
            "none of its inner points"
        )


def _unit(a: Tensor, b: Tensor, spline: LinearSpline) -> APL:
    shape = tuple(a.shape[1:])
    everywhere = a.new_full((a[0].numel(),), torch.inf)
    a, b, _ = reduce_hinges(
        a.reshape(len(a), -1), b.reshape(len(b), -1), -everywhere, everywhere, 0.0
    )
    needed = max(int((a != 0).sum(0).max()) if a.numel() else 0, 1)
    return APL(
        shape,
        needed,
        unit_dim=spline.unit_dim,
        init=Hinges(a[:needed].reshape(-1, *shape), b[:needed].reshape(-1, *shape)),
        device=spline.values.device,
        dtype=spline.values.dtype,
    )
