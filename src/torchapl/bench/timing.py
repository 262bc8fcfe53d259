"""Time several candidates fairly: interleaved in one process, medians with quantiles."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

# glibc's names for what mallopt() sets.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


class Spread(NamedTuple):
    """The median of a sample with its 20 % and 80 % quantiles."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Summarise a sample of at least two values.

    Example:
        >>> spread([3.0, 1.0, 2.0, 5.0, 4.0]).median
        3.0
    """
    fifths = quantiles(values, n=5, method="inclusive")
    return Spread(median(values), fifths[0], fifths[3])


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    shortest: float = 0.002,
) -> dict[str, list[float]]:
    """Return seconds per call, one value per candidate and round.

    Every round runs every candidate, so that a change of the machine's speed meets them all.
    Calls are repeated until a round takes at least ``shortest`` seconds.

    Example:
        >>> seconds = interleaved({"sum": lambda: sum(range(100))}, rounds=2, shortest=1e-4)
        >>> len(seconds["sum"])
        2
    """
    repeats = {name: _repeats(call, shortest) for name, call in candidates.items()}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            seconds[name].append(_time(call, repeats[name]))
    return seconds


def ratios(seconds: Mapping[str, Sequence[float]], to: str) -> dict[str, Spread]:
    """Return every candidate's time in units of the candidate ``to``, compared round by round.

    Example:
        >>> ratios({"a": [1.0, 2.0], "b": [2.0, 4.0]}, to="a")["b"].median
        2.0
    """
    return {
        name: spread([one / other for one, other in zip(values, seconds[to], strict=True)])
        for name, values in seconds.items()
    }


def training(
    function: Callable[[Tensor], Tensor], input: Tensor, parameters: Sequence[Tensor] = ()
) -> Callable[[], object]:
    """Return a call of forward and backward, for the gradients of input and parameters."""
    leaves = [input.detach().requires_grad_(), *parameters]
    grad = torch.randn_like(input)

    def call() -> object:
        return torch.autograd.grad(function(leaves[0]), leaves, grad)

    return call


def reuse_memory() -> bool:
    """Keep freed memory in this process, as caching allocators do; tell whether that is possible.

    With glibc's own thresholds every large tensor is fresh memory, and its page faults take longer
    than the arithmetic of an activation.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))


def _repeats(call: Callable[[], object], shortest: float) -> int:
    call()
    return max(1, round(shortest / max(_time(call, 3), 1e-9)))


def _time(call: Callable[[], object], repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        call()
    return (perf_counter() - start) / repeats
