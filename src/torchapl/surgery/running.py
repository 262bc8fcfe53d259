"""Running a model without leaving a trace in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from torchapl.curves.calling import Inputs, call


def run_model(model: nn.Module, example_inputs: Inputs) -> Any:
    """Call the model on copies of the inputs: it may overwrite them."""
    return call(model, tree_map(_copy, example_inputs))


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients; put back modes, buffers and random state at the end."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        # The first pass makes the buffers of lazy modules; there is nothing to put back.
        if buffer is not None and not is_lazy(buffer)
    ]
    tensors = (*model.parameters(), *model.buffers())
    try:
        with same_random_state(tensor.device for tensor in tensors), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                # Forward may have filled the tensor or put another in its place.
                module._buffers[name] = buffer
                # Only where needed: a copy would count as a change of the buffer's version.
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


def same_random_state(devices: Iterable[torch.device]) -> AbstractContextManager[None]:
    """Put back the random state of the CPU and of these devices at the end."""
    accelerators = [device for device in set(devices) if device.type not in ("cpu", "meta")]
    kind = accelerators[0].type if accelerators else "cuda"
    return torch.random.fork_rng(accelerators, device_type=kind)


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
