"""The commit that a run names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from torchapl.runs import folder


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that holds this module and a file of results."""
    for name in ("src/folder.py", "results/runs.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(folder, "__file__", str(tmp_path / "src" / "folder.py"))
    return tmp_path


def commit() -> object:
    return folder.environment(torch.device("cpu"))["commit"]


def test_a_clean_tree_names_its_commit(checkout: Path) -> None:
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=checkout, text=True)
    assert commit() == head[:12]


def test_a_changed_source_is_marked_and_new_results_are_not(checkout: Path) -> None:
    clean = commit()
    (checkout / "results" / "runs.jsonl").write_text("1\n2\n")
    (checkout / "src" / "new.py").write_text("")
    assert commit() == clean
    (checkout / "src" / "folder.py").write_text("2\n")
    assert commit() == f"{clean}-dirty"


def test_outside_of_a_checkout_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.py").write_text("")
    monkeypatch.setattr(folder, "__file__", str(tmp_path / "folder.py"))
    assert commit() is None
