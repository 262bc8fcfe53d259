"""The figures of the paper, and some it does not have, from stored runs.

Each function returns a matplotlib figure that belongs to no window; :func:`save` writes it as
vector graphics and as a picture. Colours are those of Okabe and Ito, which everyone can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from torchapl.paper.report.events import RATES, THRESHOLDS, cut_significances, roc
from torchapl.plotting import ACCENT, GREY, LINE
from torchapl.runs.curves import Layer, RunCurves, spread

COLOURS = (LINE, ACCENT, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_X = torch.linspace(-3.0, 3.0, 301)


def panels(count: int, *, width: float = 2.6, height: float = 2.2, columns: int = 5) -> Figure:
    """Return a figure with ``count`` panels in rows."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel in axes[count:]:
        panel.remove()
    for panel in axes[:count]:
        panel.tick_params(labelsize=7)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write ``path`` as PDF and as PNG, whatever its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".pdf"))
    # The second time everything is in its place.
    figure.set_layout_engine("none")
    figure.savefig(path.with_suffix(".png"), dpi=160)


def sample_curves(layer: Layer) -> Figure:
    """Draw a convex and a non-convex unit of a layer, those with the clearest bends (Figure 1).

    A layer whose units are all of one kind has one panel.
    """
    bends = _bends(layer)
    lowest, highest = bends.amin(0), bends[1:].amax(0)
    convex = lowest >= 0
    chosen = {}
    if bool(convex.any()):
        chosen["convex"] = int(highest.where(convex, -torch.inf).argmax())
    if not bool(convex.all()):
        chosen["not convex"] = int(lowest.argmin())
    figure = panels(len(chosen))
    values = layer.values(_X)
    for axes, (title, unit) in zip(figure.axes, chosen.items(), strict=True):
        axes.plot(_X, values[unit], color=LINE)
        _mark_hinges(axes, layer, unit)
        axes.set_title(f"{title}: unit {unit}", fontsize=8)
    return figure


def _bends(layer: Layer) -> Tensor:
    """Return by how much the slope grows at 0 and at each hinge, of shape ``(S + 1, units)``.

    Where several bends are in one place, each of them is their sum: left of a leaky ReLU's hinge at
    0 the slope is lower by 1 - 0.25, which is convex although that hinge alone is not.
    """
    slope, offset = layer.hinges
    places = torch.cat([torch.full_like(offset[:1], layer.affine.center), offset])
    single = torch.cat([torch.full_like(slope[:1], layer.affine.scale), slope])
    together = places[:, None] == places[None]
    return torch.where(together, single[None], 0.0).sum(1)


def initial_and_learned(curves: RunCurves, *, units: int = 5) -> Figure:
    """Draw sample neurons of every layer: initial dashed, learned solid (Figures 2 and 3)."""
    layers = curves.learned
    figure = panels(len(layers) * units, columns=units)
    rest = list(figure.axes)
    for name, layer in layers.items():
        row, rest = rest[:units], rest[units:]
        first, numbers = curves.start_of(layer)
        start, end = first.values(_X), layer.values(_X)
        few = spread(len(end), units).tolist()
        for axes, unit in zip(row, few, strict=False):
            axes.plot(_X, start[unit], color=GREY, linestyle="--", linewidth=1)
            axes.plot(_X, end[unit], color=LINE)
            axes.set_title(f"{name}, unit {int(numbers[unit])}", fontsize=7)
        # A layer may have fewer units than there are panels.
        for axes in row[len(few) :]:
            axes.remove()
    return figure


def overlaid(curves: RunCurves, *, at_most: int = 1000) -> Figure:
    """Draw up to a thousand learned curves of every layer over each other (Figure 4)."""
    layers = curves.learned
    figure = panels(len(layers))
    # A thousand curves of 301 points would take a minute to write.
    x = _X[::5]
    for axes, (name, layer) in zip(figure.axes, layers.items(), strict=True):
        values = layer.values(x)
        few = values[spread(len(values), at_most)]
        lines = torch.stack([x.expand_as(few), few], dim=-1).numpy()
        alpha = max(0.02, min(1.0, 8 / len(few)))
        axes.add_collection(LineCollection(list(lines), colors=LINE, alpha=alpha, linewidths=0.7))
        axes.autoscale_view()
        axes.set_title(f"{name}: {len(few)} of {len(values)}", fontsize=8)
    return figure


def grouped(curves: RunCurves) -> Figure:
    """Draw mean and deviation of the units with positive and with negative h(-1) (Figure 5)."""
    layers = curves.learned
    figure = panels(len(layers))
    for axes, (name, layer) in zip(figure.axes, layers.items(), strict=True):
        values = layer.values(_X)
        negative = layer.values(torch.tensor([-1.0]))[:, 0] < 0
        for label, chosen, colour in (
            ("h(-1) < 0", negative, LINE),
            ("h(-1) >= 0", ~negative, ACCENT),
        ):
            count = int(chosen.sum())
            if count:
                mean, std = values[chosen].mean(0), values[chosen].std(0, correction=0)
                axes.plot(_X, mean, color=colour, label=f"{label}: {count}")
                axes.fill_between(_X, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
        axes.legend(fontsize=6, loc="upper left")
        axes.set_title(name, fontsize=8)
    return figure


def movement(curves: RunCurves, *, units: int = 200) -> Figure:
    """Draw how hinges and slopes move: start against end, with the mean path over the epochs."""
    layers = curves.learned
    figure = panels(2 * len(layers), columns=2, width=3.4)
    for row, (name, layer) in enumerate(layers.items()):
        first, _ = curves.start_of(layer)
        for column, kind in enumerate(("slope", "offset")):
            axes = figure.axes[2 * row + column]
            start, end = (getattr(moment, kind).flatten() for moment in (first, layer))
            few = spread(len(end), units)
            axes.plot(start[few], end[few], ".", color=LINE, alpha=0.4, markersize=3)
            low, high = float(start.min()), float(start.max())
            axes.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=0.8)
            axes.set_xlabel(f"{kind} at the start", fontsize=7)
            axes.set_ylabel("learned", fontsize=7)
            axes.set_title(name, fontsize=8)
    return figure


def inputs_behind_curves(curves: RunCurves) -> Figure:
    """Draw where the inputs of every layer fall, its mean curve, and where its hinges lie."""
    layers = {name: layer for name, layer in curves.learned.items() if name in curves.inputs}
    if not layers:
        raise ValueError("the run has no histograms of its units' inputs yet")
    figure = panels(len(layers))
    for axes, (name, layer) in zip(figure.axes, layers.items(), strict=True):
        edges, counts = curves.inputs[name]
        density = axes.twinx()
        density.stairs(
            (counts / counts.sum()).tolist(), edges.tolist(), fill=True, color=GREY, alpha=0.3
        )
        density.set_yticks([])
        x = torch.linspace(float(edges[0]), float(edges[-1]), 200)
        axes.plot(x, layer.values(x).mean(0), color=LINE)
        hinges = layer.hinges[1].flatten()
        for hinge in hinges[spread(len(hinges), 60)].tolist():
            axes.axvline(hinge, ymax=0.05, color=ACCENT, linewidth=0.6)
        axes.set_xlim(float(edges[0]), float(edges[-1]))
        axes.set_title(name, fontsize=8)
    return figure


def heat_maps(curves: RunCurves) -> Figure:
    """Draw h(-1) over the positions of the feature maps, averaged over channels."""
    maps = {name: layer for name, layer in curves.learned.items() if len(layer.unit_shape) == 3}
    if not maps:
        raise ValueError("no layer of this run has a curve for every position of a feature map")
    figure = panels(len(maps))
    for axes, (name, layer) in zip(figure.axes, maps.items(), strict=True):
        values = layer.values(torch.tensor([-1.0]))[:, 0].reshape(layer.unit_shape).mean(0)
        limit = float(values.abs().max()) or 1.0
        picture = axes.imshow(values.numpy(), cmap="PuOr", vmin=-limit, vmax=limit)
        figure.colorbar(picture, ax=axes, shrink=0.8).ax.tick_params(labelsize=6)
        axes.set_title(f"{name}: mean h(-1)", fontsize=8)
    return figure


def _mark_hinges(axes: Axes, layer: Layer, unit: int) -> None:
    places = torch.cat([layer.hinges[1][:, unit], torch.tensor([layer.affine.center])])
    values = layer.values(places)[unit]
    axes.plot(places, values, "o", color=ACCENT, markersize=4)


def learning_curves(
    runs: dict[str, Sequence[Sequence[dict[str, float]]]], metric: str = "test_error"
) -> Figure:
    """Draw a metric over the epochs: the mean of each name's runs, its deviation as a band.

    Args:
        runs: For each name, for each seed, the lines of metrics.jsonl.
        metric: Which of their numbers.
    """
    figure = panels(1, width=5.0, height=3.4)
    axes = figure.axes[0]
    for index, (name, seeds) in enumerate(runs.items()):
        colour = COLOURS[index % len(COLOURS)]
        lines = [
            [(line["epoch"], line[metric]) for line in seed if metric in line] for seed in seeds
        ]
        shortest = min(len(line) for line in lines)
        if not shortest:
            continue
        table: Tensor = torch.tensor([[value for _, value in line[:shortest]] for line in lines])
        epochs = [epoch for epoch, _ in lines[0][:shortest]]
        mean, std = table.mean(0), table.std(0, correction=0)
        axes.plot(epochs, mean, color=colour, label=f"{name} (n = {len(lines)})")
        axes.fill_between(epochs, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric.replace("_", " "))
    axes.legend(fontsize=7)
    return figure


def error_against_hinges(results: dict[int, Sequence[float]], baseline: Sequence[float]) -> Figure:
    """Draw the error of networks with S hinges per unit, mean and deviation, beside ReLU's.

    Args:
        results: The errors of the runs with S hinges, by S.
        baseline: Those of ReLU.
    """
    figure = panels(1, width=4.2, height=3.2)
    axes = figure.axes[0]
    sizes = sorted(results)
    tables = [torch.tensor(results[size]) for size in sizes]
    axes.errorbar(
        sizes,
        [float(table.mean()) for table in tables],
        [float(table.std()) if len(table) > 1 else 0.0 for table in tables],
        color=LINE,
        marker="o",
        capsize=3,
        label="APL",
    )
    relu = torch.tensor(baseline)
    axes.axhline(float(relu.mean()), color=GREY, linestyle="--", label=f"ReLU (n = {len(relu)})")
    axes.set_xlabel("hinges per unit")
    axes.set_ylabel("test error, %")
    axes.set_xticks(sizes)
    axes.legend(fontsize=8)
    return figure


def classifier(scores: dict[str, tuple[Tensor, Tensor]]) -> Figure:
    """Draw ROC curves, and the significance of a single cut against its threshold.

    Args:
        scores: For each name, the test rows' scores in [0, 1] and labels.
    """
    figure = panels(2, width=3.6, height=3.2)
    left, cuts = figure.axes
    for index, (name, table) in enumerate(scores.items()):
        colour = COLOURS[index % len(COLOURS)]
        left.plot(RATES, roc(*table, RATES), color=colour, label=name)
        cuts.plot(THRESHOLDS, cut_significances(*table, THRESHOLDS), color=colour)
    left.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=0.8)
    left.set_xlabel("background accepted")
    left.set_ylabel("signal accepted")
    left.legend(fontsize=7)
    cuts.set_xlabel("threshold on the score")
    cuts.set_ylabel("expected significance, sigma")
    return figure
