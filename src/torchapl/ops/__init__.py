"""The operators ``torchapl::apl`` and ``torchapl::apl_backward``.

Schema, fake kernels, autograd formula and vmap rule live here, and this is the only file that knows
all implementations. A kernel knows nothing of autograd or modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchapl import reference
from torchapl.ops import extension

_LIBRARY = torch.library.Library("torchapl", "DEF")
_LIBRARY.define(
    "apl(Tensor input, Tensor slope, Tensor offset, int unit_dim) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "apl_backward(Tensor grad, Tensor input, Tensor slope, Tensor offset, int unit_dim, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "apl_double_backward(Tensor? grad_input, Tensor? grad_slope, Tensor? grad_offset, Tensor grad, "
    "Tensor input, Tensor slope, Tensor offset, int unit_dim) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
apl_operator = torch.ops.torchapl.apl.default
backward_operator = torch.ops.torchapl.apl_backward.default


def needs_plain_formula(input: Tensor) -> bool:
    """Tell whether torch.func transforms are active that the operator's autograd does not take.

    torch.func.grad refuses torch.library.register_autograd, but not the extension's C++ autograd,
    which serves two kinds of devices.
    """
    if not torch._C._are_functorch_transforms_active():
        return False
    return not extension.is_loaded() or input.device.type not in ("cpu", "cuda")


def _reference_apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    extension.explain_once(input)
    return _laid_out_like(input, reference.apl(input, slope, offset, unit_dim))


def _reference_backward(
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    dx, da, db = reference.apl_backward(grad, input, slope, offset, unit_dim, output_mask)
    if output_mask[0]:
        dx = _laid_out_like(input, dx)
    return dx, *_parameter_gradients(slope, offset, da, db, output_mask)


def _parameter_gradients(
    slope: Tensor, offset: Tensor, da: Tensor, db: Tensor, output_mask: Sequence[bool]
) -> tuple[Tensor, Tensor]:
    return (
        _laid_out_like(slope, da) if output_mask[1] else da,
        _laid_out_like(offset, db) if output_mask[2] else db,
    )


def _laid_out_like(input: Tensor, result: Tensor) -> Tensor:
    # Broadcasting may choose other strides than relu would; the fake kernel promises relu's.
    output = torch.empty_like(input)
    return result if result.stride() == output.stride() else output.copy_(result)


def _triton_apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    if not extension.has_triton():
        return _reference_apl(input, slope, offset, unit_dim)
    # Imported on the first CUDA call: triton is large and absent from CPU installations.
    from torchapl.ops import triton

    return triton.apl(input, slope, offset, unit_dim)


def _triton_backward(
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    if not extension.has_triton():
        return _reference_backward(grad, input, slope, offset, unit_dim, output_mask)
    from torchapl.ops import triton

    dx, da, db = triton.apl_backward(grad, input, slope, offset, unit_dim, output_mask)
    return dx, *_parameter_gradients(slope, offset, da, db, output_mask)


def _double_backward(
    grad_input: Tensor | None,
    grad_slope: Tensor | None,
    grad_offset: Tensor | None,
    *arguments: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return reference.apl_double_backward((grad_input, grad_slope, grad_offset), *arguments)


# An operator only so that the C++ autograd can call it: plain PyTorch, differentiable again.
_LIBRARY.impl("apl_double_backward", _double_backward, "CompositeImplicitAutograd")

# Any device without a kernel of its own runs the reference.
_LIBRARY.impl("apl", _reference_apl, "CompositeExplicitAutograd")
_LIBRARY.impl("apl_backward", _reference_backward, "CompositeExplicitAutograd")


@torch.library.register_fake("torchapl::apl", lib=_LIBRARY)
def _fake_apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    return torch.empty_like(input)


@torch.library.register_fake("torchapl::apl_backward", lib=_LIBRARY)
def _fake_backward(
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    # Every gradient in the layout of what it belongs to, where autograd would bring it anyway.
    dx, da, db = (
        torch.empty_like(argument) if wanted else argument.new_empty(0)
        for argument, wanted in zip((input, slope, offset), output_mask, strict=True)
    )
    return dx, da, db


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    # input, slope, offset: nothing else is kept between forward and backward.
    ctx.save_for_backward(*inputs[:3])
    ctx.unit_dim = inputs[3]


def _apl_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    mask = ctx.needs_input_grad[:3]
    grads = backward_operator(grad, *ctx.saved_tensors, ctx.unit_dim, mask)
    return (*_only_wanted(grads, mask), None)


def _save_backward_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.unit_dim, ctx.output_mask = inputs[4:]


def _backward_gradient(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    # The empty stand-in of a gradient nobody asked for carries no gradient of its own.
    dx, da, db = _only_wanted(grads, ctx.output_mask)
    grad, input, slope, offset = ctx.saved_tensors
    doubles = reference.apl_double_backward((dx, da, db), grad, input, slope, offset, ctx.unit_dim)
    return (*_only_wanted(doubles, ctx.needs_input_grad[:4]), None, None)


def _only_wanted(values: Sequence[Tensor | None], mask: Sequence[bool]) -> list[Tensor | None]:
    return [value if wanted else None for value, wanted in zip(values, mask, strict=True)]


torch.library.register_autograd(
    "torchapl::apl", _apl_gradient, setup_context=_save_inputs, lib=_LIBRARY
)
torch.library.register_autograd(
    "torchapl::apl_backward", _backward_gradient, setup_context=_save_backward_inputs, lib=_LIBRARY
)


@torch.library.register_vmap("torchapl::apl", lib=_LIBRARY)
def _vmap_apl(
    info: Any,
    in_dims: tuple[int | None, ...],
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
) -> tuple[Tensor, int]:
    if in_dims[1] is None and in_dims[2] is None:
        return apl_operator(input.movedim(in_dims[0] or 0, 0), slope, offset, unit_dim + 1), 0
    x, a, b = _batch_as_units(info.batch_size, in_dims, (input, slope, offset), unit_dim)
    return apl_operator(x, a, b, unit_dim), unit_dim


@torch.library.register_vmap("torchapl::apl_backward", lib=_LIBRARY)
def _vmap_backward(
    info: Any,
    in_dims: tuple[Any, ...],
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int | None, int | None, int | None]]:
    # Parameter gradients are per sample, so the batch is always an axis of the units.
    x, a, b = _batch_as_units(info.batch_size, in_dims[1:], (input, slope, offset), unit_dim)
    g = _with_batch(grad, in_dims[0], info.batch_size, unit_dim)
    grads = backward_operator(g, x, a, b, unit_dim, output_mask)
    dims = [
        dim if wanted else None for dim, wanted in zip((unit_dim, 1, 1), output_mask, strict=True)
    ]
    return grads, (dims[0], dims[1], dims[2])


@torch.library.register_vmap("torchapl::apl_double_backward", lib=_LIBRARY)
def _vmap_double_backward(
    info: Any, in_dims: tuple[int | None, ...], *arguments: Any
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *tensors, unit_dim = arguments
    axes = (unit_dim, 1, 1, unit_dim, unit_dim, 1, 1)
    batched = [
        None if tensor is None else _with_batch(tensor, dim, info.batch_size, axis)
        for tensor, dim, axis in zip(tensors, in_dims, axes, strict=False)
    ]
    return _double_backward(*batched, unit_dim), (unit_dim, unit_dim, 1, 1)


def _batch_as_units(
    size: int,
    in_dims: Sequence[int | None],
    tensors: tuple[Tensor, Tensor, Tensor],
    unit_dim: int,
) -> list[Tensor]:
    """Put the mapped axis before the units' axes: (S, B, *unit_shape) at the same unit_dim."""
    axes = (unit_dim, 1, 1)
    return [
        _with_batch(tensor, dim, size, axis)
        for tensor, dim, axis in zip(tensors, in_dims, axes, strict=False)
    ]


def _with_batch(tensor: Tensor, dim: int | None, size: int, axis: int) -> Tensor:
    if dim is None:
        tensor, dim = tensor.unsqueeze(0).expand(size, *tensor.shape), 0
    return tensor.movedim(dim, axis)


_LIBRARY.impl("apl", _triton_apl, "CUDA")
_LIBRARY.impl("apl_backward", _triton_backward, "CUDA")
extension.load()
