r"""The adaptive piecewise-linear unit and its gradients in plain PyTorch: the definition.

.. math::
    h(x) = \max(0, x) + \sum_{s=1}^{S} a_s \max(0, b_s - x)

Every kernel of this package is compared with these functions. They take a non-negative ``unit_dim``
and arguments that :func:`torchapl.apl` has checked.

``relu`` and not ``clamp`` or ``maximum``: their derivatives at 0 are 0, 1 and 0.5, and the
authors' layer has 0. A NaN counts as active, as in ``torch.relu``: it must reach the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the precision of the arithmetic: the widest of the arguments, at least float32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    """Evaluate the units; the result has the input's dtype."""
    x, a, b = _prepare(input, slope, offset, unit_dim)

    output = F.relu(x)
    for a_s, b_s in zip(a, b, strict=True):
        output = output + a_s * F.relu(b_s - x)
    return output.to(input.dtype)


def apl_backward(
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of input, slope and offset; an empty tensor where the mask is false."""
    x, a, b = _prepare(input, slope, offset, unit_dim)
    g = grad.to(x.dtype)
    summed = _summed_dims(input, slope, unit_dim)

    dx = _where_active(x, g)
    da, db = [], []
    for a_s, b_s in zip(a, b, strict=True):
        gate = b_s - x
        passed = _where_active(gate, g)
        dx = dx - a_s * passed
        # Not passed * gate: 0 times an infinite gate would be NaN.
        da.append(_sum(g * F.relu(gate), summed))
        db.append(_sum(passed, summed))

    results = (
        dx.to(input.dtype),
        torch.stack(da).reshape(slope.shape).to(slope.dtype),
        (slope.to(x.dtype) * torch.stack(db).reshape(offset.shape)).to(offset.dtype),
    )
    dx, da_all, db_all = (
        result if wanted else result.new_empty(0)
        for result, wanted in zip(results, output_mask, strict=True)
    )
    return dx, da_all, db_all


def apl_double_backward(
    grads: tuple[Tensor | None, Tensor | None, Tensor | None],
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of ``apl_backward`` with respect to grad, input, slope and offset.

    ``grads`` belong to the three results of ``apl_backward``. Plain PyTorch, hence differentiable
    again.
    """
    x, a, b = _prepare(input, slope, offset, unit_dim)
    g = grad.to(x.dtype)
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    v = zero if grads[0] is None else grads[0].to(x.dtype)
    va, vb = (
        zero.expand_as(like) if value is None else _broadcast(value, input, unit_dim).to(x.dtype)
        for value, like in ((grads[1], a), (grads[2], b))
    )
    summed = _summed_dims(input, slope, unit_dim)

    dg = _where_active(x, v.expand_as(x))
    dx = torch.zeros_like(x)
    da, db = [], []
    for a_s, b_s, va_s, vb_s in zip(a, b, va, vb, strict=True):
        gate = b_s - x
        active = _where_active(gate, torch.ones_like(x))
        dg = dg + va_s * F.relu(gate) + active * (vb_s - v) * a_s
        dx = dx - active * va_s * g
        da.append(_sum(active * (vb_s - v) * g, summed))
        db.append(_sum(active * va_s * g, summed))

    return (
        dg.to(grad.dtype),
        dx.to(input.dtype),
        torch.stack(da).reshape(slope.shape).to(slope.dtype),
        torch.stack(db).reshape(offset.shape).to(offset.dtype),
    )


def _prepare(
    input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(input, slope, offset)
    a, b = (_broadcast(parameter, input, unit_dim).to(dtype) for parameter in (slope, offset))
    return input.to(dtype), a, b


def _broadcast(parameter: Tensor, input: Tensor, unit_dim: int) -> Tensor:
    # (S, *unit_shape) -> (S, *unit_shape, 1, ...), so that one hinge broadcasts against the input.
    unit_dims = parameter.dim() - 1
    trailing = input.dim() - unit_dim - unit_dims if unit_dims else 0
    return parameter.reshape(tuple(parameter.shape) + (1,) * trailing)


def _summed_dims(input: Tensor, slope: Tensor, unit_dim: int) -> list[int]:
    unit_dims = slope.dim() - 1
    return [d for d in range(input.dim()) if not unit_dim <= d < unit_dim + unit_dims]


def _sum(values: Tensor, dims: list[int]) -> Tensor:
    # sum(dim=[]) would sum over everything.
    return values.sum(dims) if dims else values


def _where_active(gate: Tensor, value: Tensor) -> Tensor:
    return torch.where(gate <= 0, 0.0, value)
