"""Files of runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

from targets import target, written
from targets.texts import MINE
from torchapl.paper.config import to_dict
from torchapl.paper.runs import experiment_of
from torchapl.paper.sweep.jobs import read_results
from torchapl.paper.train import checkpoint
from torchapl.runs.curves import Layer, RunCurves, add_curves
from torchapl.runs.folder import (
    CONFIG,
    CURVES,
    METRICS,
    RESULT,
    RunConfig,
    RunResult,
    read_config,
    read_result,
    write_config,
    write_result,
)
from torchapl.runs.records import DamagedError, append_line, read_lines, sealed


def resealed(content: bytes) -> bytes:
    """Return JSON with the checksum that fits it, so that what comes after the check is met too."""
    try:
        values = json.loads(content)
        values.pop("checksum", None)
        return json.dumps(sealed(values)).encode()
    except (ValueError, AttributeError, RecursionError):
        return content


def result_seeds(folder: Path) -> list[bytes]:
    result = RunResult("atlas-dnn-relu", "smoke", 0, "finished", {"test_error": 24.5}, ("width=1",))
    write_result(folder, result)
    return [(folder / RESULT).read_bytes()]


@target(DamagedError, share=10, seeds=result_seeds)
def results(content: bytes, folder: Path) -> None:
    for text in (content, resealed(content)):
        written(folder, RESULT, text)
        read_result(folder)


def config_seeds(folder: Path) -> list[bytes]:
    write_config(folder, RunConfig(to_dict(MINE), "smoke", 0, ("width=1",), {"threads": 1}))
    return [(folder / CONFIG).read_bytes()]


@target(DamagedError, share=6, seeds=config_seeds)
def configs(content: bytes, folder: Path) -> None:
    for text in (content, resealed(content)):
        written(folder, CONFIG, text)
        config = read_config(folder)
        if config is not None:
            _ = config.name, config.data
            experiment_of(folder, config)


def metrics_seeds(folder: Path) -> list[bytes]:
    path, after = folder / METRICS, ""
    for epoch in (1, 2):
        _, after = append_line(path, {"epoch": epoch, "train_loss": 0.5}, after)
    return [path.read_bytes()]


@target(DamagedError, share=10, seeds=metrics_seeds)
def metrics(content: bytes, folder: Path) -> None:
    read_lines(written(folder, METRICS, content))


@target(DamagedError, share=4, seeds=result_seeds)
def stored_results(content: bytes, folder: Path) -> None:
    read_results(written(folder, "results.jsonl", content))


def curve_seeds(folder: Path) -> list[bytes]:
    layer = Layer("act", torch.full((1, 2), -0.25), torch.zeros(1, 2))
    for moment in ("initial", "learned"):
        add_curves(folder, moment, {"act": layer})
    content = (folder / CURVES).read_bytes()
    return [content, re.sub(rb'"__metadata__":\{[^}]*\},', b"", content)]


@target(DamagedError, share=8, seeds=curve_seeds)
def curves(content: bytes, folder: Path) -> None:
    written(folder, CURVES, content)
    recorded = RunCurves(folder)
    for layers in recorded.moments.values():
        for layer in layers.values():
            layer.statistics(None)


def checkpoint_seeds(folder: Path) -> list[bytes]:
    path = checkpoint.save(folder, "last", 3, {"a": torch.ones(2)}, {"step": 3}, keep=1)
    return [path.read_bytes()]


@target(DamagedError, share=8, seeds=checkpoint_seeds)
def checkpoints(content: bytes, folder: Path) -> None:
    """A checkpoint that nobody wrote is one that the name's checksum does not fit."""
    written(folder, f"last-000000003.{'0' * 16}.safetensors", content)
    assert checkpoint.load(folder, "last") is None
