"""The public function: checks its arguments, then calls the operator."""

from __future__ import annotations

import operator
import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function_variadic

from torchapl import reference
from torchapl.ops import apl_operator, needs_plain_formula

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def apl(input: Tensor, slope: Tensor, offset: Tensor, *, unit_dim: int | None = None) -> Tensor:
    r"""Apply adaptive piecewise-linear units.

    .. math::
        h(x) = \max(0, x) + \sum_{s=1}^{S} a_s \max(0, b_s - x)

    Args:
        input: Any shape; float64, float32, bfloat16 or float16.
        slope: The :math:`a_s`, of shape ``(S, *unit_shape)``.
        offset: The :math:`b_s`, of the same shape and dtype. Parameters may be float32 where the
            input is of lower precision (autocast); their gradients are summed in at least float32.
        unit_dim: The axis of ``input`` at which ``unit_shape`` starts: 1 for ``(N, C, ...)``, -1
            for units on the last axis. 1 by default, with a warning where ``(N, C, L)`` might as
            well be ``(B, T, D)``. Without meaning for ``unit_shape == ()``, one unit for the whole
            layer.

    Returns:
        A tensor with the shape, dtype and memory format of ``input``.

    Example:
        >>> apl(torch.tensor([[-2.0, 3.0]]), torch.full((1, 2), -0.1), torch.zeros(1, 2))
        tensor([[-0.2000,  3.0000]])
    """
    output: Tensor
    if has_torch_function_variadic(input, slope, offset):
        # Proxies of torch.fx and modes see one call, as of any function of torch.
        tensors = (input, slope, offset)
        output = handle_torch_function(apl, tensors, *tensors, unit_dim=unit_dim)
        return output
    start = _check(input, slope, offset, unit_dim)
    # Forward-mode tangents flow through the plain formula: the operator has reverse mode alone.
    if forward_ad._current_level >= 0 or needs_plain_formula(input) or _is_exporting():
        return reference.apl(input, slope, offset, start)
    output = apl_operator(input, slope, offset, start)
    return output


def _is_exporting() -> bool:
    # An exported or traced program has to run where this package is not installed.
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]  # untyped
    return tracing or torch.compiler.is_exporting()


def _check(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int | None) -> int:
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
    axis = 1 if unit_dim is None else as_int("unit_dim", unit_dim)
    unit_shape = slope.shape[1:]
    if not unit_shape:
        return 0
    start = axis + input.dim() if axis < 0 else axis
    if not 0 <= start < input.dim():
        raise ValueError(
            f"unit_dim={axis} is not an axis of an input of shape {tuple(input.shape)}"
        )
    if input.shape[start : start + len(unit_shape)] != unit_shape:
        raise ValueError(
            f"units of shape {tuple(unit_shape)} do not fit input {tuple(input.shape)} at "
            f"unit_dim={axis}, where it has {tuple(input.shape[start : start + len(unit_shape)])}"
            f"{_where_it_fits(input.shape, unit_shape)}"
        )
    if unit_dim is None and input.dim() == 3 and input.shape[2:] == unit_shape:
        warnings.warn(
            f"units of shape {tuple(unit_shape)} fit two axes of an input of shape "
            f"{tuple(input.shape)} and take the first: give unit_dim=1 if it is (N, C, L), "
            "unit_dim=-1 if it is (B, T, D)",
            stacklevel=3,
        )
    return start


def _where_it_fits(shape: torch.Size, unit_shape: torch.Size) -> str:
    size = len(unit_shape)
    fits = [axis for axis in range(len(shape)) if shape[axis : axis + size] == unit_shape]
    # From the end, where a feature axis is whatever comes before.
    axes = " or ".join(f"unit_dim={axis if axis == 1 else axis - len(shape)}" for axis in fits)
    return f"; they fit at {axes}" if fits else ""


def as_int(name: str, value: int) -> int:
    """Return an integer of any kind, numpy's too, as Python's own."""
    # First: torch.compile knows a symbolic size as an int, but not its __index__.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    return operator.index(value)


def _name(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
