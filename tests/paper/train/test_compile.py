"""Runs with torch.compile on the CPU: the same numbers, files and checkpoints as without."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_train import IMAGES
from torch._dynamo.utils import counters
from toy import TOY, StopAt, assert_identical

from torchapl.cli import main
from torchapl.paper.config import Experiment
from torchapl.paper.train import InterruptedRunError, checkpoint, train
from torchapl.paper.train.progress import Silent

# Without dropout, whose masks a compiled network draws in its own way. The last batch is smaller.
EVENTS = replace(TOY, data=replace(TOY.data, limit=480), dropout=0.0)
CASES = [
    pytest.param(EVENTS, id="dnn", marks=pytest.mark.slow),
    # Compiling its convolutions takes a minute.
    pytest.param(
        replace(IMAGES, data=replace(IMAGES.data, limit=110), dropout=0.0, epochs=3),
        id="cnn",
        marks=pytest.mark.exhaustive,
    ),
]


class GraphCount(Silent):
    """Notes after every epoch how many graphs have been compiled."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def epoch(self, line: dict[str, object]) -> None:
        self.counts.append(counters["stats"]["unique_graphs"])


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    loaded = checkpoint.load(folder, "last")
    assert loaded is not None
    return {name: value for name, value in loaded[0].items() if name.startswith("net/")}


def assert_agree(first: Path, second: Path) -> None:
    left, right = weights(first), weights(second)
    assert set(left) == set(right)
    for name in left:
        error = (left[name] - right[name]).norm() / left[name].norm().clamp(min=1e-6)
        assert error < 1e-3, (name, float(error))
    for one, other in zip(lines(first), lines(second), strict=True):
        assert set(one) == set(other)
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)
        assert one["test_loss"] == pytest.approx(other["test_loss"], rel=1e-3)
        # Hooks see the curves' inputs in a compiled network too.
        assert set(one["curves"]) == set(other["curves"]) != set()


def stopped(experiment: Experiment, folder: Path, **settings: str) -> None:
    with pytest.raises(InterruptedRunError):
        train(experiment, 0, folder, device="cpu", reporter=StopAt(5), **settings)


@pytest.mark.parametrize("experiment", CASES)
def test_a_compiled_run_is_like_any_other(tmp_path: Path, experiment: Experiment) -> None:
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    train(experiment, 0, plain, device="cpu")
    torch._dynamo.reset()
    counters.clear()
    count = GraphCount()
    train(experiment, 0, compiled, device="cpu", compile="default", reporter=count)
    assert_agree(plain, compiled)
    assert json.loads((compiled / "result.json").read_text())["compile"] == "default"
    # Training with whole and smaller batches, and evaluation; later epochs compile nothing.
    assert count.counts == [3] * experiment.epochs
    assert counters["stats"]["unique_graphs"] == 3

    # Interrupted and resumed, compiled or not in either part.
    stopped(experiment, tmp_path / "same", compile="default")
    train(experiment, 0, tmp_path / "same", device="cpu", compile="default")
    assert_identical(compiled, tmp_path / "same")
    for name, first, then in (("to", "none", "default"), ("fro", "default", "none")):
        stopped(experiment, tmp_path / name, compile=first)
        with pytest.warns(UserWarning, match=f"compile was {first} when this run began"):
            train(experiment, 0, tmp_path / name, device="cpu", compile=then)
        assert_agree(plain, tmp_path / name)


def test_graphs_need_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "atlas-dnn-apl", "--scale", "smoke", "--device", "cpu"]
    assert main([*command, "--compile", "graphs", "--folder", str(tmp_path / "run")]) == 2
    expected = "compile='graphs' captures CUDA graphs, which device 'cpu' does not have"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_unknown_way_to_compile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="compile must be 'none', 'default' or 'graphs', got 'x'"):
        train(TOY, 0, tmp_path, device="cpu", compile="x")
