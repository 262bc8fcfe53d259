"""The curves of runs, small enough for one page: a lattice of units, some moments, 16 bits."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from torchapl.paper.report.classes import CLASSES, curve_classes
from torchapl.paper.report.folders import Run
from torchapl.runs.curves import Layer, RunCurves, spread
from torchapl.runs.folder import CURVES
from torchapl.runs.records import DamagedError, Json

# Units of a layer, moments of a run and seeds of a setting that are kept, from generous to frugal.
# A coarser map says less than another seed of the same setting does.
_ALL = 2**63
LEVELS = (
    (1600, 7, _ALL),
    (800, 7, _ALL),
    (400, 7, _ALL),
    (400, 4, _ALL),
    (200, 4, _ALL),
    (200, 4, 3),
    (200, 4, 1),
    (100, 4, 1),
    (64, 3, 1),
    (32, 2, 1),
)
# The window of a layer whose inputs are not known.
_WINDOW = (-3.0, 3.0)
_NOT_FINITE = -32768
# Bytes of text for one byte of data, and for what goes with a layer beside its curves.
_BASE64, _PER_LAYER = 4 / 3, 900


@dataclass(frozen=True)
class Extent:
    """What of the recorded curves is in the report."""

    units: int
    moments: int
    runs: int
    runs_recorded: int

    def __str__(self) -> str:
        left_out = self.runs_recorded - self.runs
        return (
            f"The explorer holds, of each layer, up to {self.units:,} evenly spaced units at up to "
            f"{self.moments} moments, in 16-bit numbers (error below 1/65,000 of the largest). "
            "Counts of classes are over all recorded units."
            + (f" {left_out} of {self.runs_recorded} runs are left out." if left_out else "")
        )


def explorer(runs: Sequence[Run], budget: int) -> tuple[list[Json], Extent]:
    """Return the curves of the runs within ``budget`` bytes of text, and what was kept.

    Where all do not fit, runs that only chose a setting are left out, then later seeds.
    """
    # The page begins with the first.
    recorded = sorted((run for run in runs if run.has(CURVES)), key=lambda run: run.selects)
    sizes = {id(run): _sizes(run) for run in recorded}

    def size(run: Run, units: int, moments: int) -> float:
        # Two numbers of two bytes for every hinge, and a byte for the class.
        hinges, recorded_moments = sizes[id(run)]
        curves = sum(min(units, count) * (4 * s + 1) for s, count in hinges)
        curves *= min(moments, recorded_moments)
        return curves * _BASE64 + _PER_LAYER * len(hinges)

    for units, moments, seeds in LEVELS:
        chosen = [
            run for run in recorded if seeds == _ALL or (run.seed < seeds and not run.selects)
        ]
        if sum(size(run, units, moments) for run in chosen) <= budget:
            break
    # Tables of very many runs may leave no room at all.
    while chosen and sum(size(run, units, moments) for run in chosen) > budget:
        chosen.pop()
    order = {id(run): index for index, run in enumerate(runs)}
    extent = Extent(units, moments, len(chosen), len(recorded))
    return [_run(run, order[id(run)], units, moments) for run in chosen], extent


def read_curves(run: Run) -> RunCurves:
    """Return the recorded curves of a run.

    Raises:
        DamagedError: If its files cannot be trusted.
    """
    if run.folder is None:
        raise ValueError(f"{run.setting} has no folder, so no curves")
    return RunCurves(run.folder)


def _sizes(run: Run) -> tuple[list[tuple[int, int]], int]:
    """Return hinges and units of every layer, and the number of moments, from the file's header."""
    path = Path(f"{run.folder}/{CURVES}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            keys = list(file.keys())
            shapes = {key: file.get_slice(key).get_shape() for key in keys}
    except (safetensors.SafetensorError, OSError) as error:
        raise DamagedError(path, f"is not a file of tensors: {error}") from error
    layers: dict[str, tuple[int, int]] = {}
    moments = set()
    for key, shape in shapes.items():
        moment, _, rest = key.partition("/")
        moments.add(moment)
        # Of the moments that have the layer, the one with the most units.
        if rest.endswith("/slope") and shape:
            count = (shape[0], math.prod(shape[1:]))
            layers[rest] = max(count, layers.get(rest, count))
    return list(layers.values()), len(moments)


def _run(run: Run, index: int, units: int, wanted: int) -> Json:
    curves = read_curves(run)
    last = _hinges(curves.learned)
    # Curves that had other hinges at the time cannot be drawn as one that moves.
    first, *between = (moment for moment in curves.order if _hinges(curves.moments[moment]) == last)
    # The newest moments matter most in a run that is not finished, so count from the end.
    picked = [between[len(between) - 1 - int(i)] for i in spread(len(between), wanted - 1)][::-1]
    moments = [first, *picked]
    lines = run.lines()
    ranges = lines[-1].get("curves", {}) if lines else {}
    layers: list[Json] = []
    for name in sorted(curves.learned, key=_natural):
        window = _window(ranges, name)
        layers.append(_layer(name, curves, moments, window, units))
    return {"run": index, "moments": [_label(moment) for moment in moments], "layers": layers}


def _hinges(layers: Mapping[str, Layer]) -> dict[str, int]:
    return {name: len(layer.slope) for name, layer in layers.items()}


def _layer(
    name: str, curves: RunCurves, moments: Sequence[str], window: tuple[float, float], units: int
) -> Json:
    recorded = [curves.moments[moment][name] for moment in moments]
    whole = max(recorded, key=lambda layer: math.prod(layer.unit_shape))
    shape = whole.unit_shape
    count = math.prod(shape)
    stored = min(math.prod(layer.unit_shape) for layer in recorded)
    lattice, shown = _lattice(shape, units, stored)
    frames: list[Json] = []
    for layer in recorded:
        slope, offset = layer.hinges
        # Snapshots of large layers hold evenly spaced units: number j is unit j * count // stored.
        held = slope.shape[1]
        columns = shown if held == count else _snapshot_index(shown, count, held)
        classes = curve_classes(slope, offset, window, layer.affine)
        frames.append(
            {
                "slope": _encode(slope[:, columns]),
                "offset": _encode(offset[:, columns]),
                "classes": _text(classes[columns].to(torch.uint8)),
                "counts": torch.bincount(classes, minlength=len(CLASSES)).tolist(),
            }
        )
    return {
        "name": name,
        "shape": list(shape),
        "hinges": len(whole.slope),
        "affine": [short(number) for number in whole.affine],
        "lattice": list(lattice),
        "units": shown.tolist(),
        "window": [short(window[0]), short(window[1])],
        "density": _density(curves, name),
        "frames": frames,
    }


def _lattice(shape: tuple[int, ...], units: int, stored: int) -> tuple[tuple[int, ...], Tensor]:
    """Return channels, rows and columns that are kept, or the number of units, and which."""
    count = math.prod(shape)
    if len(shape) == 3:
        side = max(1, math.isqrt(units // 6))
        rows, columns = spread(shape[1], side), spread(shape[2], side)
        channels = spread(shape[0], max(1, units // (len(rows) * len(columns))))
        flat = (channels[:, None, None] * shape[1] + rows[:, None]) * shape[2] + columns
        lattice: tuple[int, ...] = tuple(flat.shape)
    else:
        flat = spread(count, units)
        lattice = (len(flat),)
    flat = flat.flatten()
    if stored < count:
        # Only units that every moment has: the next one that was recorded.
        flat = _snapshot_index(flat, count, stored) * count // stored
    return lattice, flat


def _snapshot_index(units: Tensor, count: int, stored: int) -> Tensor:
    recorded = torch.arange(stored) * count // stored
    return torch.searchsorted(recorded, units).clamp(max=stored - 1)


def _window(ranges: object, name: str) -> tuple[float, float]:
    layer = ranges.get(name) if isinstance(ranges, Mapping) else None
    if not isinstance(layer, Mapping):
        return _WINDOW
    low, high = (layer.get(key) for key in ("input_low", "input_high"))
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return _WINDOW
    if not (math.isfinite(low) and math.isfinite(high)):
        return _WINDOW
    return (low, high) if low < high else (low - 0.5, low + 0.5)


def _density(curves: RunCurves, name: str) -> Json:
    if name not in curves.inputs:
        return None
    edges, counts = curves.inputs[name]
    return {
        "low": short(float(edges[0])),
        "high": short(float(edges[-1])),
        "counts": [int(count) for count in counts.tolist()],
    }


def _encode(values: Tensor) -> Json:
    finite = values.isfinite()
    scale = float(values[finite].abs().max()) / 32767 if bool(finite.any()) else 0.0
    scale = scale or 1.0
    whole = (values.double() / scale).round().where(finite, torch.tensor(float(_NOT_FINITE)))
    return {"scale": scale, "data": _text(whole.to(torch.int16))}


def _text(values: Tensor) -> str:
    array = values.contiguous().numpy()
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def _label(moment: str) -> str:
    if moment.startswith("epoch_"):
        return f"epoch {int(moment.removeprefix('epoch_'))}"
    return {"initial": "start", "learned": "end"}[moment]


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name)
    ]


def short(value: float) -> float | None:
    """Return the number with six digits; None where it is none.

    Example:
        >>> short(0.123456789), short(float("nan"))
        (0.123457, None)
    """
    return float(f"{value:.6g}") if math.isfinite(value) else None
