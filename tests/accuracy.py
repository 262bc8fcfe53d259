"""How close a kernel must come to the exact result: derived from what eager PyTorch achieves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchapl import reference

Arguments = tuple[Tensor, Tensor, Tensor, int]


def assert_as_accurate_as_eager(
    actual: Tensor, eager: Tensor, exact: Tensor, own_error: float | Tensor = 0.0
) -> None:
    """Allow twice the error of eager PyTorch in the same precision, plus one rounding.

    ``own_error`` is the part of eager's error that ``exact``, computed in float64, has as well.
    """
    assert actual.shape == eager.shape
    assert actual.dtype == eager.dtype
    if actual.numel() == 0:
        return
    error = (eager.double() - exact).abs().max()
    rounding = torch.finfo(actual.dtype).eps * exact.abs().max()
    allowed = 2 * (error + own_error) + own_error + rounding
    assert (actual.double() - exact).abs().max() <= allowed


def assert_values(actual: Tensor, arguments: Arguments) -> None:
    """Compare a result of the operator with the definition."""
    _compare([actual], arguments, lambda *all: [reference.apl(*all)])


def assert_gradients(
    actual: Sequence[Tensor],
    grad: Tensor,
    arguments: Arguments,
    mask: Sequence[bool] = (True, True, True),
) -> None:
    """Compare the results of the backward operator with the definition."""
    _compare(
        actual,
        arguments,
        lambda *all: reference.apl_backward(grad.to(all[0].dtype), *all, mask),
    )


def _compare(
    actual: Sequence[Tensor],
    arguments: Arguments,
    definition: Callable[..., Sequence[Tensor]],
) -> None:
    eager = definition(*arguments)
    exact = definition(*_cast(arguments, torch.float64))
    # Nothing here can measure the error of float64, so float32's is scaled to it.
    single = _cast(arguments, torch.float32)
    pairs = zip(definition(*single), definition(*_cast(single, torch.float64)), strict=True)
    scale = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    own = [scale * (one.double() - two).abs().max() if one.numel() else 0.0 for one, two in pairs]
    for values in zip(actual, eager, exact, own, strict=True):
        assert_as_accurate_as_eager(*values)


def _cast(arguments: Arguments, dtype: torch.dtype) -> Arguments:
    x, a, b, unit_dim = arguments
    return x.to(dtype), a.to(dtype), b.to(dtype), unit_dim
