"""What a call keeps: bytes saved for backward, and the peak of memory while it runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile


def saved_bytes(function: Callable[[], object]) -> int:
    """Return the bytes of the tensors that autograd keeps after a forward call, each counted once.

    Example:
        >>> x = torch.randn(100, requires_grad=True)
        >>> saved_bytes(lambda: torch.relu(x))
        400
    """
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function()
    return sum(storages.values())


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most bytes that a call on the CPU holds beyond what was there before it.

    Example:
        >>> x = torch.randn(1000)
        >>> peak_bytes(lambda: x.exp())
        4000
    """
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    results = profiler.profiler
    if results is None:
        return 0
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
