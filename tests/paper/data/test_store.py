from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest

from torchapl.paper.data import DataError, EventStore, EventStoreWriter, writer
from torchapl.paper.data.statistics import Statistics
from torchapl.paper.data.store import BLOCKS, EVENTS, HEAD

COLUMNS = ("pt", "eta", "label", "weight")


def block(rows: int, seed: int = 0) -> np.ndarray:
    table = np.random.default_rng(seed).normal(3, 50, (rows, 4)).astype(np.float32)
    table[:, 2] = table[:, 2] > 0
    return table


def write(folder: Path, parts: list[np.ndarray], **options: object) -> EventStore:
    with EventStoreWriter(folder, COLUMNS, **options) as open_writer:  # type: ignore[arg-type]
        for part in parts[open_writer.blocks :]:
            open_writer.append(part)
        return open_writer.finish()


def test_round_trip(tmp_path: Path) -> None:
    parts = [block(100), block(7, 1), block(50, 2)]
    store = write(tmp_path / "a.events", parts, source={"seed": 3})
    whole = np.concatenate(parts)
    assert np.array_equal(store.map, whole)
    out = np.empty((60, 4), dtype=np.float32)
    store.read(80, out)
    assert np.array_equal(out, whole[80:140])
    assert store.columns == COLUMNS
    assert store.features == ("pt", "eta")
    assert store.source == {"seed": 3}
    store.verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.events.lock", "a.events"]
    assert sorted(path.name for path in store.folder.iterdir()) == sorted([EVENTS, BLOCKS, HEAD])


def test_a_pickled_store_opens_its_own_file(tmp_path: Path) -> None:
    store = write(tmp_path / "a.events", [block(20)])
    store.read(0, np.empty((1, 4), dtype=np.float32))
    copy = pickle.loads(pickle.dumps(store))
    assert np.array_equal(copy.map, store.map)
    out = np.empty((20, 4), dtype=np.float32)
    copy.read(0, out)
    assert np.array_equal(out, store.map)


@pytest.mark.parametrize(("start", "stop"), [(0, 157), (0, 100), (30, 101), (107, 108), (5, 5)])
def test_statistics_of_any_rows(tmp_path: Path, start: int, stop: int) -> None:
    parts = [block(100), block(7, 1), block(50, 2)]
    parts[0][3:60, 0] = np.nan
    store = write(tmp_path / "a.events", parts, allow_missing=True)
    rows = np.concatenate(parts)[start:stop].astype(np.float64)
    found = store.statistics(start, stop)
    assert found.rows == stop - start
    if start == stop:
        return
    np.testing.assert_allclose(found.mean, np.nanmean(rows, 0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.nanstd(rows, 0), rtol=1e-12)
    assert np.array_equal(found.minimum, np.nanmin(rows, 0))
    assert np.array_equal(found.maximum, np.nanmax(rows, 0))
    assert np.array_equal(found.count, (~np.isnan(rows)).sum(0))


def test_statistics_survive_a_large_offset_and_json() -> None:
    values = np.random.default_rng(0).normal(1e6, 1, (40_000, 1)).astype(np.float32)
    found = Statistics.of(values)
    np.testing.assert_allclose(found.deviation, values.astype(np.float64).std(0), rtol=1e-9)
    again = Statistics.from_json(json.loads(json.dumps(found.to_json())))
    assert again.mean[0] == found.mean[0]
    nothing = Statistics.of(np.full((5, 1), np.nan, dtype=np.float32))
    assert nothing.count[0] == 0
    assert Statistics.from_json(json.loads(json.dumps(nothing.to_json()))).minimum[0] == np.inf
    np.testing.assert_array_equal(nothing.plus(found).mean, found.mean)


def test_resumes_after_the_last_whole_block(tmp_path: Path) -> None:
    parts = [block(64, seed) for seed in range(5)]
    folder = tmp_path / "a.events"
    with EventStoreWriter(folder, COLUMNS, source={"n": (1, 2)}) as first:
        first.append(parts[0])
        first.append(parts[1])
    partial = tmp_path / "a.events.partial"
    assert not folder.exists()
    # A crash tore the next block, and the line that would have vouched for it.
    with (partial / EVENTS).open("ab") as file:
        file.write(b"torn" * 10_000)
    with (partial / BLOCKS).open("ab") as file:
        file.write(b'{"sha256": "ab')
    with EventStoreWriter(folder, COLUMNS, source={"n": (1, 2)}) as second:
        assert (second.blocks, second.rows) == (2, 128)
        for part in parts[2:]:
            second.append(part)
        store = second.finish()
    assert np.array_equal(store.map, np.concatenate(parts))
    store.verify()
    assert store.checksum == write(tmp_path / "b.events", parts).checksum


def _write_and_die(folder: Path) -> None:
    with EventStoreWriter(folder, COLUMNS) as dying:
        for seed in range(3):
            dying.append(block(100, seed))
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_writer_leaves_no_lock_and_loses_nothing(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_write_and_die, args=(tmp_path / "a.events",)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    store = write(tmp_path / "a.events", [block(100, seed) for seed in range(4)])
    assert np.array_equal(store.map[300:], block(100, 3))
    store.verify()


def test_a_damaged_journal_is_not_resumed(tmp_path: Path) -> None:
    with EventStoreWriter(tmp_path / "a.events", COLUMNS) as first:
        first.append(block(10))
    (tmp_path / "a.events.partial" / BLOCKS).write_text("nonsense\n")
    with pytest.raises(DataError, match="is damaged; remove the folder"):
        EventStoreWriter(tmp_path / "a.events", COLUMNS)


def test_another_source_does_not_resume(tmp_path: Path) -> None:
    EventStoreWriter(tmp_path / "a.events", COLUMNS, source={"seed": 0}).close()
    with pytest.raises(DataError, match="another source"):
        EventStoreWriter(tmp_path / "a.events", COLUMNS, source={"seed": 1})


def test_two_writers_at_once(tmp_path: Path) -> None:
    with (
        EventStoreWriter(tmp_path / "a.events", COLUMNS),
        pytest.raises(DataError, match="another process is at work"),
    ):
        EventStoreWriter(tmp_path / "a.events", COLUMNS)


def test_a_complete_store_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "a.events", [block(3)])
    with pytest.raises(DataError, match="complete already"):
        EventStoreWriter(tmp_path / "a.events", COLUMNS)


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="would be empty"):
        write(tmp_path / "a.events", [])


@pytest.mark.parametrize(
    ("column", "value", "allow_missing", "message"),
    [
        (0, np.nan, False, "column 'pt' is nan in row 105"),
        (1, np.inf, False, "column 'eta' is inf in row 105"),
        (1, -np.inf, True, "column 'eta' is -inf in row 105"),
        (2, np.nan, True, "column 'label' is nan in row 105"),
        (3, np.nan, True, "column 'weight' is nan in row 105"),
    ],
)
def test_values_that_are_no_numbers(
    tmp_path: Path, column: int, value: float, allow_missing: bool, message: str
) -> None:
    bad = block(20, 1)
    bad[5, column] = value
    with EventStoreWriter(tmp_path / "a.events", COLUMNS, allow_missing=allow_missing) as refusing:
        refusing.append(block(100))
        with pytest.raises(ValueError, match=message):
            refusing.append(bad)
        assert refusing.rows == 100


def test_what_float32_cannot_hold_is_infinite(tmp_path: Path) -> None:
    with (
        EventStoreWriter(tmp_path / "a.events", COLUMNS) as refusing,
        pytest.raises(ValueError, match="column 'pt' is inf in row 0"),
    ):
        refusing.append(np.full((2, 4), 1e300))


def test_large_finite_values_are_no_error(tmp_path: Path) -> None:
    table = block(4)
    table[:, 0] = np.finfo(np.float32).max
    assert write(tmp_path / "a.events", [table]).rows == 4


def test_wrong_shape_and_columns(tmp_path: Path) -> None:
    with (
        EventStoreWriter(tmp_path / "a.events", COLUMNS) as refusing,
        pytest.raises(ValueError, match=r"shape \(n, 4\), got \(3, 5\)"),
    ):
        refusing.append(np.zeros((3, 5), dtype=np.float32))
    with pytest.raises(ValueError, match="no column 'label'"):
        EventStoreWriter(tmp_path / "b.events", ["a", "b"])
    with pytest.raises(ValueError, match="must differ"):
        EventStoreWriter(tmp_path / "b.events", ["a", "a", "label"])


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a block fits; the block counts as not written, and the writer goes on later."""
    parts = [block(64, 0), block(64, 1), block(3, 2)]

    def half(file: int, data: memoryview) -> None:
        os.write(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with EventStoreWriter(tmp_path / "a.events", COLUMNS) as filling:
        filling.append(parts[0])
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_write_all", half)
            with pytest.raises(DataError, match="No space left on device"):
                filling.append(parts[1])
        assert filling.rows == 64
        # Smaller than what was torn, which must not be left behind it.
        filling.append(parts[2])
        store = filling.finish()
    assert np.array_equal(store.map, np.concatenate([parts[0], parts[2]]))


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file where a folder is needed"):
        EventStoreWriter(tmp_path / "file" / "a.events", COLUMNS)
    (tmp_path / "b.events").write_text("")
    with pytest.raises(DataError, match="in the way"):
        EventStoreWriter(tmp_path / "b.events", COLUMNS)


def test_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DataError, match="read-only"):
        EventStoreWriter(tmp_path / "a.events", COLUMNS)


def _cut(folder: Path) -> None:
    with (folder / EVENTS).open("r+b") as file:
        file.truncate(100)


def _change_head(**entries: object) -> object:
    def change(folder: Path) -> None:
        head = json.loads((folder / HEAD).read_text())
        (folder / HEAD).write_text(json.dumps({**head, **entries}))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "has 100 bytes, 1600 expected"),
        (lambda folder: (folder / EVENTS).unlink(), "has 0 bytes"),
        (lambda folder: (folder / HEAD).unlink(), "is not an event store"),
        (lambda folder: (folder / HEAD).write_text("{"), "is damaged"),
        (lambda folder: (folder / HEAD).write_text("[]"), "is damaged"),
        (_change_head(format=99), "has format 99"),
        (_change_head(label="absent"), "is damaged"),
        (_change_head(rows=99), "has 1600 bytes, 1584 expected"),
    ],
)
def test_a_damaged_store_does_not_open(tmp_path: Path, damage: object, message: str) -> None:
    folder = write(tmp_path / "a.events", [block(100)]).folder
    damage(folder)  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        EventStore(folder)


def test_verify_finds_a_flipped_bit(tmp_path: Path) -> None:
    store = write(tmp_path / "a.events", [block(100), block(100, 1)])
    with (store.folder / EVENTS).open("r+b") as file:
        file.seek(150 * 16)
        byte = file.read(1)
        file.seek(150 * 16)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(DataError, match="rows 100 to 199 do not match"):
        EventStore(store.folder).verify()


def test_changed_statistics_are_noticed(tmp_path: Path) -> None:
    store = write(tmp_path / "a.events", [block(100)])
    path = store.folder / BLOCKS
    path.write_bytes(path.read_bytes().replace(b'"rows": 100', b'"rows": 101'))
    with pytest.raises(DataError, match="does not match its checksum"):
        EventStore(store.folder).statistics()
