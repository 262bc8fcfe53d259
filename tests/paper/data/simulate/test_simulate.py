from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from torchapl.paper.data import simulate as module
from torchapl.paper.data.simulate import FEATURES, pool, simulate
from torchapl.paper.data.simulate.shard import MAX_SEED, MAX_SHARDS, PROCESSES, SimulatedShard
from torchapl.paper.data.store import EventStore

EVENTS = 25


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pythia8mc")
    monkeypatch.setattr(module, "SHARD_ROWS", 16)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> EventStore:
    """Made by one worker without interruption."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARD_ROWS", 16)
        return run(tmp_path_factory.mktemp("reference") / "htautau.events")


def run(path: Path, **changes: object) -> EventStore:
    arguments = {"events": EVENTS, "multiple_interactions": False} | changes
    return simulate(path, **arguments)


def test_rows_are_features_and_labels_of_both_classes(reference: EventStore) -> None:
    table = reference.table()
    assert reference.features == FEATURES
    assert table.shape == (EVENTS, 26)
    assert np.isfinite(table).all()
    assert set(table[:, -1]) == {0, 1}
    assert table[:, -1].sum() == 13
    # Shuffled, not one class after the other.
    changes = (np.diff(table[:, -1]) != 0).sum()
    assert changes > 4
    assert len(np.unique(table[:, 0])) == EVENTS


def test_same_events_whatever_the_workers(
    reference: EventStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "x.events", workers=2).checksum == reference.checksum
    assert capfd.readouterr().out == ""


def test_another_seed_gives_other_events(reference: EventStore) -> None:
    same, other = (SimulatedShard(0, 16, seed, True, False).make() for seed in (0, 1))
    np.testing.assert_array_equal(same, reference.table(0, 16))
    assert not np.isin(other[:, 0], reference.table()[:, 0]).any()


def test_no_two_shards_share_a_seed_of_pythia() -> None:
    corners = [
        SimulatedShard(number, 1, seed, True, True).pythia_seed(process)
        for seed in (0, 1, 7, MAX_SEED)
        for number in (0, 1, 2, MAX_SHARDS - 1)
        for process in PROCESSES
    ]
    assert len(set(corners)) == len(corners)
    assert (min(corners), max(corners)) == (1, 900_000_000)


class StoppedError(Exception):
    pass


def test_goes_on_where_it_was_interrupted(reference: EventStore, tmp_path: Path) -> None:
    def stop_after_first(count: int) -> None:
        if count:
            raise StoppedError

    path = tmp_path / "x.events"
    with pytest.raises(StoppedError):
        run(path, advance=stop_after_first)
    assert not path.exists()
    steps: list[int] = []
    store = run(path, advance=steps.append)
    # A shard that was being made is finished and kept.
    assert steps in ([16, 9], [25])
    assert store.checksum == reference.checksum


def test_makes_a_lost_shard_anew_and_only_that(reference: EventStore, tmp_path: Path) -> None:
    store = run(tmp_path / "x.events")
    store.shards[0].path.unlink()
    steps: list[int] = []
    assert run(tmp_path / "x.events", advance=steps.append).checksum == reference.checksum
    assert steps == [9, 16]


def test_explains_the_death_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_start_worker", partial(os._exit, 1))
    with pytest.raises(RuntimeError, match="run again, with fewer workers"):
        run(tmp_path / "x.events")


@pytest.mark.slow
def test_goes_on_after_being_killed(reference: EventStore, tmp_path: Path) -> None:
    path, sign = tmp_path / "x.events", tmp_path / "sign"
    program = f"""
from pathlib import Path
from torchapl.paper.data import simulate
if __name__ == "__main__":
    simulate.SHARD_ROWS = 16
    simulate.simulate(Path({str(path)!r}), events={EVENTS}, multiple_interactions=False,
        advance=lambda count: count and Path({str(sign)!r}).touch())
"""
    script = tmp_path / "run.py"
    script.write_text(program)
    child = subprocess.Popen([sys.executable, script], start_new_session=True)
    while not sign.exists():
        assert child.poll() is None
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not path.exists()
    assert run(path).checksum == reference.checksum
    # Its worker notices: the process group becomes empty.
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(child.pid, 0)
            time.sleep(0.01)


@pytest.mark.parametrize(
    "bad", [{"events": 0}, {"events": 10**9}, {"workers": 0}, {"seed": -1}, {"seed": 45_000}]
)
def test_refuses_impossible_arguments(bad: dict[str, int], tmp_path: Path) -> None:
    (name,) = bad
    with pytest.raises(ValueError, match=f"{name} must be (at least|from)"):
        run(tmp_path / "x.events", **bad)


def test_without_pythia_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pythia8mc", None)
    with pytest.raises(ModuleNotFoundError, match=r"torchapl\[physics\]"):
        run(tmp_path / "x.events")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_masses_stand_where_physics_puts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARD_ROWS", 2000)
    table = run(tmp_path / "x.events", events=2000).table()
    columns = dict(zip(FEATURES, table.T[:-1], strict=True))
    label = table[:, -1] == 1
    visible, collinear = columns["lepton_mass"], columns["collinear_mass"]
    # Neutrinos take on average 65 % of a tau; the thresholds favour those that took less.
    assert visible[~label].mean() == pytest.approx(50, abs=2)
    assert visible[label].mean() == pytest.approx(57, abs=2)
    boosted = (columns["pair_pt"] > 60) & (collinear > 0)
    assert np.median(collinear[boosted & ~label]) == pytest.approx(91.2, rel=0.1)
    assert np.median(collinear[boosted & label]) == pytest.approx(125, rel=0.06)
    assert np.median(columns["missing_mass"][~label]) == pytest.approx(91.2, rel=0.1)
    assert np.median(columns["missing_mass"][label]) == pytest.approx(125, rel=0.12)
    # Gluons radiate more than quarks.
    assert columns["jet_count"][label].mean() > 1.5 * columns["jet_count"][~label].mean()
    assert columns["missing_pt"][label].mean() > columns["missing_pt"][~label].mean()
    assert (columns["lepton1_pt"] > 20).all()
    assert (columns["lepton2_pt"] > 10).all()
    assert (columns["lepton1_pt"] >= columns["lepton2_pt"]).all()
    assert np.abs(columns["lepton1_eta"]).max() < 2.5
