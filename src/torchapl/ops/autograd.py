"""Reverse mode in Python, where there is no node in C++ for the torch at hand.

The functions are those of ``torch.autograd`` for a single level, which the dispatcher has chosen.
So ``torch.func``, which refuses what ``torch.library.register_autograd`` makes, takes them like the
nodes of built-in operators, and calls are not bound to a signature: forward and backward of ten
elements take half as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.function import _SingleLevelFunction

from torchapl.ops.schema import (
    LIBRARY,
    apl_operator,
    backward_operator,
    double_backward_operator,
)


class _ReverseModeFunction(_SingleLevelFunction):
    apply: ClassVar[Callable[..., Any]]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(
            "the operator torchapl::apl has no forward-mode derivative; torchapl.apl() has"
        )

    @staticmethod
    def _compiled_autograd_key(ctx: Any) -> tuple[int]:
        return (ctx._autograd_function_id,)


class AplFunction(_ReverseModeFunction):
    """The operator with its gradient; nothing but the arguments is kept for the backward pass."""

    # The dispatcher has peeled off the levels of torch.func, so setup_context has no use here, and
    # a call of it takes as long as half a ReLU.
    @staticmethod
    def forward(ctx: Any, input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
        ctx.save_for_backward(input, slope, offset)
        ctx.unit_dim = unit_dim
        return cast(Tensor, _below_autograd(apl_operator, input, slope, offset, unit_dim))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[:3]
        arguments = (*grads, *ctx.saved_tensors, ctx.unit_dim, wanted)
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            # create_graph=True: the backward operator has a derivative of its own.
            dx, da, db = backward_operator(*arguments)
        else:
            dx, da, db = _below_autograd(backward_operator, *arguments)
        if all(wanted):
            return dx, da, db, None
        return (*_only_wanted((dx, da, db), wanted), None)


class AplBackwardFunction(_ReverseModeFunction):
    """The backward operator with its gradient, which is plain PyTorch."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(*arguments[:4])
        ctx.unit_dim, ctx.output_mask = arguments[4:]
        # A result that nobody used has no gradient, in place of zeros.
        ctx.set_materialize_grads(False)
        results = _below_autograd(backward_operator, *arguments)
        return cast(tuple[Tensor, Tensor, Tensor], results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        # The empty stand-in of a gradient nobody asked for carries no gradient of its own.
        dx, da, db = _only_wanted(grads, ctx.output_mask)
        doubles = double_backward_operator(dx, da, db, *ctx.saved_tensors, ctx.unit_dim)
        return (*_only_wanted(doubles, ctx.needs_input_grad[:4]), None, None)


def _below_autograd(operator: Callable[..., Any], *arguments: Any) -> Any:
    if not torch._C._are_functorch_transforms_active():
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)
    # A function's forward runs without grad mode, but the levels of torch.func below need it.
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def _only_wanted(values: Sequence[Tensor | None], mask: Sequence[bool]) -> list[Tensor | None]:
    return [value if wanted else None for value, wanted in zip(values, mask, strict=True)]


def _autograd_kernel(function: type[_ReverseModeFunction]) -> Callable[..., Any]:
    apply: Callable[..., Any] = function.apply

    def kernel(*arguments: Any) -> Any:
        if not torch._C._are_functorch_transforms_active():
            return apply(*arguments)
        # The dispatcher has peeled off the levels above; those below are met further down.
        with enable_single_level_autograd_function():
            return apply(*arguments)

    return kernel


LIBRARY.impl("apl", _autograd_kernel(AplFunction), "Autograd")
LIBRARY.impl("apl_backward", _autograd_kernel(AplBackwardFunction), "Autograd")


def apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    """Call the operator; in plain eager mode without the way through the dispatcher and back."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return cast(Tensor, apl_operator(input, slope, offset, unit_dim))
    needs_grad = input.requires_grad or slope.requires_grad or offset.requires_grad
    if needs_grad and torch.is_grad_enabled():
        return cast(Tensor, AplFunction.apply(input, slope, offset, unit_dim))
    return cast(Tensor, _below_autograd(apl_operator, input, slope, offset, unit_dim))
