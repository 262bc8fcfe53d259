"""How ``torch.func.vmap`` maps the operators: an axis more of the input, or of the units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchapl.ops.arguments import first_axis
from torchapl.ops.schema import (
    LIBRARY,
    apl_operator,
    backward_operator,
    double_backward_operator,
)


@torch.library.register_vmap("torchapl::apl", lib=LIBRARY)
def _apl(
    info: Any,
    in_dims: tuple[int | None, ...],
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
) -> tuple[Tensor, int]:
    unit_dim = _first_axis(unit_dim, (input, slope), in_dims)
    if in_dims[1] is None and in_dims[2] is None:
        return apl_operator(input.movedim(in_dims[0] or 0, 0), slope, offset, unit_dim + 1), 0
    x, a, b = _batch_as_units(info.batch_size, in_dims, (input, slope, offset), unit_dim)
    return apl_operator(x, a, b, unit_dim), unit_dim


@torch.library.register_vmap("torchapl::apl_backward", lib=LIBRARY)
def _backward(
    info: Any,
    in_dims: tuple[Any, ...],
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int | None, int | None, int | None]]:
    unit_dim = _first_axis(unit_dim, (input, slope), in_dims[1:])
    # Parameter gradients are per sample, so the batch is always an axis of the units.
    x, a, b = _batch_as_units(info.batch_size, in_dims[1:], (input, slope, offset), unit_dim)
    g = _with_batch(grad, in_dims[0], info.batch_size, unit_dim)
    grads = backward_operator(g, x, a, b, unit_dim, output_mask)
    dims = [
        dim if wanted else None for dim, wanted in zip((unit_dim, 1, 1), output_mask, strict=True)
    ]
    return grads, (dims[0], dims[1], dims[2])


@torch.library.register_vmap("torchapl::apl_double_backward", lib=LIBRARY)
def _double_backward(
    info: Any, in_dims: tuple[int | None, ...], *arguments: Any
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *tensors, unit_dim = arguments
    unit_dim = _first_axis(unit_dim, tensors[4:6], in_dims[4:6])
    targets = (unit_dim, 1, 1, unit_dim, unit_dim, 1, 1)
    batched = [
        None if tensor is None else _with_batch(tensor, dim, info.batch_size, target)
        for tensor, dim, target in zip(tensors, in_dims, targets, strict=False)
    ]
    return double_backward_operator(*batched, unit_dim), (unit_dim, unit_dim, 1, 1)


def _first_axis(unit_dim: int, tensors: Sequence[Tensor], in_dims: Sequence[int | None]) -> int:
    """Return the non-negative unit_dim of an input and a slope as if they were not mapped."""
    shapes = [
        [size for d, size in enumerate(tensor.shape) if d != dim]
        for tensor, dim in zip(tensors, in_dims, strict=False)
    ]
    return first_axis(unit_dim, shapes[0], len(shapes[1]) - 1)


def _batch_as_units(
    size: int,
    in_dims: Sequence[int | None],
    tensors: tuple[Tensor, Tensor, Tensor],
    unit_dim: int,
) -> list[Tensor]:
    """Put the mapped axis before the units' axes: (S, B, *unit_shape) at the same unit_dim."""
    targets = (unit_dim, 1, 1)
    return [
        _with_batch(tensor, dim, size, target)
        for tensor, dim, target in zip(tensors, in_dims, targets, strict=False)
    ]


def _with_batch(tensor: Tensor, dim: int | None, size: int, target: int) -> Tensor:
    if dim is None:
        tensor, dim = tensor.unsqueeze(0).expand(size, *tensor.shape), 0
    return tensor.movedim(dim, target)
