"""Looking at a network without changing the run: random state, layers, curves replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchapl import APL
from torchapl.modules import inner_unit
from torchapl.watch import hooked, named_units, uncompiled


def units(model: nn.Module) -> dict[str, APL]:
    """Return the APL units by their names in ``named_modules()``."""
    return {name: inner_unit(unit) for name, unit in named_units(model)}


@torch.no_grad()
def first_not_finite(model: nn.Module, batch: Tensor) -> str | None:
    """Return the name of the first layer whose output for this batch is not finite, if any."""
    layers = {
        name: module
        for name, module in model.named_modules()
        if not any(True for _ in module.children())
    }
    not_finite: list[str] = []

    def look(name: str, input: object, output: object) -> None:
        if isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
            not_finite.append(name)

    with hooked(layers, look):
        model(batch)
    return not_finite[0] if not_finite else None


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """Return the random state of the CPU and of the run's device."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Put back what :func:`rng_state` returned."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


@contextmanager
def relu_in_place_of_curves(model: nn.Module) -> Iterator[None]:
    """Let every APL unit act as ReLU for a while: the paper's replacement ablation.

    Example:
        >>> unit = APL(1)
        >>> with relu_in_place_of_curves(unit):
        ...     unit(torch.tensor([[-1.0]]))
        tensor([[0.]])
    """
    replaced = list(units(model).values())
    try:
        for unit in replaced:
            unit.forward = F.relu  # type: ignore[method-assign]  # for the time of the with block
        # Not worth compiling the model once more.
        with uncompiled():
            yield
    finally:
        for unit in replaced:
            del unit.forward
