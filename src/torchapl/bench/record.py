"""Measurements as a CSV file that says where they come from, and as a plot."""

from __future__ import annotations

import csv
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from torchapl.bench.op import Measurement, Setting
from torchapl.bench.timing import Spread
from torchapl.ops.extension import backends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = (
    "shape",
    "units",
    "mode",
    "threads",
    "dtype",
    "layout",
    "candidate",
    "hinges",
    "ratio_median",
    "ratio_20",
    "ratio_80",
    "milliseconds",
    "peak_bytes",
    "saved_bytes",
    "allocator",
    "device",
    "implementation",
    "torch",
    "platform",
)


def add_to_csv(rows: Sequence[Measurement], path: Path, device: str, *, reused: bool) -> None:
    """Add the measurements with device and versions to a file, so that a long run has parts."""
    hardware = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        hardware = torch.cuda.get_device_name(device)
    served = backends().get(device.split(":")[0])
    circumstances = (
        "reusing" if reused else "default",
        f"{device} {hardware}",
        "" if served is None else served.implementation,
        torch.__version__,
        platform.platform(),
    )
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(_COLUMNS)
        for row in rows:
            setting = row.setting
            writer.writerow(
                (
                    "x".join(map(str, setting.shape)),
                    setting.units,
                    "training" if setting.training else "inference",
                    setting.threads,
                    setting.dtype,
                    "channels last" if setting.channels_last else "contiguous",
                    row.candidate,
                    row.hinges,
                    *(f"{value:.4f}" for value in row.ratio),
                    f"{row.milliseconds:.5f}",
                    row.peak_bytes,
                    row.saved_bytes,
                    *circumstances,
                )
            )


def read_csv(path: Path, **columns: str) -> list[Measurement]:
    """Return the measurements of a file that have these values in the columns named."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            _measurement(row)
            for row in csv.DictReader(file)
            if all(row[name] == value for name, value in columns.items())
        ]


def _measurement(row: dict[str, str]) -> Measurement:
    shape = tuple(map(int, row["shape"].split("x")))
    setting = Setting(
        shape,
        row["units"],  # type: ignore[arg-type]  # one of the names, as written
        row["mode"] == "training",
        int(row["threads"]),
        row["dtype"],  # type: ignore[arg-type]  # as above
        row["layout"] == "channels last",
    )
    ratio = Spread(*(float(row[f"ratio_{name}"]) for name in ("median", "20", "80")))
    return Measurement(
        setting,
        row["candidate"],
        int(row["hinges"]),
        ratio,
        float(row["milliseconds"]),
        int(row["peak_bytes"]),
        int(row["saved_bytes"]),
    )


# Panels side by side: their text has to be read where a page is 700 pixels wide.
_PANELS = 3
# The candidates that are drawn; those without hinges are level lines.
_COLOURS = {
    "apl": "tab:blue",
    "apl compiled": "tab:green",
    "apl eager": "tab:orange",
    "silu": "tab:red",
    "prelu": "tab:purple",
}


def plot(rows: Sequence[Measurement], path: Path) -> None:
    """Draw the ratio to ReLU against S for training, a panel for every shape and sharing."""
    from matplotlib.figure import Figure

    chosen: dict[Setting, list[Measurement]] = {}
    for row in rows:
        if row.setting.training:
            chosen.setdefault(row.setting, []).append(row)
    columns = min(_PANELS, max(1, len(chosen)))
    lines = max(1, -(-len(chosen) // columns))
    figure = Figure(figsize=(2.7 * columns, 2.1 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flatten()[len(chosen) :]:
        axes.set_visible(False)
    ordered = sorted(chosen, key=lambda setting: setting.threads)
    for axes, setting in zip(panels.flatten(), ordered, strict=False):
        _panel(axes, chosen[setting])
        axes.set_title(f"{setting.shape} per {setting.units}, {setting.threads} thr.", fontsize=9)
    figure.supylabel("time over ReLU's, forward and backward", fontsize=9)
    figure.supxlabel("hinges S", fontsize=9)
    # The parts of a long run may have measured the slow candidates in some settings only.
    handles = {
        label: handle
        for axes in panels.flatten()
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=5, fontsize=9)
    figure.savefig(path, dpi=160)


def _panel(axes: Axes, rows: Sequence[Measurement]) -> None:
    for name, colour in _COLOURS.items():
        points = [(row.hinges, row.ratio.median) for row in rows if row.candidate == name]
        if not points:
            continue
        if points[0][0] == 0:
            axes.axhline(points[0][1], linestyle="--", linewidth=1, color=colour, label=name)
        else:
            axes.plot(*zip(*points, strict=True), marker="o", ms=3, color=colour, label=name)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=9)
