from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from toy import TOY

from torchapl.paper.train import train
from torchapl.paper.train.progress import Live, Plain

LINE = {
    "epoch": 1,
    "step": 10,
    "train_loss": 0.5,
    "train_error": 20.0,
    "test_error": 25.0,
    "valid_auc": 0.8,
}


def test_plain_lines_tell_rate_time_left_and_best() -> None:
    stream = io.StringIO()
    plain = Plain(stream, every=0.0)
    plain.begin("toy", 5, 20, 2)
    plain.step(10)
    plain.epoch(LINE)
    plain.epoch(LINE | {"epoch": 2, "test_error": 30.0})
    plain.end()
    text = stream.getvalue()
    assert "toy: 2 epochs, 20 steps, resumed at step 5" in text
    assert "step 10/20, " in text
    assert " steps/s, 0:00 left" in text
    assert "valid AUC 0.8000 (best 0.8000)" in text
    assert text.endswith(
        "epoch 2/2, loss 0.5000, train error 20.00 %, test error 30.00 % (best 25.00), "
        "valid AUC 0.8000 (best 0.8000)\n"
    )
    assert "\x1b" not in text


def test_a_terminal_gets_a_bar() -> None:
    stream = io.StringIO()
    live = Live(Console(file=stream, force_terminal=True, width=200))
    live.begin("toy", 0, 20, 2)
    live.step(10)
    live.epoch(LINE)
    live.message("something else")
    live.end()
    text = stream.getvalue()
    assert "toy epoch 1/2" in text
    assert "10/20 steps" in text
    assert "something else" in text
    assert "best 25.00" in text


def test_tensorboard_on_request(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(replace(TOY, epochs=1), 0, tmp_path, device="cpu", tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))


def test_the_library_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(replace(TOY, epochs=1), 0, tmp_path, device="cpu")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
