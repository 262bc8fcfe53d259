"""Measurements as a CSV file that says where they come from, and as a plot."""

from __future__ import annotations

import csv
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from torchapl.bench.op import Measurement, Setting
from torchapl.bench.timing import Spread
from torchapl.ops.extension import backends

_COLUMNS = (
    "shape",
    "units",
    "mode",
    "threads",
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
    place = (
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
                    row.candidate,
                    row.hinges,
                    *(f"{value:.4f}" for value in row.ratio),
                    f"{row.milliseconds:.5f}",
                    row.peak_bytes,
                    row.saved_bytes,
                    *place,
                )
            )


def read_csv(path: Path, allocator: str = "reusing") -> list[Measurement]:
    """Return the measurements of a file that were made with one kind of allocator."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_measurement(row) for row in csv.DictReader(file) if row["allocator"] == allocator]


def _measurement(row: dict[str, str]) -> Measurement:
    shape = tuple(map(int, row["shape"].split("x")))
    setting = Setting(
        shape,
        row["units"],  # type: ignore[arg-type]  # one of the names, as written
        row["mode"] == "training",
        int(row["threads"]),
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


def plot(rows: Sequence[Measurement], path: Path) -> None:
    """Draw the ratio to ReLU against S for training, a panel for every shape and sharing."""
    from matplotlib.figure import Figure

    chosen: dict[Setting, list[Measurement]] = {}
    for row in rows:
        if row.setting.training:
            chosen.setdefault(row.setting, []).append(row)
    threads = {setting.threads for setting in chosen}
    columns = max(1, len(chosen) // max(1, len(threads)))
    figure = Figure(figsize=(2.8 * columns, 2.8 * len(threads)), layout="constrained")
    panels = figure.subplots(len(threads), columns, squeeze=False, sharey=True)
    ordered = sorted(chosen, key=lambda setting: setting.threads)
    for axes, setting in zip(panels.flatten(), ordered, strict=False):
        lines = [row for row in chosen[setting] if row.hinges]
        for name in dict.fromkeys(row.candidate for row in lines):
            points = [(row.hinges, row.ratio.median) for row in lines if row.candidate == name]
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        for row in chosen[setting]:
            if row.candidate in ("silu", "prelu"):
                axes.axhline(row.ratio.median, linestyle="--", linewidth=0.8, color="grey")
                axes.annotate(row.candidate, (1, row.ratio.median), fontsize=6)
        axes.set_yscale("log")
        axes.set_title(
            f"{setting.shape}\nper {setting.units}, threads: {setting.threads}", fontsize=7
        )
        axes.set_xlabel("hinges S", fontsize=7)
    panels[0, 0].set_ylabel("time / ReLU's", fontsize=7)
    # The parts of a long run may have measured the slow candidates with the most threads only.
    panels[-1, 0].legend(fontsize=6)
    figure.savefig(path, dpi=160)
