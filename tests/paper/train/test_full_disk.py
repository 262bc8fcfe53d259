"""Writes that the system really refuses: a limit on the size of files, and a full file system."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy import TOY, StopAt, assert_identical

from torchapl.cli import main
from torchapl.paper.train import InterruptedRunError, train
from torchapl.runs.atomic import WriteError, write_atomic
from torchapl.runs.folder import locked

THREADS = {"OMP_NUM_THREADS": str(torch.get_num_threads())}


@pytest.mark.slow
def test_a_refused_write_names_the_file_and_the_run_resumes(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    arguments = ["train", "atlas-dnn-apl", "--scale", "smoke", "--device", "cpu", "--quiet"]
    # Wide enough for checkpoints to be the largest files.
    arguments += ["--set", "width=0.3", "--folder"]
    assert main([*arguments, str(whole)]) == 0
    size = min(path.stat().st_size for path in whole.glob("last-*"))
    refused = subprocess.run(
        [sys.executable, "-m", "torchapl.cli", *arguments, str(folder)],
        # Half a checkpoint: their sizes differ by the digits of the times that they hold.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)),
        capture_output=True,
        text=True,
        env=os.environ | THREADS,
    )
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith(f"error: cannot write {folder}/last-")
    assert ".safetensors: File too large; what was written before is whole" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not list(folder.glob(".*.partial"))
    assert not (folder / "result.json").exists()
    assert main([*arguments, str(folder)]) == 0
    assert_identical(whole, folder)


@pytest.fixture
def private_mounts() -> list[str]:
    """Return what starts a command that may mount file systems only it sees."""
    launcher = ["unshare", "--mount"] + (["--map-root-user"] if os.geteuid() else [])
    if shutil.which("unshare") is None:
        pytest.skip("a full file system needs unshare(1)")
    probe = subprocess.run(
        [*launcher, "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, text=True
    )
    if probe.returncode:
        pytest.skip(f"a full file system needs leave to mount one: {probe.stderr.strip()}")
    return launcher


@pytest.mark.slow
def test_a_full_disk_keeps_the_checkpoint_and_the_run_resumes(
    tmp_path: Path, private_mounts: list[str]
) -> None:
    disk, copied, whole = (tmp_path / name for name in ("disk", "copied", "whole"))
    disk.mkdir()
    copied.mkdir()
    program = Path(__file__).with_name("full_disk.py")
    script = f"mount -t tmpfs -o size=2m tmpfs {disk} && exec {sys.executable} {program} {disk}"
    run = subprocess.run(
        [*private_mounts, "sh", "-c", f"{script} {copied}"],
        capture_output=True,
        text=True,
        env=os.environ | THREADS,
    )
    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout)
    [said] = facts["said"]
    assert said.startswith(f"cannot write {disk / 'run'}/")
    assert "No space left on device; what was written before is whole" in said
    assert (facts["kept"], facts["step"], facts["partials"]) == (True, 15, [])
    assert facts["code"] == 2
    assert f"error: cannot write {disk / 'new'}" in run.stderr
    assert facts["status"] == "finished"
    train(TOY, 0, whole, device="cpu")
    assert_identical(whole, copied)


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError):
        train(TOY, 0, tmp_path, device="cpu", reporter=StopAt(5))
    left = tmp_path / ".last-000000005.0123.safetensors.89abcdef.partial"
    left.write_bytes(b"half a check")
    with locked(tmp_path):
        assert not left.exists()
    assert list(tmp_path.glob("last-*"))


def test_a_refused_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    path.unlink()
    path.mkdir()
    with pytest.raises(WriteError, match=f"cannot write {path}: Is a directory") as refused:
        write_atomic(path, b"new")
    assert refused.value.errno
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
