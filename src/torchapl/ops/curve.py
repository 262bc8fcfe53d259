r"""The operator ``torchapl::curve``: curves that are frozen for inference.

.. math::
    f(x) = k x + z + w \max(0, x - c) + \sum_s j_s \max(0, p_s - x)

with jumps j of the slope at the positions p. The line is (k, z, w, c), or empty for (0, 0, 1, 0):
an APL unit. A table, where it is not empty, holds the same curve as segments
(:mod:`torchapl.ops.table`); the C++ kernels take it where that is faster.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl import reference
from torchapl.ops.arguments import FLOATING, first_axis
from torchapl.ops.autograd import _autograd_kernel, _below_autograd, _ReverseModeFunction
from torchapl.ops.extension import explain_once
from torchapl.ops.schema import LIBRARY

LIBRARY.define(
    "curve(Tensor input, Tensor jump, Tensor position, Tensor line, Tensor table, int unit_dim) "
    "-> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
curve_operator = torch.ops.torchapl.curve.default


def evaluate(input: Tensor, jump: Tensor, position: Tensor, line: Tensor, unit_dim: int) -> Tensor:
    """Evaluate the curves in plain PyTorch: the definition, and what exported programs hold."""
    x, jumps, positions, lines = _broadcast(input, jump, position, line, unit_dim)
    output: Tensor
    if len(lines):
        skip, shift, scale, center = lines
        output = skip * x + shift + scale * F.relu(x - center)
    else:
        output = F.relu(x)
    for j, p in zip(jumps, positions, strict=True):
        output = output + j * F.relu(p - x)
    return output.to(input.dtype)


def slope_at(input: Tensor, jump: Tensor, position: Tensor, line: Tensor, unit_dim: int) -> Tensor:
    """Return the curves' derivative, for which max(0, x) has 0 at 0."""
    x, jumps, positions, lines = _broadcast(input, jump, position, line, unit_dim)
    skip, _, scale, center = lines if len(lines) else x.new_tensor([0.0, 0.0, 1.0, 0.0])
    slope: Tensor = skip + torch.where(x - center <= 0, 0.0, scale)
    for j, p in zip(jumps, positions, strict=True):
        # A NaN counts as active, as in the definition of the units.
        slope = slope - torch.where(p - x <= 0, 0.0, j)
    return slope


def _broadcast(
    input: Tensor, jump: Tensor, position: Tensor, line: Tensor, unit_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return all in the precision of the arithmetic, the numbers with the axes of the input."""
    dtype = reference.compute_dtype(input, jump, position)
    unit_dims = jump.dim() - 1
    start = first_axis(unit_dim, input.shape, unit_dims)
    trailing = (1,) * (input.dim() - start - unit_dims if unit_dims else 0)
    jumps, positions, lines = (
        numbers.reshape(*numbers.shape, *trailing).to(dtype) for numbers in (jump, position, line)
    )
    return input.to(dtype), jumps, positions, lines


def check(input: Tensor, jump: Tensor, position: Tensor, line: Tensor, unit_dim: int) -> None:
    """Refuse arguments that do not fit each other."""
    for name, tensor in (("input", input), ("jump", jump), ("position", position), ("line", line)):
        if tensor.dtype not in FLOATING:
            raise TypeError(f"{name} must be floating-point, got {tensor.dtype}")
    if jump.dim() == 0 or jump.shape != position.shape:
        raise ValueError(
            "jump and position must agree in a shape (hinges, *unit_shape), got "
            f"{tuple(jump.shape)} and {tuple(position.shape)}"
        )
    unit_shape = tuple(jump.shape[1:])
    if tuple(line.shape) not in ((0,), (4, *unit_shape)):
        raise ValueError(
            f"line must have the shape {(4, *unit_shape)}, or (0,) for max(0, x), got "
            f"{tuple(line.shape)}"
        )
    start = first_axis(unit_dim, input.shape, len(unit_shape))
    if tuple(input.shape[start : start + len(unit_shape)]) != unit_shape:
        raise ValueError(
            f"curves of shape {unit_shape} do not fit input {tuple(input.shape)} at "
            f"unit_dim={unit_dim}"
        )


class CurveFunction(_ReverseModeFunction):
    """The operator with the gradient of its input; the curves are frozen."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        input, jump, position, line, _, unit_dim = arguments
        if any(ctx.needs_input_grad[1:5]):
            raise RuntimeError("torchapl::curve has no gradient of its curves: they are frozen")
        ctx.save_for_backward(input, jump, position, line)
        ctx.unit_dim = unit_dim
        return cast(Tensor, _below_autograd(curve_operator, *arguments))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        input, jump, position, line = ctx.saved_tensors
        slope = slope_at(input, jump, position, line, ctx.unit_dim)
        return (grads[0] * slope).to(input.dtype), None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError("the operator torchapl::curve has no forward-mode derivative")


def _reference_curve(
    input: Tensor, jump: Tensor, position: Tensor, line: Tensor, table: Tensor, unit_dim: int
) -> Tensor:
    check(input, jump, position, line, unit_dim)
    explain_once(input)
    return torch.empty_like(input).copy_(evaluate(input, jump, position, line, unit_dim))


LIBRARY.impl("curve", _reference_curve, "CompositeExplicitAutograd")
LIBRARY.impl("curve", _autograd_kernel(CurveFunction), "Autograd")


@torch.library.register_fake("torchapl::curve", lib=LIBRARY)
def _fake_curve(
    input: Tensor, jump: Tensor, position: Tensor, line: Tensor, table: Tensor, unit_dim: int
) -> Tensor:
    check(input, jump, position, line, unit_dim)
    return torch.empty_like(input)


@torch.library.register_vmap("torchapl::curve", lib=LIBRARY)
def _mapped_curve(
    info: Any, in_dims: tuple[int | None, ...], *arguments: Any
) -> tuple[Tensor, int]:
    input, *numbers, unit_dim = arguments
    start = _unmapped_axis(unit_dim, arguments, in_dims)
    if all(dim is None for dim in in_dims[1:]):
        return curve_operator(input.movedim(in_dims[0] or 0, 0), *numbers, start + 1), 0
    # Curves of several models: the mapped axis is one more of the units, without a table.
    x, *hinges_and_line = (
        _with_batch(tensor, dim, info.batch_size, target)
        for tensor, dim, target in zip(arguments[:4], in_dims, (start, 1, 1, 1), strict=False)
    )
    return curve_operator(x, *hinges_and_line, x.new_empty(0, dtype=torch.float32), start), start


def _unmapped_axis(unit_dim: int, arguments: Any, in_dims: tuple[int | None, ...]) -> int:
    """Return the non-negative unit_dim of input and jumps as if they were not mapped."""
    input, jump = arguments[:2]
    shape = [size for d, size in enumerate(input.shape) if d != in_dims[0]]
    return first_axis(unit_dim, shape, jump.dim() - (1 if in_dims[1] is None else 2))


def _with_batch(tensor: Tensor, dim: int | None, size: int, target: int) -> Tensor:
    if not tensor.numel():
        return tensor.new_empty(0)
    if dim is None:
        tensor, dim = tensor.unsqueeze(0).expand(size, *tensor.shape), 0
    return tensor.movedim(dim, target)


def curve(
    input: Tensor, jump: Tensor, position: Tensor, line: Tensor, table: Tensor, unit_dim: int
) -> Tensor:
    """Call the operator; in plain eager mode without the way through the dispatcher and back."""
    arguments = (input, jump, position, line, table, unit_dim)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return cast(Tensor, curve_operator(*arguments))
    if input.requires_grad and torch.is_grad_enabled():
        return cast(Tensor, CurveFunction.apply(*arguments))
    with torch._C._AutoDispatchBelowAutograd():
        return cast(Tensor, curve_operator(*arguments))
