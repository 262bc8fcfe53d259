"""Tensors as the GPU kernels want them: maps in one memory order, parameters as (hinges, units)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchapl.ops.geometry import Collapsed, inverse, strides_of_view


def readable(
    grad: Tensor, like: Tensor, slope: Tensor, unit_dim: int
) -> tuple[Tensor, Sequence[int | None]]:
    """Return a gradient and its strides along (outer, units, inner), None for those of ``like``.

    The gradient of a sum or of an average over the map is expanded, that of a concatenation a
    slice: both are read in place. Any other layout is copied.
    """
    if not _lies_like(like, grad):
        layout = (tuple(like.shape), like.stride(), unit_dim, slope.dim() - 1)
        strides = strides_of_view(*layout, grad.stride())
        if strides is not None:
            return grad, strides
    return laid_out_like(like, grad), (None, None, None)


def _lies_like(like: Tensor, tensor: Tensor) -> bool:
    strides = zip(like.shape, like.stride(), tensor.stride(), strict=True)
    return all(size == 1 or wanted == actual for size, wanted, actual in strides)


def laid_out_like(like: Tensor, tensor: Tensor) -> Tensor:
    """Return the tensor with the strides of ``like``, itself if it has them."""
    if _lies_like(like, tensor):
        return tensor
    copy = torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def flatten(parameter: Tensor, geometry: Collapsed) -> Tensor:
    """Return a parameter as (hinges, units), the units in the order of the input's memory."""
    axes = [1 + axis for axis in geometry.unit_order]
    return parameter.permute(0, *axes).reshape(len(parameter), geometry.units).contiguous()


def unflatten(partial: Tensor | None, parameter: Tensor, geometry: Collapsed) -> Tensor:
    """Add up the partial sums to a gradient like the parameter; an empty one for None."""
    if partial is None:
        return parameter.new_empty(0)
    total = partial.sum(0) if len(partial) > 1 else partial[0]
    shape = [parameter.shape[1 + axis] for axis in geometry.unit_order]
    axes = [1 + axis for axis in inverse(geometry.unit_order)]
    gradient = total.view(len(parameter), *shape).permute(0, *axes)
    return gradient.to(parameter.dtype).contiguous()
