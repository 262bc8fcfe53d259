"""The curves of a run: recorded while they are learned, with numbers and inputs; read back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torchapl.functional import apl
from torchapl.modules import AffineAPL, Unit, inner_unit
from torchapl.runs.folder import CURVES, INPUTS
from torchapl.runs.records import Json, naming, read_tensors, write_tensors
from torchapl.watch import Inputs, named_units, watch

# Snapshots between start and end keep at most this many units of a layer, evenly spaced.
SNAPSHOT_UNITS = 20_000
HISTOGRAM_BINS = 64
INITIAL, LEARNED = "initial", "learned"
# The central part of the inputs that counts as their range; the rest are outliers.
_CENTRAL = (0.01, 0.99)
_SAMPLE = 1_000_000


class Affine(NamedTuple):
    """The numbers of an :class:`~torchapl.curves.AffineAPL`; of a plain unit, those given here."""

    scale: float = 1.0
    shift: float = 0.0
    skip: float = 0.0
    center: float = 0.0

    def line(self, x: Tensor) -> Tensor:
        """Return the curve without its hinges; of a plain unit max(0, x)."""
        return self.scale * (x - self.center).relu() + self.skip * x + self.shift


PLAIN = Affine()


@dataclass(frozen=True)
class Layer:
    """The curves of one layer at one moment of a run.

    Args:
        name: As in ``named_modules()``.
        slope: Of shape ``(S, *unit_shape)``.
        offset: Of the same shape.
        affine: What is around the hinges.

    Example:
        >>> layer = Layer("act", torch.full((1, 2), -0.25), torch.zeros(1, 2))
        >>> layer.values(torch.tensor([-1.0, 2.0]))
        tensor([[-0.2500,  2.0000],
                [-0.2500,  2.0000]])
    """

    name: str
    slope: Tensor
    offset: Tensor
    affine: Affine = PLAIN

    @classmethod
    @torch.no_grad()
    def of(cls, name: str, unit: Unit) -> Layer:
        """Copy the curves of a layer, to the CPU and from all processes that share it."""
        inner = inner_unit(unit)
        slope, offset = (_whole(values) for values in (inner.slope, inner.offset))
        if not isinstance(unit, AffineAPL):
            return cls(name, slope, offset)
        numbers = (unit.scale, unit.shift, unit.skip, unit.center)
        return cls(name, slope, offset, Affine(*(float(_whole(number)) for number in numbers)))

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """The shape whose elements have curves of their own."""
        return tuple(self.slope.shape[1:])

    @property
    def hinges(self) -> tuple[Tensor, Tensor]:
        """Slopes and offsets of the hinges as the curves have them, of shape ``(S, units)``."""
        # One unit for a whole layer has no axis to flatten.
        slope, offset = (values.reshape(len(values), -1) for values in (self.slope, self.offset))
        return self.affine.scale * slope, offset + self.affine.center

    def picked(self, units: Tensor) -> Layer:
        """Return some units, by their numbers in the flattened layer."""
        slope, offset = (
            values.reshape(len(values), -1)[:, units].contiguous()
            for values in (self.slope, self.offset)
        )
        return Layer(self.name, slope, offset, self.affine)

    def values(self, x: Tensor) -> Tensor:
        """Return the values at ``x`` of all units, of shape ``(units, len(x))``."""
        slope, offset = self.hinges
        column = x.float()[:, None]
        plain = apl(column.expand(-1, slope.shape[1]), slope, offset)
        return (plain + (self.affine.line(column) - column.relu())).T

    def statistics(self, seen: Tensor | None) -> dict[str, Json]:
        """Return the numbers that metrics.jsonl keeps of the layer at every epoch.

        Args:
            seen: A sample of its inputs, if there is one.

        Example:
            >>> layer = Layer("act", torch.full((1, 4), -0.25), torch.zeros(1, 4))
            >>> numbers = layer.statistics(None)
            >>> numbers["left_slope_mean"], numbers["negative_at_minus_one"]
            (0.25, 4)
        """
        slope, position = self.hinges
        left = self.affine.skip - slope.sum(0)
        numbers: dict[str, Json] = {
            "left_slope_mean": left.mean().item(),
            "left_slope_std": left.std(correction=0).item(),
            "slope_abs_mean": slope.abs().mean().item(),
            "offset_mean": position.mean().item(),
            "offset_std": position.std(correction=0).item(),
            "negative_at_minus_one": int((self.values(torch.tensor([-1.0])) < 0).sum()),
            "units": slope.shape[1],
        }
        if seen is not None and seen.numel():
            low, high = torch.quantile(seen, torch.tensor(_CENTRAL)).tolist()
            inside = (position >= low) & (position <= high)
            numbers |= {
                "hinges_in_range": inside.float().mean().item(),
                "input_low": low,
                "input_high": high,
            }
        return numbers


def _whole(values: Tensor) -> Tensor:
    """Return a copy on the CPU; of a sharded parameter all shards, so all processes must call."""
    gather = getattr(values, "full_tensor", None)
    plain: Tensor = values if gather is None else gather()
    return plain.detach().float().cpu().clone().contiguous()


def layers_of(model: nn.Module) -> dict[str, Layer]:
    """Return the curves of all layers of a model; lazy ones have none before their first batch."""
    return {
        name: Layer.of(name, unit)
        for name, unit in named_units(model)
        if not is_lazy(inner_unit(unit).slope)
    }


def spread(count: int, wanted: int) -> Tensor:
    """Return ``wanted`` indices below ``count``, evenly spaced.

    Example:
        >>> spread(100, 4)
        tensor([ 0, 25, 50, 75])
    """
    wanted = min(count, wanted)
    return torch.arange(wanted) * count // max(1, wanted)


def thinned(layers: Mapping[str, Layer]) -> dict[str, Layer]:
    """Return evenly spaced units of the layers that are too large to be kept often."""
    return {
        name: layer
        if math.prod(layer.unit_shape) <= SNAPSHOT_UNITS
        else layer.picked(spread(math.prod(layer.unit_shape), SNAPSHOT_UNITS))
        for name, layer in layers.items()
    }


def add_curves(folder: Path, moment: str, layers: Mapping[str, Layer]) -> None:
    """Add curves to the run's file under the name of a moment, replacing what was there.

    Raises:
        DamagedError: If the file cannot be trusted.
    """
    if not layers:
        return
    path = folder / CURVES
    stored = read_tensors(path) if path.exists() else {}
    for name, layer in layers.items():
        stored |= {
            f"{moment}/{name}/slope": layer.slope,
            f"{moment}/{name}/offset": layer.offset,
        }
        if layer.affine != PLAIN:
            stored[f"{moment}/{name}/affine"] = torch.tensor(layer.affine)
    write_tensors(path, stored)


def inputs_of(model: nn.Module, batch: Inputs) -> dict[str, Tensor]:
    """Return a sample of the inputs of every layer of units for one batch, in evaluation mode."""
    samples: dict[str, Tensor] = {}

    def keep(name: str, input: Tensor) -> None:
        values = input.detach().float().flatten()
        samples[name] = values[:: max(1, values.numel() // _SAMPLE)].cpu()

    watch(model, [batch], keep)
    return samples


def write_inputs(folder: Path, samples: Mapping[str, Tensor]) -> None:
    """Write edges and counts of every layer's inputs."""
    tables: dict[str, Tensor] = {}
    for name, values in samples.items():
        low, high = values.min().item(), values.max().item()
        if low == high:
            low, high = low - 0.5, high + 0.5
        tables[f"{name}/edges"] = torch.linspace(low, high, HISTOGRAM_BINS + 1)
        tables[f"{name}/counts"] = torch.histc(values, HISTOGRAM_BINS, low, high)
    if tables:
        write_tensors(folder / INPUTS, tables)


class RunCurves:
    """All recorded curves of a run: by moment (``initial``, ``epoch_0003``, ``learned``), by layer.

    Args:
        folder: The run folder.

    Raises:
        FileNotFoundError: If the run has recorded no curves.
        DamagedError: If its files cannot be trusted.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / CURVES
        if not path.exists():
            raise FileNotFoundError(f"{folder} has no {CURVES}: its units are not learned")
        tensors = read_tensors(path)
        self.moments: dict[str, dict[str, Layer]] = {}
        with naming(path):
            # safetensors has its own order, another one in each file.
            for key in sorted(tensors, key=_by_numbers):
                moment, _, rest = key.partition("/")
                name, _, kind = rest.rpartition("/")
                if kind == "slope":
                    layer = _stored_layer(name, f"{moment}/{name}", tensors)
                    self.moments.setdefault(moment, {})[name] = layer
            if not self.moments:
                raise ValueError("holds no curves")
        self.inputs: dict[str, tuple[Tensor, Tensor]] = {}
        path = folder / INPUTS
        if path.exists():
            seen = read_tensors(path)
            names = {key.rpartition("/")[0] for key in seen}
            with naming(path):
                self.inputs = {
                    name: (seen[f"{name}/edges"], seen[f"{name}/counts"]) for name in names
                }

    @property
    def epochs(self) -> list[str]:
        """The recorded moments between start and end, in order."""
        return sorted(moment for moment in self.moments if moment.startswith("epoch_"))

    @property
    def order(self) -> list[str]:
        """All recorded moments, in order."""
        return [m for m in (INITIAL, *self.epochs, LEARNED) if m in self.moments]

    @property
    def initial(self) -> dict[str, Layer]:
        """The curves at the start, or the first ones that there are."""
        return self.moments[self.order[0]]

    @property
    def learned(self) -> dict[str, Layer]:
        """The curves at the end; of an unfinished run, the last ones recorded."""
        return self.moments[self.order[-1]]

    def start_of(self, layer: Layer) -> tuple[Layer, Tensor]:
        """Return the initial curves of a layer's units, and the units' numbers in the whole layer.

        Snapshots of large layers, all that an unfinished run has, hold evenly spaced units.
        """
        whole = self.initial[layer.name]
        count, stored = math.prod(whole.unit_shape), math.prod(layer.unit_shape)
        numbers = torch.arange(stored) * count // stored
        return (whole if stored == count else whole.picked(numbers)), numbers


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Return what sorts layer2 before layer10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _stored_layer(name: str, key: str, tensors: Mapping[str, Tensor]) -> Layer:
    slope, offset = tensors[f"{key}/slope"], tensors[f"{key}/offset"]
    if slope.shape != offset.shape or slope.dim() < 1 or not slope.numel():
        shapes = f"{tuple(slope.shape)} and {tuple(offset.shape)}"
        raise ValueError(f"holds slopes and offsets of shapes {shapes} for {key}")
    if not slope.is_floating_point() or not offset.is_floating_point():
        raise ValueError(f"holds {slope.dtype} and {offset.dtype} for {key}, not curves")
    affine = tensors.get(f"{key}/affine")
    if affine is None:
        return Layer(name, slope, offset)
    if affine.shape != (4,):
        raise ValueError(f"holds {tuple(affine.shape)} numbers of an affine map for {key}, not 4")
    return Layer(name, slope, offset, Affine(*affine.tolist()))
