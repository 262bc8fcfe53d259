"""How close a kernel must come to the exact result: derived from what eager PyTorch achieves.

The exact result is the definition once more, in extended precision, which measures errors of
float64 too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torchapl import reference

Errors = tuple[float, float, float]


def errors(
    actual: Sequence[Tensor], grad: Tensor, x: Tensor, a: Tensor, b: Tensor, dim: int
) -> list[Errors]:
    """Return the largest error of y, dx, da and db, eager PyTorch's, and one rounding."""
    return judge(grad, x, a, b, dim)(actual)


def judge(
    grad: Tensor, x: Tensor, a: Tensor, b: Tensor, dim: int
) -> Callable[[Sequence[Tensor]], list[Errors]]:
    """Return what tells the errors of any implementation's results for these inputs."""
    eager = (reference.apl(x, a, b, dim), *reference.apl_backward(grad, x, a, b, dim))
    exact = _apl_and_gradients(grad, x, a, b, dim)
    allowed = [
        (
            abs(_extended(theirs) - truth).max(initial=0),
            (torch.finfo(theirs.dtype).eps * abs(truth)).max(initial=0),
        )
        for theirs, truth in zip(eager, exact, strict=True)
    ]

    def errors_of(actual: Sequence[Tensor]) -> list[Errors]:
        found = []
        for ours, theirs, truth, limits in zip(actual, eager, exact, allowed, strict=True):
            assert ours.shape == theirs.shape == truth.shape
            assert ours.dtype == theirs.dtype
            found.append((abs(_extended(ours) - truth).max(initial=0), *limits))
        return found

    return errors_of


def assert_as_accurate_as_eager(draws: Sequence[list[Errors]]) -> None:
    """Allow twice the error of eager PyTorch plus one rounding, each the largest of some draws.

    In a single draw eager may by chance have no error at all, in sums of few elements above all.
    """
    for quantity in zip(*draws, strict=True):
        own, of_eager, one_rounding = map(max, zip(*quantity, strict=True))
        assert own <= 2 * of_eager + one_rounding


def _apl_and_gradients(
    grad: Tensor, x_: Tensor, a_: Tensor, b_: Tensor, dim: int
) -> tuple[Any, Any, Any, Any]:
    """Return y, dx, da and db; a plain sum of extended numbers is exact enough for float64."""
    unit_dims = a_.dim() - 1
    trailing = x_.dim() - dim - unit_dims if unit_dims else 0
    g, x = _extended(grad), _extended(x_)
    a, b = (_extended(p).reshape(tuple(p.shape) + (1,) * trailing) for p in (a_, b_))
    summed = tuple(d for d in range(x.ndim) if not dim <= d < dim + unit_dims)

    y, dx = np.maximum(x, 0), np.where(x > 0, g, 0)
    da, db = np.empty_like(_extended(a_)), np.empty_like(_extended(b_))
    for s in range(len(a)):
        passed = np.where(b[s] > x, g, 0)
        y = y + a[s] * np.maximum(b[s] - x, 0)
        dx = dx - a[s] * passed
        da[s] = (passed * (b[s] - x)).sum(summed).reshape(da[s].shape)
        db[s] = (a[s] * passed).sum(summed).reshape(db[s].shape)
    return y, dx, da, db


def _extended(tensor: Tensor) -> Any:
    if tensor.dtype == torch.float64 and np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long double is no wider than double here")
    return tensor.detach().cpu().double().numpy().astype(np.longdouble)
