"""The operator ``torchapl::curve``: curves that are frozen for inference.

.. math::
    f(x) = r x + t + \\sum_k j_k \\max(0, p_k - x)

with jumps j of the slope at the positions p. An empty line (r, t) stands for max(0, x) in place of
r*x + t, which is how an APL unit begins. A table, where it is not empty, holds the same curve as
segments (:mod:`torchapl.ops.table`); the C++ kernels take it where that is faster.
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


def evaluate(
    input: Tensor, jump: Tensor, position: Tensor, line: Tensor, unit_dim: int
) -> Tensor:
    """Evaluate the curves in plain PyTorch: the definition, and what exported programs hold."""
    x, jumps, positions, lines = _broadcast(input, jump, position, line, unit_dim)
    output = lines[0] * x + lines[1] if len(lines) else F.relu(x)
    for j, p in zip(jumps, positions, strict=True):
        output = output + j * F.relu(p - x)
    return output.to(input.dtype)


def slope_at(
    input: Tensor, jump: Tensor, position: Tensor, line: Tensor, unit_dim: int
) -> Tensor:
    """Return the curves' derivative; at a kink that right of it, but 0 for max(0, x) at 0."""
    x, jumps, positions, lines = _broadcast(input, jump, position, line, unit_dim)
    slope = lines[0].expand_as(x) if len(lines) else torch.where(x <= 0, 0.0, torch.ones_like(x))
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
            "jump and position must agree in a shape (kinks, *unit_shape), got "
            f"{tuple(jump.shape)} and {tuple(position.shape)}"
        )
    unit_shape = tuple(jump.shape[1:])
    if tuple(line.shape) not in ((0,), (2, *unit_shape)):
        raise ValueError(
            f"line must have the shape {(2, *unit_shape)}, or (0,) for max(0, x), got "
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
    if any(dim is not None for dim in in_dims[1:]):
        # Curves of several models at once: rare enough for the definition.
        del numbers[3]
        dims = (*in_dims[:4], None)
        return torch.vmap(evaluate, dims)(input, *numbers, unit_dim), 0
    start = first_axis(unit_dim, input.shape[1:], numbers[0].dim() - 1)
    return curve_operator(input.movedim(in_dims[0] or 0, 0), *numbers, start + 1), 0


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
