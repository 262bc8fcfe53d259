"""The scripts in examples/ run as they are, and end with what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchapl.paper.report.payload import build_payload

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(folder: Path, script: str) -> str:
    """Run a script in an empty folder, without a network; return what it printed."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / script],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_plain_pytorch(tmp_path: Path) -> None:
    printed = run(tmp_path, "cnn.py")
    assert printed.count("test errors") == 2
    payload: Any = build_payload(tmp_path / "runs" / "cnn")
    assert {run["name"] for run in payload["runs"]} == {"CNN with APL", "CNN with ReLU"}
    assert {run["status"] for run in payload["runs"]} == {"finished"}
    assert len(payload["curves"]) == 2


def test_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    printed = run(tmp_path, "transformers_trainer.py")
    assert "the same logits, bit for bit" in printed
    payload: Any = build_payload(tmp_path / "runs" / "transformers" / "curves")
    assert payload["runs"][0]["name"] == "GPT-2 with APL"
    assert len(payload["learning"][0]["metrics"]["eval_loss"]) == 3


def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    printed = run(tmp_path, "lightning_module.py")
    assert "loaded the checkpoint: APL((32,)" in printed
    payload: Any = build_payload(tmp_path / "runs" / "lightning" / "curves")
    assert len(payload["learning"][0]["metrics"]["validation_error"]) == 5


def test_learned_curves(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed = run(tmp_path, "learned_curves.py")
    assert "largest difference" in printed
    assert (tmp_path / "curves.png").exists()


def test_every_script_is_tested() -> None:
    # The comparison on one's own data is trained where the rest of its file is tested.
    files = (Path(__file__), Path(__file__).parent / "paper" / "test_own.py")
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    for script in EXAMPLES.glob("*.py"):
        assert script.name in texts
