"""Best least-squares approximation by a continuous piecewise-linear function with free knots.

For given knots the heights are a linear problem. Putting its solution back leaves a function of the
knots alone (variable projection), which damped Gauss-Newton steps minimise from several starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

STEPS = 60


def best_knots(
    x: Tensor,
    y: Tensor,
    starts: Iterable[Tensor],
    basis: Callable[[Tensor], tuple[Tensor, Tensor]],
    bounds: tuple[float, float],
) -> Tensor:
    """Return the knots, ascending, whose least-squares error is the smallest found.

    Args:
        x: Positions of the samples, ascending.
        y: The samples.
        starts: Sets of knots to start from.
        basis: Gives the columns of the linear problem and their derivatives by the knots, for knots
            of shape (K,): ``(len(x), fixed + K)`` and ``(len(x), K)``.
        bounds: The knots stay between these.
    """
    descents = [_descend(y, _apart(start, bounds), basis, bounds) for start in starts]
    return min(descents, key=lambda pair: pair[0])[1]


def starts(x: Tensor, y: Tensor, count: int) -> list[Tensor]:
    """Return sets of knots: as dense as the curvature demands, even, and spread irregularly."""
    curvature = y.diff().diff().abs()
    # The ideal density for many knots is the 2/5th power of the curvature.
    density = (curvature + 1e-3 * curvature.mean() + 1e-300) ** 0.4
    cumulated = density.cumsum(0) / density.sum()

    def by_curvature(fractions: Tensor) -> Tensor:
        return x[1:-1][torch.searchsorted(cumulated, fractions).clamp(max=len(x) - 3)]

    index = torch.arange(count, dtype=x.dtype, device=x.device)
    even = (index + 0.5) / count
    # Multiples of the golden ratio fill an interval evenly but without symmetry, in which a descent
    # from a symmetric start is caught.
    irregular = [((index + 1 + shift) * 0.618033988749895 % 1).sort().values for shift in range(3)]
    candidates = [by_curvature(fractions) for fractions in (even, *irregular)]
    return [*candidates, x[0] + (x[-1] - x[0]) * even]


def solve(columns: Tensor, y: Tensor) -> Tensor:
    """Return the least-squares coefficients, also where columns repeat each other."""
    solution: Tensor = torch.linalg.lstsq(columns, y[:, None], driver="gelsd").solution
    return solution[:, 0]


def _descend(
    y: Tensor,
    knots: Tensor,
    basis: Callable[[Tensor], tuple[Tensor, Tensor]],
    bounds: tuple[float, float],
) -> tuple[float, Tensor]:
    damping = 1e-3
    error, jacobian, residual = _project(y, knots, basis)
    for _ in range(STEPS):
        normal = jacobian.T @ jacobian
        scale = normal.diagonal() + 1e-12 * normal.diagonal().max() + 1e-300
        step = torch.linalg.solve(normal + damping * scale.diag(), jacobian.T @ residual)
        trial = _apart(knots - step, bounds)
        trial_error, trial_jacobian, trial_residual = _project(y, trial, basis)
        if trial_error < error:
            gain = (error - trial_error) / error
            knots, error, jacobian, residual = trial, trial_error, trial_jacobian, trial_residual
            damping = max(damping / 5, 1e-9)
            if gain < 1e-7:
                break
        else:
            damping *= 5
            if damping > 1e6:
                break
    return error, knots


def _project(
    y: Tensor, knots: Tensor, basis: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> tuple[float, Tensor, Tensor]:
    """Return the squared error, its residual, and the residual's derivative by the knots."""
    columns, derivatives = basis(knots)
    orthogonal, triangle = torch.linalg.qr(columns)
    projected = orthogonal.T @ y
    coefficients = torch.linalg.solve_triangular(triangle, projected[:, None], upper=True)[:, 0]
    residual = y - orthogonal @ projected
    moves = -derivatives * coefficients[-knots.numel() :]
    jacobian = moves - orthogonal @ (orthogonal.T @ moves)
    return float(residual.square().sum()), jacobian, residual


def _apart(knots: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Sort the knots, keep them inside the bounds and apart, so that no two columns are equal."""
    low, high = bounds
    gap = 1e-3 * (high - low) / knots.numel()
    steps = gap * torch.arange(1, knots.numel() + 1, dtype=knots.dtype, device=knots.device)
    ascending = (knots.sort().values - steps).cummax(0).values + steps
    upper = high + (steps - steps[-1] - gap)
    return torch.maximum(torch.minimum(ascending, upper), low + steps)
