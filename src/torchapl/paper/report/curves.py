"""The curves that a run has recorded, read from its folder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from torchapl.plotting import curves_of


@dataclass(frozen=True)
class Layer:
    """The curves of one layer at one moment of a run."""

    name: str
    slope: Tensor
    offset: Tensor

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """The shape whose elements have curves of their own."""
        return tuple(self.slope.shape[1:])

    def values(self, x: Tensor) -> Tensor:
        """Return the values at ``x`` of all units, of shape ``(units, len(x))``."""
        return curves_of(self.slope, self.offset, x)


class RunCurves:
    """All recorded curves of a run: by moment (``initial``, ``epoch_0003``, ``learned``), by layer.

    Args:
        folder: The run folder.

    Raises:
        FileNotFoundError: If the run has recorded no curves.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "curves.safetensors"
        if not path.exists():
            raise FileNotFoundError(
                f"{folder} has no curves.safetensors: its units are not learned"
            )
        self.moments: dict[str, dict[str, Layer]] = {}
        tensors = safetensors.torch.load_file(path)
        for key in tensors:
            moment, _, rest = key.partition("/")
            name, _, kind = rest.rpartition("/")
            if kind == "slope":
                layer = Layer(name, tensors[key], tensors[f"{moment}/{name}/offset"])
                self.moments.setdefault(moment, {})[name] = layer
        self.inputs: dict[str, tuple[Tensor, Tensor]] = {}
        if (folder / "inputs.safetensors").exists():
            seen = safetensors.torch.load_file(folder / "inputs.safetensors")
            names = {key.rpartition("/")[0] for key in seen}
            self.inputs = {name: (seen[f"{name}/edges"], seen[f"{name}/counts"]) for name in names}

    @property
    def learned(self) -> dict[str, Layer]:
        """The curves at the end; of an unfinished run, the last ones recorded."""
        return (
            self.moments.get("learned")
            or self.moments[self.epochs[-1] if self.epochs else "initial"]
        )

    @property
    def initial(self) -> dict[str, Layer]:
        """The curves at the start."""
        return self.moments["initial"]

    def start_of(self, layer: Layer) -> tuple[Layer, Tensor]:
        """Return the initial curves of a layer's units, and the units' numbers in the whole layer.

        Snapshots of large layers, all that an unfinished run has, hold evenly spaced units.
        """
        whole = self.initial[layer.name]
        count, stored = math.prod(whole.unit_shape), math.prod(layer.unit_shape)
        numbers = torch.arange(stored) * count // stored
        if stored == count:
            return whole, numbers
        slope, offset = (values.flatten(1)[:, numbers] for values in (whole.slope, whole.offset))
        return Layer(layer.name, slope, offset), numbers

    @property
    def epochs(self) -> list[str]:
        """The recorded moments between start and end, in order."""
        return sorted(moment for moment in self.moments if moment.startswith("epoch_"))


def spread(count: int, wanted: int) -> Tensor:
    """Return ``wanted`` indices below ``count``, evenly spaced.

    Example:
        >>> spread(100, 4)
        tensor([ 0, 25, 50, 75])
    """
    wanted = min(count, wanted)
    return torch.arange(wanted) * count // max(1, wanted)
