"""Files of a run that were changed behind its back: mended, or named with a way on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy import TOY, StopAt, assert_identical, contents

from torchapl.paper.report.payload import build_payload
from torchapl.paper.train import InterruptedRunError, checkpoint, train
from torchapl.runs import DamagedError, load_runs
from torchapl.runs.curves import RunCurves
from torchapl.runs.folder import read_result, write_result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(TOY, 0, folder, device="cpu")
    return folder


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was stopped in its third epoch, after step 25."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.raises(InterruptedRunError):
        train(TOY, 0, folder, device="cpu", reporter=StopAt(25))
    return folder


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    return shutil.copytree(begun, tmp_path / "run")


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))

    return change


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        replaced(b'"epoch": 1', b'"epoch": 3'),
        replaced(b"\n", b""),
        replaced(b"train", b"\xff\xfe"),
        lambda path: path.write_bytes(b"5\n" + path.read_bytes()),
        Path.unlink,
    ],
    ids=["digit", "lines joined", "no text", "another line", "removed"],
)
def test_lines_are_mended_from_the_checkpoint(
    whole: Path, run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run / "metrics.jsonl")
    with pytest.warns(UserWarning, match="metrics.jsonl is not what was written: it is mended"):
        train(TOY, 0, run, device="cpu")
    assert_identical(whole, run)


def test_checkpoints_of_older_versions_go_on_with_the_file(whole: Path, run: Path) -> None:
    stored = checkpoint.load(run, "last")
    assert stored is not None
    tensors, facts = stored
    checkpoint.prune(run, "last", keep=0)
    del tensors["lines"]
    checkpoint.save(run, "last", 25, tensors, facts, keep=2)
    kept = shutil.copytree(run, run.with_name("kept"))
    train(TOY, 0, run, device="cpu")
    assert_identical(whole, run)
    # What it cannot mend it does not rewrite.
    lines = kept / "metrics.jsonl"
    replaced(b'"epoch": 2', b'"epoch": 7')(lines)
    before = lines.read_bytes()
    with pytest.raises(DamagedError, match=r"metrics.jsonl line 2: does not match its checksum"):
        train(TOY, 0, kept, device="cpu")
    assert lines.read_bytes() == before
    lines.unlink()
    with pytest.raises(DamagedError, match=r"has 0 of the 2 epochs .* remove last-"):
        train(TOY, 0, kept, device="cpu")


@pytest.mark.parametrize("damage", [flipped, Path.unlink], ids=["flipped", "removed"])
@pytest.mark.filterwarnings("ignore:.*(is damaged|trained again)")
def test_a_run_without_its_best_weights_starts_again(
    whole: Path, run: Path, damage: Callable[[Path], None]
) -> None:
    (best,) = run.glob("best-*")
    damage(best)
    with pytest.warns(UserWarning, match="best epoch, .*, are no longer in .* starts again"):
        train(TOY, 0, run, device="cpu")
    assert_identical(whole, run)


@pytest.mark.parametrize("damage", [flipped, Path.unlink], ids=["flipped", "removed"])
def test_a_run_goes_on_without_its_curves_and_says_what_is_lost(
    whole: Path, run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run / "curves.safetensors")
    with pytest.warns(UserWarning, match="curves.safetensors .* lost"):
        train(TOY, 0, run, device="cpu")
    expected, found = RunCurves(whole), RunCurves(run)
    assert found.order == ["initial", "epoch_0003", "learned"]
    for moment in found.order:
        for name, layer in found.moments[moment].items():
            assert torch.equal(layer.slope, expected.moments[moment][name].slope)
    # The rest is as ever.
    left, right = contents(whole), contents(run)
    for key in ("metrics", "result"):
        assert left[key] == right[key]
    assert build_payload(run)["curves"]


def test_a_changed_result_counts_nowhere_and_is_made_again(whole: Path, finished: Path) -> None:
    replaced(b'"test_error": ', b'"test_error": 1')(finished / "result.json")
    with pytest.warns(UserWarning, match="left out: .*result.json does not match its checksum"):
        assert load_runs(finished) == []
    with pytest.warns(UserWarning, match="result.json .* made again from the last checkpoint"):
        result = train(TOY, 0, finished, device="cpu")
    assert_identical(whole, finished)
    assert read_result(finished) == result


def test_a_changed_result_without_a_checkpoint_is_named(finished: Path) -> None:
    (finished / "result.json").write_bytes(b"{")
    checkpoint.prune(finished, "last", keep=0)
    with pytest.raises(DamagedError, match="no checkpoint to make it again from, so remove it"):
        train(TOY, 0, finished, device="cpu")


def test_a_changed_configuration_is_named(run: Path) -> None:
    replaced(b'"threads": ', b'"threads": 1')(run / "config.json")
    with pytest.raises(DamagedError, match=r"does not match its checksum.*; if the run in this"):
        train(TOY, 0, run, device="cpu")


def test_a_finished_run_needs_no_lock(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a disk that is read-only.
    def refuse(folder: Path) -> None:
        raise OSError("read-only")

    monkeypatch.setattr("torchapl.paper.train.locked", refuse)
    assert train(TOY, 0, finished, device="cpu").status == "finished"


def test_results_without_checksums_stay_what_they_are(finished: Path) -> None:
    result = read_result(finished)
    assert result is not None
    write_result(finished, result)
    text = (finished / "result.json").read_text()
    old = "".join(line for line in text.splitlines(keepends=True) if "checksum" not in line)
    (finished / "result.json").write_text(old.replace(",\n}", "\n}"))
    known = read_result(finished)
    assert known == replace(result, is_sealed=False)
    # Stored again, it does not become one that somebody vouches for.
    assert known is not None
    assert "checksum" not in known.to_dict()


@pytest.mark.parametrize("seconds", [float("nan"), -1.0])
def test_impossible_intervals_are_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(ValueError, match="checkpoint_seconds must be 0 or more"):
        train(TOY, 0, tmp_path, device="cpu", checkpoint_seconds=seconds)
