"""What is written down about curves while they are learned: statistics, snapshots, their inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchapl import APL, apl
from torchapl.modules import inner_unit
from torchapl.paper.atomic import write_atomic
from torchapl.paper.config import Json
from torchapl.watch import hooked, named_units, uncompiled, watch

# Snapshots between start and end keep at most this many units of a layer, evenly spaced.
SNAPSHOT_UNITS = 20_000
HISTOGRAM_BINS = 64
# The central part of the inputs that counts as their range; the rest are outliers.
_CENTRAL = (0.01, 0.99)
_SAMPLE = 1_000_000


def units(model: nn.Module) -> dict[str, APL]:
    """Return the APL units by their names in ``named_modules()``."""
    return {name: inner_unit(unit) for name, unit in named_units(model)}


def inputs(model: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """Return a sample of the inputs of every APL layer for one batch, in evaluation mode."""
    samples: dict[str, Tensor] = {}

    def keep(name: str, input: Tensor) -> None:
        values = input.detach().float().flatten()
        samples[name] = values[:: max(1, values.numel() // _SAMPLE)].cpu()

    watch(model, [batch], keep)
    return samples


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


@torch.no_grad()
def statistics(unit: APL, seen: Tensor) -> dict[str, Json]:
    """Return the numbers that metrics.jsonl keeps of one layer at every epoch.

    Args:
        unit: The layer.
        seen: A sample of its inputs.

    Example:
        >>> torch.manual_seed(0) and None
        >>> numbers = statistics(APL(4, init="leaky"), torch.randn(1000))
        >>> numbers["left_slope_mean"], numbers["negative_at_minus_one"]
        (0.25, 4)
    """
    # One unit for a whole layer has no axis to flatten.
    slope, offset = (p.float().reshape(unit.num_hinges, -1) for p in (unit.slope, unit.offset))
    left = -slope.sum(0)
    minus_one = torch.full((1, slope.shape[1]), -1.0, device=slope.device)
    at_minus_one = apl(minus_one, slope, offset)
    low, high = torch.quantile(seen, torch.tensor(_CENTRAL)).tolist()
    inside = (offset >= low) & (offset <= high)
    return {
        "left_slope_mean": left.mean().item(),
        "left_slope_std": left.std(correction=0).item(),
        "slope_abs_mean": slope.abs().mean().item(),
        "offset_mean": offset.mean().item(),
        "offset_std": offset.std(correction=0).item(),
        "hinges_in_range": inside.float().mean().item(),
        "input_low": low,
        "input_high": high,
        "negative_at_minus_one": int((at_minus_one < 0).sum()),
        "units": slope.shape[1],
    }


def snapshot(model: nn.Module, *, at_most: int | None = None) -> dict[str, Tensor]:
    """Return copies of all curves as ``<layer>/slope`` and ``<layer>/offset``.

    Args:
        model: Holds the units.
        at_most: Evenly spaced units only, flattened, where a layer has more.
    """
    copies = {}
    for name, unit in units(model).items():
        for kind, values in (("slope", unit.slope), ("offset", unit.offset)):
            tensor = values.detach().float().cpu()
            if at_most is not None and tensor[0].numel() > at_most:
                count = tensor[0].numel()
                tensor = tensor.flatten(1)[:, torch.arange(at_most) * count // at_most]
            copies[f"{name}/{kind}"] = tensor.clone().contiguous()
    return copies


def add_snapshot(path: Path, label: str, curves: Mapping[str, Tensor]) -> None:
    """Add curves to curves.safetensors under ``label``, replacing what was there."""
    if curves:
        stored = safetensors.torch.load(path.read_bytes()) if path.exists() else {}
        stored |= {f"{label}/{name}": tensor for name, tensor in curves.items()}
        write_atomic(path, safetensors.torch.save(stored))


def recorded_epochs(epochs: int, count: int = 10) -> set[int]:
    """Return the epochs, counted from 1, whose curves are kept.

    Example:
        >>> sorted(recorded_epochs(180, 4))
        [45, 90, 135, 180]
    """
    return {max(1, round(epochs * part / count)) for part in range(1, count + 1)}


def histograms(seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return edges and counts of every layer's inputs, as inputs.safetensors holds them."""
    tables = {}
    for name, values in seen.items():
        low, high = values.min().item(), values.max().item()
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = torch.linspace(low, high, HISTOGRAM_BINS + 1)
        tables[f"{name}/edges"] = edges
        tables[f"{name}/counts"] = torch.histc(values, HISTOGRAM_BINS, low, high)
    return tables


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
