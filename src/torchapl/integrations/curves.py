"""What is logged of the curves: a few numbers and a picture for each layer."""

from __future__ import annotations

from pathlib import Path

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


def save_figure(model: nn.Module, folder: Path, step: int) -> Path:
    """Write the picture of the curves at a step and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"curves_{step:08d}.png"
    plot(model).savefig(path, dpi=120)
    return path
