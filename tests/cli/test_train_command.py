from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchapl.cli import main

# Seconds of work in one epoch, so that a signal arrives within it.
LONG = ["--set", "epochs=500", "--set", "data.limit=2000"]
QUICK = ["--scale", "smoke", "--device", "cpu", "--set", "epochs=1", "--set", "data.limit=100"]


def test_train_prints_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "atlas-dnn-apl", *QUICK, "--runs", str(tmp_path)]
    assert main(command) == 0
    first = capsys.readouterr()
    assert "atlas-dnn-apl seed 0: " in first.out
    assert "auc 0." in first.out
    # Not a terminal: plain lines, and on stderr.
    assert "epoch 1/1, loss " in first.err
    assert "\x1b" not in first.err
    folder = tmp_path / "atlas-dnn-apl+data.limit=100+epochs=1" / "smoke" / "0"
    assert (folder / "result.json").exists()

    # Finished: recognised, and the same numbers for machines.
    assert main([*command, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out) == json.loads((folder / "result.json").read_text())
    assert "epoch" not in again.err


def test_a_failed_run_has_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = ["--set", "optim.kind=sgd", "--set", "optim.lr=1e6", "--set", "epochs=3"]
    assert main(["train", "atlas-dnn-apl", *QUICK, *wild, "--runs", str(tmp_path)]) == 1
    assert "failed: step " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["cifar10-cnn-alp"],
            "unknown experiment 'cifar10-cnn-alp', did you mean 'cifar10-cnn-apl'",
        ),
        (
            ["cifar10-cnn-apl", "--set", "optm.lr=1"],
            "unknown setting 'optm', did you mean 'optim'?",
        ),
        (["cifar10-cnn-apl", "--set", "epochs=many"], "epochs must be a whole number, got 'many'"),
        (["cifar10-cnn-apl", "--device", "tpu"], "device must be auto, cpu, cuda or such as"),
        (["cifar10-cnn-apl", "--device", "cpu:x"], "device 'cpu:x' is none"),
        (["cifar10-cnn-apl", "--seed", str(2**64)], "seed must fit 64 bits"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", *arguments, "--runs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_train_says_its_scale_and_warns_of_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the data the run does not begin.
    nowhere = ["--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "--device", "cpu"]
    assert main(["train", "cifar10-nin-apl", *nowhere]) == 2
    told = capsys.readouterr().err
    assert "cifar10-nin-apl at paper scale, 640 epochs, about " in told
    assert "days; --scale lab takes minutes" in told


def test_a_folder_of_another_experiment_explains_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--folder", str(tmp_path / "run"), "--quiet"]
    assert main(["train", "atlas-dnn-relu", *QUICK, *place]) == 0
    assert main(["train", "atlas-dnn-apl", *QUICK, *place]) == 2
    error = capsys.readouterr().err
    assert "holds a run with activation.kind=relu (now apl)" in error
    assert "choose another folder or remove this one" in error
    # Where nearly all differs, the message stays readable.
    assert main(["train", "cifar10-cnn-apl", "--scale", "smoke", *place]) == 2
    error = capsys.readouterr().err
    assert "net=higgs-dnn (now cifar-cnn)" in error
    assert " other settings: choose another folder" in error


@pytest.mark.filterwarnings("default")
def test_a_schedule_is_shortened_with_its_data_set_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--set", "data.name=toy-events", "--set", "epochs=1", "--device", "cpu"]
    assert main(["train", "higgs-dnn-relu", *small, "--runs", str(tmp_path), "--quiet"]) == 0
    told = capsys.readouterr().err
    assert "was made for 700,000 iterations, this run has 32" in told
    assert "shortened to 4.57e-05 of its length" in told


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_process_in_order(tmp_path: Path, signum: int, code: int) -> None:
    command = [sys.executable, "-m", "torchapl.cli", "train", "atlas-dnn-apl", "--scale", "smoke"]
    process = subprocess.Popen(
        [*command, *LONG, "--folder", tmp_path, "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    metrics = tmp_path / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signum)
    _, errors = process.communicate()
    assert process.returncode == code
    assert "the same command resumes the run" in errors
    assert list(tmp_path.glob("last-*"))
    assert not (tmp_path / "result.json").exists()


def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--only", "cifar10-cnn-apl*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "net", "activation", "data", "published", "tables"]
    assert any(line.split()[:3] == ["cifar10-cnn-apl", "cifar-cnn", "apl:5"] for line in lines)
    for what in ("tables", "nets", "data"):
        assert main(["list", what, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)

    assert main(["show", "cifar10-cnn-apl"]) == 0
    shown = capsys.readouterr().out
    for text in ("optim.lr = 0.01\n", "published.mean = 11.38\n", "provenance = ", "cost.cpu = "):
        assert text in shown
    assert main(["show", "cifar10-cnn-apl", "--scale", "smoke", "--set", "epochs=7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 7
