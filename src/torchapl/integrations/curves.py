"""What is logged of the curves: a few numbers for each layer, and a picture of all."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from torchapl.curves import left_slope
from torchapl.modules import inner_unit
from torchapl.plotting import plot
from torchapl.watch import named_units


def curve_statistics(model: nn.Module, prefix: str = "curves") -> dict[str, float]:
    """Return a few numbers for each layer of units, as ``prefix/layer/number``.

    Example:
        >>> from torchapl import APL
        >>> net = nn.Sequential(nn.Linear(4, 8), APL(8, init="leaky"))
        >>> curve_statistics(net)["curves/1/left_slope_mean"]
        0.25
    """
    statistics = {}
    for name, unit in named_units(model):
        curve = inner_unit(unit)
        left = left_slope(unit).double().cpu()
        numbers = {
            "left_slope_mean": left.mean(),
            "left_slope_std": left.std(unbiased=False),
            "slope_abs_mean": curve.slope.detach().double().abs().mean(),
            "offset_abs_max": curve.offset.detach().double().abs().max(),
        }
        for key, value in numbers.items():
            statistics["/".join(filter(None, (prefix, name, key)))] = float(value)
    return statistics


class Pictures:
    """Draws the curves of a training run, at most once in a step.

    Args:
        folder: Where the pictures are saved.
        writers: Each a ``SummaryWriter``, which get them as well.
    """

    def __init__(self, folder: Path, writers: Sequence[Any] = ()) -> None:
        self.folder = folder
        self.writers = writers
        self._last: int | None = None

    def draw(self, model: nn.Module, step: int) -> None:
        """Draw the curves of this step, if there is matplotlib."""
        if step == self._last or find_spec("matplotlib") is None:
            return
        self._last = step
        self.folder.mkdir(parents=True, exist_ok=True)
        figure = plot(model)
        figure.savefig(self.folder / f"curves_{step:08d}.png", dpi=120)
        for writer in self.writers:
            writer.add_figure("curves", figure, step)


def is_milestone(step: int) -> bool:
    """Tell whether a picture is due: at the start, after 8 steps, and at every doubling.

    Example:
        >>> [step for step in range(100) if is_milestone(step)]
        [0, 8, 16, 32, 64]
    """
    return step == 0 or (step >= 8 and step.bit_count() == 1)


def has_sharded_curves(model: nn.Module) -> bool:
    """Tell, with a warning, whether a process would have to wait for others to read the curves."""
    units = (inner_unit(unit) for _, unit in named_units(model))
    if not any(hasattr(unit.slope, "device_mesh") for unit in units):
        return False
    warnings.warn("curves that FSDP has sharded are not logged", stacklevel=3)
    return True


def has_curves(model: nn.Module) -> bool:
    """Tell whether there are curves to log; warn if not."""
    if not any(True for _ in named_units(model)):
        warnings.warn("the model has no APL units: there are no curves to log", stacklevel=3)
        return False
    if find_spec("matplotlib") is None:
        warnings.warn("there is no matplotlib to draw the curves with", stacklevel=3)
    return True
