"""The operators ``torchapl::apl`` and ``torchapl::apl_backward``: which kernel serves which device.

A kernel knows nothing of autograd or modules.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchapl import reference
from torchapl.ops import autograd, extension, vmap  # noqa: F401  # vmap registers its rules
from torchapl.ops.arguments import check, check_grad, first_axis
from torchapl.ops.schema import LIBRARY, apl_operator, backward_operator

__all__ = ["apl", "apl_operator", "backward_operator"]


def _reference_apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    unit_dim = check(input, slope, offset, unit_dim)
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
    unit_dim = check(input, slope, offset, unit_dim)
    check_grad(grad, input)
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

    unit_dim = check(input, slope, offset, unit_dim)
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

    unit_dim = check(input, slope, offset, unit_dim)
    check_grad(grad, input)
    dx, da, db = triton.apl_backward(grad, input, slope, offset, unit_dim, output_mask)
    return dx, *_parameter_gradients(slope, offset, da, db, output_mask)


def _double_backward(
    grad_input: Tensor | None,
    grad_slope: Tensor | None,
    grad_offset: Tensor | None,
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    unit_dim = first_axis(unit_dim, input.shape, slope.dim() - 1)
    grads = (grad_input, grad_slope, grad_offset)
    return reference.apl_double_backward(grads, grad, input, slope, offset, unit_dim)


# An operator only so that the C++ autograd can call it: plain PyTorch, differentiable again.
LIBRARY.impl("apl_double_backward", _double_backward, "CompositeImplicitAutograd")

# Any device without a kernel of its own runs the reference.
LIBRARY.impl("apl", _reference_apl, "CompositeExplicitAutograd")
LIBRARY.impl("apl_backward", _reference_backward, "CompositeExplicitAutograd")
LIBRARY.impl("apl", _triton_apl, "CUDA")
LIBRARY.impl("apl_backward", _triton_backward, "CUDA")


@torch.library.register_fake("torchapl::apl", lib=LIBRARY)
def _fake_apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    check(input, slope, offset, unit_dim)
    return torch.empty_like(input)


@torch.library.register_fake("torchapl::apl_backward", lib=LIBRARY)
def _fake_backward(
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    check(input, slope, offset, unit_dim)
    check_grad(grad, input)
    # Every gradient in the layout of what it belongs to, where autograd would bring it anyway.
    dx, da, db = (
        torch.empty_like(argument) if wanted else argument.new_empty(0)
        for argument, wanted in zip((input, slope, offset), output_mask, strict=True)
    )
    return dx, da, db


extension.load()
# What calls the operator with the least delay: the C++ node is reached through the dispatcher.
apl = apl_operator if extension.has_node() else autograd.apl
