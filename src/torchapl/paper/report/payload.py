"""Everything the page shows, as one JSON value within a budget."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchapl.paper.report.classes import CLASSES
from torchapl.paper.report.events import classifiers
from torchapl.paper.report.explorer import explorer, short
from torchapl.paper.report.folders import Run, made_of
from torchapl.paper.report.tables import groups_of, runs_table, settings_table, tables_of_runs
from torchapl.runs.curves import spread
from torchapl.runs.records import Json, is_number

# Bytes of JSON: with the plotting library the page stays below 5 MB.
BUDGET = 3_000_000
# Numbers of an epoch that a reader looks for first; others follow.
LEARNING = (
    "test_error",
    "test_auc",
    "test_loss",
    "train_loss",
    "train_error",
    "valid_error",
    "valid_auc",
    "test_significance_histogram",
)
# Numbers that are no curve of learning.
_NOT_DRAWN = ("epoch", "step", "lr", "seconds")
_EPOCHS, _FEWEST_EPOCHS = 80, 10


@dataclass(frozen=True)
class Material:
    """What a report is about: all runs, the same by setting, and those settings that are drawn."""

    source: Path
    runs: Sequence[Run]
    groups: Mapping[str, Sequence[Run]]
    drawn: Mapping[str, Sequence[Run]]


def build_payload(source: Path, *, budget: int = BUDGET) -> dict[str, Json]:
    """Return what the report says about the runs below ``source``.

    Args:
        source: A folder of runs, or a file of stored results (which has tables only).
        budget: Bytes that the JSON may take; curves of units are thinned to fit.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it holds no runs that can be trusted; of several, others are left out.
    """
    payload: dict[str, Json] = {
        "title": f"Learned curves: {source.resolve().name}",
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": importlib.metadata.version("torchapl"),
    }
    sections, errors = made_of(source, lambda runs: _sections(source, runs, budget))
    payload["left_out"] = [str(error) for error in errors]
    payload |= sections
    return {key: _finite(value) for key, value in payload.items()}


def _sections(source: Path, runs: Sequence[Run], budget: int) -> dict[str, Json]:
    groups = groups_of(runs)
    # What only served a choice would hide what was chosen.
    drawn = {name: group for name, group in groups.items() if not group[0].selects}
    material = Material(source, runs, groups, drawn or groups)
    content: dict[str, Json] = {}
    # The explorer takes the room that all others leave.
    for name in sorted(SECTIONS, key="explorer".__eq__):
        content |= SECTIONS[name](material, budget - len(json.dumps(content)))
    return content


def _finite(value: Json) -> Json:
    """Return the value with None for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def tables_of(payload: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of the payload that is for machines: tables, settings and runs."""
    return {key: payload[key] for key in ("tables", "settings", "runs", "left_out")}


def _learning_within(groups: Mapping[str, Sequence[Run]], budget: int) -> list[Json]:
    """Return the learning curves of all settings, of fewer epochs where they take too much room."""
    epochs = _EPOCHS
    while True:
        curves = [learning(name, group, epochs) for name, group in groups.items()]
        if len(json.dumps(curves)) <= budget or epochs <= _FEWEST_EPOCHS:
            return curves
        epochs //= 2


def learning(name: str, runs: Sequence[Run], at_most: int = _EPOCHS) -> Json:
    """Return mean and deviation of every number over the epochs of a setting's runs.

    An epoch counts the runs that have reached it; where there are many, ``at_most`` are kept.
    """
    lines: dict[int, list[dict[str, Json]]] = {}
    for run in runs:
        for line in run.lines():
            lines.setdefault(int(str(line["epoch"])), []).append(line)
    epochs = sorted(lines)
    # Counted from the end, so that the last epoch is always there.
    drawn = sorted(epochs[len(epochs) - 1 - int(index)] for index in spread(len(epochs), at_most))
    metrics: dict[str, Json] = {}
    for metric in _metrics([line for group in lines.values() for line in group]):
        points: list[Json] = []
        for epoch in drawn:
            values = [value for line in lines[epoch] if is_number(value := line.get(metric))]
            # Of a run that diverged, the epochs before.
            values = [value for value in values if math.isfinite(value)]
            if values:
                std = statistics.pstdev(values)
                mean = statistics.fmean(values)
                points.append([epoch, short(mean), short(std), len(values)])
        if points:
            metrics[metric] = points
    return {"name": name, "data": runs[0].data, "n": len(runs), "metrics": metrics}


def _metrics(lines: Sequence[Mapping[str, Json]]) -> list[str]:
    """Return the names of numbers that lines have, those of :data:`LEARNING` first."""
    names = {name: None for line in lines for name, value in line.items() if is_number(value)}
    first = [name for name in LEARNING if name in names]
    return [*first, *(name for name in names if name not in (*first, *_NOT_DRAWN))]


def _explorer(material: Material, room: int) -> dict[str, Json]:
    curves, extent = explorer(material.runs, room)
    classes: list[Json] = [{"name": name, "meaning": meaning} for name, meaning in CLASSES.items()]
    return {"curves": curves, "kept": str(extent) if curves else "", "classes": classes}


def _runs(material: Material, room: int) -> dict[str, Json]:
    return {"settings": settings_table(material.groups), "runs": runs_table(material.runs)}


# The sections of the page in their order. Each is drawn by page/sections/<name>.js from what its
# function here returns; the functions are given the bytes of JSON that are left.
SECTIONS: dict[str, Callable[[Material, int], dict[str, Json]]] = {
    "tables": lambda material, room: {"tables": tables_of_runs(material.runs, material.source)},
    "learning": lambda material, room: {"learning": _learning_within(material.drawn, room // 2)},
    "explorer": _explorer,
    "classifiers": lambda material, room: {"classifiers": classifiers(material.drawn)},
    "runs": _runs,
}
