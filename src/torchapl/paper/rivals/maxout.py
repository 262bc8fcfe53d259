"""Maxout (Goodfellow et al. 2013)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from torchapl.paper.rivals.pieces import check_input, check_pieces, split, winners


class Maxout(nn.Module):
    r"""Maxout units: the largest of k linear pieces, after a linear layer or a convolution.

    .. math::
        h_u = \max_{i < k} z_{i U + u}

    for U units and k·U inputs: piece i is the i-th block of U channels. Only the largest piece gets
    a gradient; of equal ones the first, and the last where the maximum is infinite or NaN. A NaN in
    a piece makes the unit NaN. Between forward and backward input and output are kept, no indices.

    Args:
        pieces: The k of the formula.
        dim: The axis of the channels: 1 for ``(N, C, ...)``, -1 for channels on the last axis.

    Shape:
        Input: ``pieces * U`` channels at ``dim``. Output: ``U`` channels there.

    Example:
        >>> layer = nn.Sequential(nn.Conv2d(3, 96 * 2, 8, padding=4), Maxout(2))
        >>> layer(torch.randn(1, 3, 32, 32)).shape
        torch.Size([1, 96, 33, 33])
    """

    def __init__(self, pieces: int, dim: int = 1) -> None:
        super().__init__()
        self.pieces = check_pieces(pieces)
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return maxout(input, self.pieces, dim=self.dim)

    def extra_repr(self) -> str:
        return f"{self.pieces}, dim={self.dim}"


def maxout(input: Tensor, pieces: int, *, dim: int = 1) -> Tensor:
    """Return the largest of the pieces of ``input``, see :class:`Maxout`.

    Example:
        >>> maxout(torch.tensor([[1.0, 5.0, 2.0, 3.0]]), 2)
        tensor([[2., 5.]])
    """
    dim = check_input(input, pieces, dim)
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
        return reference(input, pieces, dim)
    output: Tensor = _operator(input, pieces, dim)
    return output


def reference(input: Tensor, pieces: int, dim: int) -> Tensor:
    """Compute the same in plain, slow PyTorch that any transform can differentiate."""
    parts = split(input, pieces, dim)
    output = torch.zeros_like(parts[0])
    for piece, mask in zip(parts, winners(parts), strict=True):
        output = torch.where(mask, piece, output)
    # Adds nothing but the NaN of a piece that did not win.
    nan = torch.stack([piece.detach().isnan() for piece in parts]).any(dim=0)
    return output.masked_fill(nan, float("nan"))


@torch.library.custom_op("torchapl_paper::maxout", mutates_args=())
def _operator(input: Tensor, pieces: int, dim: int) -> Tensor:
    first, *others = split(input, pieces, dim)
    if not others:
        return first.clone()
    output = torch.maximum(first, others[0])
    for piece in others[1:]:
        torch.maximum(output, piece, out=output)
    return output


@torch.library.custom_op("torchapl_paper::maxout_backward", mutates_args=())
def _backward_operator(
    grad: Tensor, input: Tensor, output: Tensor, pieces: int, dim: int
) -> Tensor:
    # torch.where and masked_fill cost 3 ReLUs each on a CPU, these two kernels less than one.
    result = torch.empty_like(input)
    parts, results = split(input, pieces, dim), split(result, pieces, dim)
    rest = grad
    for index in range(pieces - 1):
        # 0 where this piece is the largest; its gradient is what does not pass on.
        gap = output - parts[index]
        passed = results[-1] if index == pieces - 2 else gap
        torch.ops.aten.threshold_backward.grad_input(rest, gap, 0, grad_input=passed)
        torch.sub(rest, passed, out=results[index])
        rest = passed
    if pieces == 1:
        results[0].copy_(grad)
    return result


@_operator.register_fake
def _fake(input: Tensor, pieces: int, dim: int) -> Tensor:
    return torch.empty_like(split(input, pieces, dim)[0])


@_backward_operator.register_fake
def _fake_backward(grad: Tensor, input: Tensor, output: Tensor, pieces: int, dim: int) -> Tensor:
    return torch.empty_like(input)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)
    ctx.pieces, ctx.dim = inputs[1:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _backward_operator(grad, *ctx.saved_tensors, ctx.pieces, ctx.dim), None, None


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.pieces, ctx.dim = inputs[3:]


def _backward_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gather: the gradient of routing is what arrives at the winner; it is linear in ``grad``."""
    (input,) = ctx.saved_tensors
    masks = winners(split(input, ctx.pieces, ctx.dim))
    parts = split(grad, ctx.pieces, ctx.dim)
    gathered = torch.zeros_like(parts[0])
    for piece, mask in zip(parts, masks, strict=True):
        gathered = torch.where(mask, piece, gathered)
    return gathered, None, None, None, None


torch.library.register_autograd(_operator, _gradient, setup_context=_save)
torch.library.register_autograd(
    _backward_operator, _backward_gradient, setup_context=_save_backward
)
