"""Draw the pictures of docs/curves.md and write its tables.

python docs/make_curves_figures.py
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl import APL, curves, init
from torchapl.curves import LayerSize

mpl.use("svg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "curves"
PAGE = HERE / "curves.md"
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, float]]] = {
    "GELU": (F.gelu, (-4.0, 4.0)),
    "SiLU": (F.silu, (-8.0, 8.0)),
    "softplus": (F.softplus, (-6.0, 6.0)),
    "tanh": (torch.tanh, (-4.0, 4.0)),
    "sigmoid": (torch.sigmoid, (-8.0, 8.0)),
    "erf": (torch.erf, (-3.0, 3.0)),
    "sin": (torch.sin, (-math.pi, math.pi)),
}
HINGES = range(1, 11)
CNN = [
    LayerSize.convolution("conv 96, 5x5", (3, 96), 5, (32, 32)),
    LayerSize.convolution("conv 128, 5x5", (96, 128), 5, (16, 16)),
    LayerSize.convolution("conv 256, 5x5", (128, 256), 5, (8, 8)),
    LayerSize("fc 2048", 256 * 4 * 4, 2048),
    LayerSize("fc 2048", 2048, 2048),
]
NIN_SIZES = [
    ("conv 192, 5x5", (3, 192), 5, 32),
    ("1x1 160", (192, 160), 1, 32),
    ("1x1 96", (160, 96), 1, 32),
    ("conv 192, 5x5", (96, 192), 5, 16),
    ("1x1 192", (192, 192), 1, 16),
    ("1x1 192", (192, 192), 1, 16),
    ("conv 192, 3x3", (192, 192), 3, 8),
    ("1x1 192", (192, 192), 1, 8),
    ("1x1 10", (192, 10), 1, 8),
]
NIN = [
    LayerSize.convolution(name, channels, kernel, (size, size))
    for name, channels, kernel, size in NIN_SIZES
]
HIGGS = [LayerSize("fc 274", 25, 274)] + [LayerSize("fc 274", 274, 274)] * 6


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    # Identical files from identical code.
    mpl.rcParams.update({"svg.hashsalt": "torchapl", "axes.grid": True, "grid.alpha": 0.3})
    fits = {
        (name, norm): [curves.fit(f, hinges, interval, norm=norm) for hinges in HINGES]
        for name, (f, interval) in FUNCTIONS.items()
        for norm in ("uniform", "squares")
    }
    draw_theorem()
    draw_fits(fits)
    draw_errors(fits)
    draw_maxout()
    draw_simplification()
    write("errors", error_table(fits))
    for name, layers, hinges in (("cnn", CNN, 5), ("nin", NIN, 2), ("higgs", HIGGS, 2)):
        write(f"parameters-{name}", curves.parameter_table(layers, hinges))


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def write(name: str, table: str) -> None:
    """Replace what stands between the page's markers of this name."""
    text = PAGE.read_text()
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{PAGE} has no markers {begin} and {end}")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n\n{table}\n\n{end}", text))


def error_table(fits: dict[tuple[str, str], list[curves.Fit]]) -> str:
    head = ["function", "interval", "norm", *(f"S={hinges}" for hinges in HINGES)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---" + "|---:" * len(HINGES) + "|"]
    for (name, norm), found in fits.items():
        low, high = FUNCTIONS[name][1]
        ends = "[-pi, pi]" if name == "sin" else f"[{low:g}, {high:g}]"
        label = "largest" if norm == "uniform" else "rms"
        errors = [fit.max_error if norm == "uniform" else fit.rms_error for fit in found]
        lines.append(
            f"| {name} | {ends} | {label} | " + " | ".join(f"{e:.2g}" for e in errors) + " |"
        )
    return "\n".join(lines)


def draw_theorem() -> None:
    unit = curves.from_piecewise_linear([-2.0, -1.0, 0.5], [0.6, -0.8, 0.3, 1.0])
    x = torch.linspace(-3.5, 2.5, 601)
    figure, axis = plt.subplots(figsize=(6, 3.6))
    axis.plot(x, F.relu(x), "--", color="gray", label="max(0, x)")
    for a, b in zip(unit.slope.tolist(), unit.offset.tolist(), strict=True):
        axis.plot(x, a * F.relu(b - x), ":", label=f"{a:.1f} max(0, {b:.1f} - x)")
    axis.plot(x, curves.sample(unit, x), "k", linewidth=2, label="their sum: g")
    axis.legend(fontsize=8)
    axis.set_xlabel("x")
    save(figure, "theorem")


def draw_fits(fits: dict[tuple[str, str], list[curves.Fit]]) -> None:
    figure, axes = plt.subplots(
        2, len(FUNCTIONS), figsize=(18, 5), height_ratios=(2, 1), layout="constrained"
    )
    for column, (name, (function, interval)) in zip(axes.T, FUNCTIONS.items(), strict=True):
        x = torch.linspace(*interval, 1001, dtype=torch.float64)
        column[0].plot(x, function(x), color="lightgray", linewidth=5)
        for hinges, color in ((2, "C1"), (5, "C0")):
            y = fits[name, "uniform"][hinges - 1].form.evaluate(x)
            column[0].plot(x, y, color=color, label=f"S={hinges}")
            column[1].plot(x, y - function(x), color=color)
        column[0].set_title(name)
    axes[0, 0].legend()
    axes[1, 0].set_ylabel("error")
    save(figure, "fits")


def draw_errors(fits: dict[tuple[str, str], list[curves.Fit]]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    for axis, norm in zip(axes, ("uniform", "squares"), strict=True):
        for name in FUNCTIONS:
            found = fits[name, norm]
            errors = [fit.max_error if norm == "uniform" else fit.rms_error for fit in found]
            axis.loglog(HINGES, errors, "o-", markersize=3, label=name)
        axis.set_xticks(HINGES, [str(hinges) for hinges in HINGES])
        axis.set_xlabel("hinges S")
    axes[0].set_ylabel("largest error, best uniform fit")
    axes[1].set_ylabel("rms error, best least-squares fit")
    axes[0].legend(fontsize=8)
    save(figure, "errors")


def draw_maxout() -> None:
    unit = APL(num_hinges=3)
    with torch.no_grad():
        unit.slope.copy_(torch.tensor([0.9, -1.4, 0.6]))
        unit.offset.copy_(torch.tensor([-1.0, 0.8, 1.5]))
    pair = curves.to_maxout(unit)
    x = torch.linspace(-3, 3, 601)
    with torch.no_grad():
        concave = torch.stack(
            [a * x + b for a, b in zip(pair.concave_slope, pair.concave_intercept, strict=True)]
        ).amax(0)
        convex = pair(x) + concave
    figure, axis = plt.subplots(figsize=(6, 3.6))
    for a, b in zip(pair.convex_slope.tolist(), pair.convex_intercept.tolist(), strict=True):
        axis.plot(x, a * x + b, color="C0", alpha=0.25)
    axis.plot(x, convex, "C0", label="first maxout unit")
    axis.plot(x, concave, "C1", label="second maxout unit")
    axis.plot(x, curves.sample(unit, x), "k", linewidth=2, label="APL unit: their difference")
    axis.set_ylim(-3, 6)
    axis.legend(fontsize=8)
    save(figure, "maxout")


def draw_simplification() -> None:
    torch.manual_seed(4)
    unit = APL(6, num_hinges=5, init=init.authors_)
    with torch.no_grad():
        unit.slope.mul_(2)
    x = torch.linspace(-2.5, 2.5, 501)
    figure, axes = plt.subplots(1, 6, figsize=(16, 2.8), sharey=True)
    curves_before = curves.sample(unit, x)
    for tolerance, style in ((0.01, "C0"), (0.1, "C1--")):
        simple = curves.simplify(unit, tolerance).model
        y = curves.sample(simple, x) if isinstance(simple, APL) else simple(x.expand(6, -1).T).T
        hinges = (simple.slope != 0).sum(0).tolist()
        for axis, before, after, count in zip(axes, curves_before, y, hinges, strict=True):
            axis.plot(x, before, color="lightgray", linewidth=5, zorder=0)
            axis.plot(x, after.detach(), style, label=f"within {tolerance}: {count} hinges")
    for axis in axes:
        axis.legend(fontsize=7)
    save(figure, "simplified")


if __name__ == "__main__":
    main()
