"""Pictures of learned curves, for notebooks and reports; needs matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchapl.curves import sample
from torchapl.watch import named_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From the Okabe-Ito palette, which people with any colour vision can tell apart.
LINE, ACCENT, GREY = "#0072B2", "#D55E00", "#777777"


def plot(
    model: nn.Module,
    *,
    interval: tuple[float, float] = (-3.0, 3.0),
    max_curves: int = 100,
) -> Figure:
    """Draw the curves of a unit, or of every layer of units of a model, one panel each.

    Each panel shows up to ``max_curves`` curves, evenly picked, their mean over all units, and ReLU
    for comparison. The figure belongs to no window; a notebook shows it, ``savefig`` writes it.

    Args:
        model: An :class:`APL` or :class:`torchapl.curves.AffineAPL`, or a model that holds some.
        interval: The inputs shown.
        max_curves: Curves drawn in one panel.

    Example:
        >>> figure = plot(nn.Sequential(nn.Linear(4, 8), APL(8), nn.Linear(8, 2), APL(2)))
        >>> [axes.get_title() for axes in figure.axes]
        ['1: 8 curves', '3: 2 curves']
    """
    units = list(named_units(model))
    if not units:
        raise ValueError(f"model has no APL units to draw, got {type(model).__name__}")
    low, high = interval
    if not low < high:
        raise ValueError(f"interval must be (low, high) with low < high, got {interval}")
    if max_curves < 1:
        raise ValueError(f"max_curves must be at least 1, got {max_curves}")
    # Imported here: the core needs torch alone. Figure and not pyplot: nothing stays open.
    from matplotlib.figure import Figure

    columns = min(4, len(units))
    rows = math.ceil(len(units) / columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    # On the CPU, whatever `with torch.device(...)` says: matplotlib takes its values.
    x = torch.linspace(low, high, 201, device="cpu")
    for axes, (name, unit) in zip(panels, units, strict=False):
        curves = sample(unit, x).float().cpu().reshape(-1, len(x))
        _draw_curves(axes, x, curves, max_curves)
        count = len(curves)
        axes.set_title(f"{name or 'APL'}: {count} curve{'s' if count != 1 else ''}", fontsize=9)
    for axes in panels[len(units) :]:
        axes.remove()
    return figure


def _draw_curves(axes: Axes, x: Tensor, curves: Tensor, max_curves: int) -> None:
    """Draw curves, their mean and ReLU."""
    step = max(1, math.ceil(len(curves) / max_curves))
    few = curves[::step]
    opacity = max(0.04, min(1.0, 6 / len(few)))
    axes.plot(x.numpy(), few.T.numpy(), color=LINE, alpha=opacity, linewidth=0.9)
    axes.plot(x.numpy(), x.relu().numpy(), color=GREY, linestyle="--", linewidth=1)
    if len(curves) > 1:
        axes.plot(x.numpy(), curves.mean(0).numpy(), color=ACCENT, linewidth=1.8)
    axes.axhline(0, color="black", linewidth=0.4)
    axes.axvline(0, color="black", linewidth=0.4)
    axes.tick_params(labelsize=7)
