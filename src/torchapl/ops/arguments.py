"""What the operators take: the C++ kernels check it themselves, all others call :func:`check`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> int:
    """Refuse arguments that do not fit each other and return a non-negative ``unit_dim``."""
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
    start = first_axis(unit_dim, input.shape, slope.dim() - 1)
    sizes = input.shape[start : start + slope.dim() - 1]
    if sizes != slope.shape[1:]:
        raise ValueError(
            f"units of shape {tuple(slope.shape[1:])} do not fit input {tuple(input.shape)} at "
            f"unit_dim={unit_dim}, where it has {tuple(sizes)}"
            f"{_where_they_fit(input.shape, slope.shape[1:])}"
        )
    return start


def _where_they_fit(shape: torch.Size, unit_shape: torch.Size) -> str:
    size = len(unit_shape)
    fits = [axis for axis in range(len(shape)) if shape[axis : axis + size] == unit_shape]
    # From the end, where a feature axis is whatever comes before.
    axes = " or ".join(f"unit_dim={axis if axis == 1 else axis - len(shape)}" for axis in fits)
    return f"; they fit at {axes}" if fits else ""


def first_axis(unit_dim: int, input_shape: Sequence[int], unit_dims: int) -> int:
    """Return the non-negative axis of an input where its units start, 0 for a single unit."""
    if unit_dims == 0:
        return 0
    start = unit_dim + len(input_shape) if unit_dim < 0 else unit_dim
    if not 0 <= start < len(input_shape):
        raise ValueError(
            f"unit_dim={unit_dim} is not an axis of an input of shape {tuple(input_shape)}"
        )
    return start


def check_grad(grad: Tensor, input: Tensor) -> None:
    """Refuse a gradient that does not belong to a result for ``input``."""
    if grad.shape != input.shape or grad.device != input.device or grad.dtype not in FLOATING:
        raise ValueError(
            f"grad must have the shape and device of the input, {_name(input)} on {input.device}, "
            f"got {_name(grad)} on {grad.device}"
        )


def _name(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
