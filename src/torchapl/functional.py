"""The public function: checks its arguments, then calls the operator."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchapl import reference
from torchapl.ops import apl_operator, needs_plain_formula

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def apl(input: Tensor, slope: Tensor, offset: Tensor, *, unit_dim: int = 1) -> Tensor:
    r"""Apply adaptive piecewise-linear units.

    .. math::
        h(x) = \max(0, x) + \sum_{s=1}^{S} a_s \max(0, b_s - x)

    Args:
        input: Any shape; float64, float32, bfloat16 or float16.
        slope: The :math:`a_s`, of shape ``(S, *unit_shape)``.
        offset: The :math:`b_s`, of the same shape and dtype. Parameters may be float32 where the
            input is of lower precision (autocast); their gradients are summed in at least float32.
        unit_dim: The axis of ``input`` at which ``unit_shape`` starts: 1 for ``(N, C, ...)``, -1
            for units on the last axis. Without meaning for ``unit_shape == ()``, one unit for the
            whole layer.

    Returns:
        A tensor with the shape, dtype and memory format of ``input``.

    Example:
        >>> apl(torch.tensor([[-2.0, 3.0]]), torch.full((1, 2), -0.1), torch.zeros(1, 2))
        tensor([[-0.2000,  3.0000]])
    """
    unit_dim = _check(input, slope, offset, unit_dim)
    # Forward-mode tangents flow through the plain formula: the operator has reverse mode alone. An
    # exported program has to run where this package is not installed.
    if forward_ad._current_level >= 0 or needs_plain_formula() or torch.compiler.is_exporting():
        return reference.apl(input, slope, offset, unit_dim)
    output: Tensor = apl_operator(input, slope, offset, unit_dim)
    return output


def _check(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> int:
    """Refuse what the kernels do not take and return a non-negative ``unit_dim``."""
    for name, tensor in (("input", input), ("slope", slope), ("offset", offset)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dtype not in FLOATING:
            raise TypeError(
                f"{name} must be float64, float32, bfloat16 or float16, got {tensor.dtype}"
            )
    if slope.shape != offset.shape or slope.dtype != offset.dtype:
        raise ValueError(f"slope and offset must agree, got {_name(slope)} and {_name(offset)}")
    if not input.device == slope.device == offset.device:
        raise ValueError(
            "input, slope and offset must be on one device, got "
            f"{input.device}, {slope.device} and {offset.device}"
        )
    if slope.dim() == 0 or slope.shape[0] == 0:
        raise ValueError(
            "slope must have the shape (num_hinges, *unit_shape) with at least one hinge, "
            f"got {tuple(slope.shape)}"
        )
    if not isinstance(unit_dim, int) or isinstance(unit_dim, bool):
        raise TypeError(f"unit_dim must be an int, got {type(unit_dim).__name__}")
    unit_dims = slope.dim() - 1
    if unit_dims == 0:
        return 0
    start = unit_dim + input.dim() if unit_dim < 0 else unit_dim
    if not 0 <= start < input.dim():
        raise ValueError(
            f"unit_dim={unit_dim} is not an axis of an input of shape {tuple(input.shape)}"
        )
    if input.shape[start : start + unit_dims] != slope.shape[1:]:
        raise ValueError(
            f"units of shape {tuple(slope.shape[1:])} do not fit input {tuple(input.shape)} at "
            f"unit_dim={unit_dim}, where it has {tuple(input.shape[start : start + unit_dims])}"
        )
    return start


def _name(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
