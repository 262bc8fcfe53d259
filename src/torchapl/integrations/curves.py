"""What is logged of the curves: a few numbers and a picture for each layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from torchapl.curves import left_slope, sample
from torchapl.curves.kinks import inner_unit
from torchapl.curves.simplify import named_units

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve_statistics(model: nn.Module, prefix: str = "curves") -> dict[str, float]:
    """Return a few numbers for each layer of units, as ``prefix/layer/number``.

    Example:
        >>> from torchapl import APL
        >>> curve_statistics(nn.Sequential(nn.Linear(4, 8), APL(8)))["curves/1/left_slope_mean"]
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


def curve_figure(
    model: nn.Module, *, interval: tuple[float, float] = (-3.0, 3.0), max_curves: int = 100
) -> Figure:
    """Draw the curves of every layer, one panel each, ReLU dashed.

    Args:
        model: Holds units somewhere.
        interval: The range of inputs that is shown.
        max_curves: At most this many curves of a layer, evenly spread over its units.
    """
    # Not pyplot: a figure of its own has no global state and needs no display.
    from matplotlib.figure import Figure

    units = list(dict(named_units(model)).items())
    if not units:
        raise ValueError("the model has no APL units to draw")
    columns = min(4, len(units))
    rows = -(-len(units) // columns)
    figure = Figure(figsize=(3 * columns, 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    x = torch.linspace(*interval, 201)
    for axis, (name, unit) in zip(axes, units, strict=False):
        curves = sample(unit, x).float().cpu().reshape(-1, len(x))
        step = max(1, -(-len(curves) // max_curves))
        axis.plot(x.numpy(), curves[::step].T.numpy(), color="C0", alpha=0.3, linewidth=0.8)
        axis.plot(x.numpy(), x.clamp(min=0).numpy(), "k--", linewidth=0.8)
        axis.set_title(name or "model", fontsize=8)
    for axis in axes[len(units) :]:
        axis.axis("off")
    return figure


def save_figure(model: nn.Module, folder: Path, step: int) -> Path:
    """Write the picture of the curves at a step and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"curves_{step:08d}.png"
    curve_figure(model).savefig(path, dpi=120)
    return path
