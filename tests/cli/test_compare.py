"""``torchapl compare``: what it refuses before any run, and what it says of runs that failed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from torchapl.cli import main
from torchapl.paper.own import (
    ADAMW,
    DATA_SETS,
    EXPERIMENTS,
    NETWORKS,
    Activation,
    Data,
    DataSet,
    Experiment,
    Network,
    arrays,
    table,
)

OPTIONS = ["--activations", "relu,apl", "--seeds", "1", "--device", "cpu"]


def small(
    activation: Activation, input_shape: tuple[int, ...], num_classes: int, width: float
) -> nn.Module:
    hidden = nn.Linear(input_shape[0], 8), activation.build((8,))
    return nn.Sequential(*hidden, nn.Linear(8, num_classes))


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment whose data set a test registers, in catalogues that forget both."""
    for catalogue in (DATA_SETS, EXPERIMENTS, NETWORKS):
        monkeypatch.setattr(catalogue, "entries", dict(catalogue.entries))
    NETWORKS.register(Network("small", "small", "own", small))
    data = Data("pairs", "standard")
    EXPERIMENTS.register(Experiment("mine", "small", data=data, optim=ADAMW, epochs=1))


@pytest.mark.usefixtures("mine")
def test_compare_refuses_a_table_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{'inf' if number == 3 else number},{'ab'[number % 2]}" for number in range(60)]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    DATA_SETS.register(DataSet("pairs", "Pairs", "odd", load=table("t.csv", label="y")))
    runs = tmp_path / "runs"
    options = ["--data", str(tmp_path), "--runs", str(runs)]
    assert main(["compare", "mine", *OPTIONS, *options]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {tmp_path / 't.csv'}: column 'x' has inf in line 5")
    assert told.count("\n") == 1
    assert not runs.exists()


@pytest.mark.usefixtures("mine")
def test_compare_names_the_held_out_part_that_has_one_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = np.random.default_rng(0).standard_normal((50, 2))
    rare = [1, 1, *[0] * 48]
    load = arrays(inputs, rare, test=(inputs[:4], [0, 1, 0, 1]))
    DATA_SETS.register(DataSet("pairs", "Pairs", "rare", load=load))
    assert main(["compare", "mine", *OPTIONS, "--runs", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: pairs: 5 of 5 held-out rows (the last of the training rows)")
    assert "are of one class" in told
    assert "give more rows of the rarer class" in told


def test_compare_tells_why_all_runs_of_an_activation_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = ["--scale", "smoke", "--set", "optim.kind=sgd", "--rates", "1e30"]
    short = ["--set", "epochs=1", "--set", "data.limit=1000", "--runs", str(tmp_path)]
    assert main(["compare", "atlas-dnn-relu", *OPTIONS, *wild, *short]) == 1
    told = capsys.readouterr()
    assert "0 + 1 failed" in told.out
    reasons = [line for line in told.err.splitlines() if line.startswith("failed: ")]
    assert len(reasons) == 2
    assert all(str(tmp_path) in line and ": step " in line for line in reasons)
