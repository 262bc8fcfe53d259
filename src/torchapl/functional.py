"""The public function: calls the operator and explains what it refuses."""

from __future__ import annotations

import operator
import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function_variadic

from torchapl import ops, reference
from torchapl.ops import extension
from torchapl.ops.arguments import FLOATING, check

__all__ = ["FLOATING", "apl", "as_int"]


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
    if _apl_directly is not None and not torch.compiler.is_dynamo_compiling():
        output = _apl_directly(input, slope, offset, unit_dim)
        if output is not NotImplemented:
            return output
    if has_torch_function_variadic(input, slope, offset):
        # Proxies of torch.fx and modes see one call, as of any function of torch.
        tensors = (input, slope, offset)
        output = handle_torch_function(apl, tensors, *tensors, unit_dim=unit_dim)
        return output
    if unit_dim is None:
        axis = 1
        if isinstance(input, Tensor) and input.dim() == 3:
            _warn_of_two_axes(input, slope)
    else:
        axis = unit_dim if type(unit_dim) is int else as_int("unit_dim", unit_dim)
    # Forward-mode tangents flow through the plain formula: the operator has reverse mode alone.
    if forward_ad._current_level >= 0 or _is_exporting():
        return reference.apl(input, slope, offset, check(input, slope, offset, axis))
    try:
        return ops.apl(input, slope, offset, axis)
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        failure = error
    # Checked only now, because that takes longer than the operator's own checks; here the arguments
    # have names.
    check(input, slope, offset, axis)
    raise failure


def _warn_of_two_axes(input: Tensor, slope: Tensor) -> None:
    # A compiled or exported graph holds no warning, and to compare its sizes would bind them.
    if torch.compiler.is_compiling() or _is_exporting():
        return
    _, channels, last = input.shape
    if channels != last or slope.shape[1:] != (last,):
        return
    warnings.warn(
        f"units of shape ({last},) fit two axes of an input of shape {tuple(input.shape)} and take "
        "the first: give unit_dim=1 if it is (N, C, L), unit_dim=-1 if it is (B, T, D)",
        stacklevel=3,
    )


def _is_exporting() -> bool:
    # An exported or traced program has to run where this package is not installed.
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]  # untyped
    # Not is_exporting(), which torch 2.10 takes for true under torch.compile as well.
    return tracing or torch.compiler._is_exporting_flag


# For plain tensors outside of any mode, transform or trace: one call from Python to the operator.
_apl_directly = extension.direct_call()


def as_int(name: str, value: int) -> int:
    """Return an integer of any kind, numpy's too, as Python's own."""
    # First: torch.compile knows a symbolic size as an int, but not its __index__.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    return operator.index(value)
