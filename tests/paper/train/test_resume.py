from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy import TOY, StopAt, assert_identical

from torchapl.paper.train import InterruptedRunError, RunLockedError, checkpoint, train
from torchapl.runs import folder as runs


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert train(TOY, 0, folder, device="cpu").status == "finished"
    return folder


@pytest.mark.parametrize(
    ("step", "signum"),
    # The first step, the last of an epoch, within one, the very last.
    [(1, signal.SIGINT), (10, signal.SIGTERM), (15, signal.SIGINT), (30, signal.SIGTERM)],
)
def test_a_stopped_run_ends_as_an_uninterrupted_one(
    uninterrupted: Path, tmp_path: Path, step: int, signum: int
) -> None:
    with pytest.raises(InterruptedRunError, match="the same command resumes") as stopped:
        train(TOY, 0, tmp_path, device="cpu", reporter=StopAt(step, signum))
    assert stopped.value.signum == signum
    assert runs.read_result(tmp_path) is None
    assert signal.getsignal(signum) is not None
    train(TOY, 0, tmp_path, device="cpu")
    assert_identical(uninterrupted, tmp_path)


@pytest.mark.slow
def test_killed_processes_end_as_an_uninterrupted_one(tmp_path: Path) -> None:
    epochs = 40
    train(replace(TOY, epochs=epochs), 0, tmp_path / "whole", device="cpu")
    driver = Path(__file__).with_name("kill.py")
    run = subprocess.run(
        [sys.executable, driver, tmp_path / "killed", "0", "25", str(epochs)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 20
    assert_identical(tmp_path / "whole", tmp_path / "killed")


def stopped(folder: Path, step: int = 25) -> list[Path]:
    with pytest.raises(InterruptedRunError):
        train(TOY, 0, folder, device="cpu", reporter=StopAt(step))
    return sorted(folder.glob("last-*"))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_checkpoint_falls_back(uninterrupted: Path, tmp_path: Path, damage: str) -> None:
    before, newest = stopped(tmp_path)
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    newest.write_bytes({"flip": content, "cut": content[:-100], "empty": b""}[damage])
    assert before.exists()
    with pytest.warns(UserWarning, match="is damaged, going back to the one before it"):
        train(TOY, 0, tmp_path, device="cpu")
    assert_identical(uninterrupted, tmp_path)


@pytest.mark.filterwarnings("ignore:.*(is damaged|trained again)")
def test_without_a_whole_checkpoint_the_run_starts_again(
    uninterrupted: Path, tmp_path: Path
) -> None:
    for path in stopped(tmp_path):
        path.write_bytes(b"nothing")
    train(TOY, 0, tmp_path, device="cpu")
    assert_identical(uninterrupted, tmp_path)


def test_a_finished_run_is_not_repeated(uninterrupted: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.glob("*.*")}
    result = train(TOY, 0, uninterrupted, device="cpu")
    assert result.status == "finished"
    assert result.to_dict() == json.loads((uninterrupted / "result.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.glob("*.*")} == before


def test_a_folder_of_another_run_is_refused(uninterrupted: Path) -> None:
    other = replace(TOY, optim=replace(TOY.optim, lr=0.5))
    with pytest.raises(ValueError, match=r"holds a run with optim.lr=0.006 \(now 0.5\)"):
        train(other, 0, uninterrupted, device="cpu")
    with pytest.raises(ValueError, match=r"holds a run with seed=0 \(now 1\)"):
        train(TOY, 1, uninterrupted, device="cpu")


def test_a_locked_folder_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from torchapl.runs.folder import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(1e6)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(RunLockedError, match=f"in use by process {holder.pid} on"):
            train(TOY, 0, tmp_path, device="cpu")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    # The lock dies with its holder.
    with runs.locked(tmp_path):
        pass


def test_a_full_disk_keeps_the_last_checkpoint(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = stopped(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            train(TOY, 0, tmp_path, device="cpu")
    assert set(kept) <= set(tmp_path.glob("last-*"))
    assert not list(tmp_path.glob(".*.partial"))
    train(TOY, 0, tmp_path, device="cpu")
    assert_identical(uninterrupted, tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        train(TOY, 0, tmp_path / "file" / "run", device="cpu")


def test_a_changed_environment_is_told(tmp_path: Path) -> None:
    stopped(tmp_path)
    config = runs.read_config(tmp_path)
    assert config is not None
    other = replace(config, environment={**config.environment, "threads": 99})
    runs.write_config(tmp_path, other)
    with pytest.warns(UserWarning, match="threads was 99 when this run began"):
        train(TOY, 0, tmp_path, device="cpu")


def test_checkpoints_hold_no_code(uninterrupted: Path) -> None:
    loaded = checkpoint.load(uninterrupted, "last")
    assert loaded is not None
    tensors, facts = loaded
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())
    assert json.loads(json.dumps(facts)) == facts
    # Two while it trains, see stopped() above; one when it is done.
    assert len(list(uninterrupted.glob("last-*"))) == 1
    assert len(list(uninterrupted.glob("best-*"))) == 1


def test_training_leaves_the_global_random_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(replace(TOY, epochs=1), 0, tmp_path, device="cpu")
    assert torch.equal(torch.rand(3), expected)


def test_what_cannot_begin_leaves_no_run(tmp_path: Path) -> None:
    wrong = replace(TOY, net="no-such-net")
    with pytest.raises(ValueError, match="unknown network"):
        train(wrong, 0, tmp_path, device="cpu")
    assert not (tmp_path / "config.json").exists()
