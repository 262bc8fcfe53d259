from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pytest

from torchapl.paper.data import DataError, EventStore, EventStoreWriter, Plan, shards
from torchapl.paper.data.shards import find_shards, read_shard, write_shard
from torchapl.paper.data.statistics import Statistics
from torchapl.paper.data.store import INDEX
from torchapl.runs import atomic

COLUMNS = ("pt", "eta", "label", "weight")


def block(rows: int, seed: int = 0) -> np.ndarray:
    table = np.random.default_rng(seed).normal(3, 50, (rows, 4)).astype(np.float32)
    table[:, 2] = table[:, 2] > 0
    return table


def plan(**options: object) -> Plan:
    return Plan(COLUMNS, **options)


def write(folder: Path, parts: list[np.ndarray], **options: object) -> EventStore:
    with EventStoreWriter(folder, plan(**options)) as writer:
        for part in parts[len(writer.shards) :]:
            writer.append(part)
        return writer.finish()


def flip(path: Path, place: int = 100) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_round_trip(tmp_path: Path) -> None:
    parts = [block(100), block(7, 1), block(50, 2)]
    store = write(tmp_path / "a.events", parts, source={"seed": 3})
    whole = np.concatenate(parts)
    assert np.array_equal(store.table(), whole)
    assert np.array_equal(store.table(80, 140), whole[80:140])
    assert store.columns == COLUMNS
    assert store.features == ("pt", "eta")
    assert store.source == {"seed": 3}
    assert store.blocks(0, 157) == [(0, 100), (100, 7), (107, 50)]
    assert store.blocks(50, 110) == [(50, 50), (100, 7), (107, 3)]
    store.verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.events.lock", "a.events"]
    names = {path.name for path in store.folder.iterdir()}
    assert names == {INDEX, *(shard.path.name for shard in store.shards)}


def test_any_parquet_reader_reads_the_folder(tmp_path: Path) -> None:
    parts = [block(100), block(7, 1)]
    store = write(tmp_path / "a.events", parts)
    table = pyarrow.dataset.dataset(store.folder, format="parquet", exclude_invalid_files=True)
    columns = table.to_table().to_pydict()
    assert tuple(columns) == COLUMNS
    assert np.array_equal(np.array([*columns.values()], np.float32).T, np.concatenate(parts))


def test_the_checksum_is_that_of_the_events(tmp_path: Path) -> None:
    one = write_shard(tmp_path, plan(source={"seed": 0}), 4, block(9))
    other = write_shard(tmp_path, plan(source={"seed": 1}), 5, block(9))
    assert one.name[5:] == other.name[5:]
    assert one.read_bytes() != other.read_bytes()
    assert write_shard(tmp_path, plan(), 4, block(9, 1)).name != one.name


def test_rows_outside_the_table(tmp_path: Path) -> None:
    store = write(tmp_path / "a.events", [block(10)])
    for start, stop in ((-1, 3), (5, 11)):
        with pytest.raises(ValueError, match=r"do not lie in 0\.\.9"):
            store.table(start, stop)


def test_a_pickled_store_reads_on(tmp_path: Path) -> None:
    store = write(tmp_path / "a.events", [block(20)])
    assert np.array_equal(pickle.loads(pickle.dumps(store)).table(), store.table())


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


def test_resumes_with_the_shards_that_are_missing(tmp_path: Path) -> None:
    parts = [block(64, seed) for seed in range(5)]
    folder = tmp_path / "a.events"
    with EventStoreWriter(folder, plan(source={"n": (1, 2)})) as first:
        first.append(parts[0])
        # Another process was ahead.
        write_shard(first.partial, first.plan, 3, parts[3])
    assert not folder.exists()
    with EventStoreWriter(folder, plan(source={"n": (1, 2)})) as second:
        assert list(second.shards) == [0, 3]
        assert len(second.leading) == 1
        # What a killed process leaves behind.
        (second.partial / ".00001-x.parquet.0123abcd.partial").write_bytes(b"torn")
        with pytest.raises(DataError, match="no shard 1 of 5: run the same command again"):
            second.finish(5)
        for number in (1, 2, 4):
            write_shard(second.partial, second.plan, number, parts[number])
        store = second.finish(5)
    assert np.array_equal(store.table(), np.concatenate(parts))
    assert not list(store.folder.glob(".*"))
    whole = write(tmp_path / "b.events", parts, source={"n": (1, 2)})
    assert store.checksum == whole.checksum


def test_one_of_two_equal_numbers_counts(tmp_path: Path) -> None:
    with EventStoreWriter(tmp_path / "a.events", plan()) as writer:
        writer.append(block(10))
        write_shard(writer.partial, writer.plan, 0, block(10, 1))
        store = writer.finish()
    assert store.rows == 10
    assert len(list(store.folder.glob("*.parquet"))) == 1


def _write_and_die(folder: Path) -> None:
    with EventStoreWriter(folder, plan()) as dying:
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
    assert np.array_equal(store.table(300), block(100, 3))


def test_another_source_does_not_resume(tmp_path: Path) -> None:
    EventStoreWriter(tmp_path / "a.events", plan(source={"seed": 0})).close()
    with pytest.raises(DataError, match="another source"):
        EventStoreWriter(tmp_path / "a.events", plan(source={"seed": 1}))
    (tmp_path / "a.events.partial" / "plan.json").write_text("{")
    with pytest.raises(DataError, match=r"plan\.json is damaged"):
        EventStoreWriter(tmp_path / "a.events", plan(source={"seed": 0}))


def test_two_writers_at_once(tmp_path: Path) -> None:
    with (
        EventStoreWriter(tmp_path / "a.events", plan()),
        pytest.raises(DataError, match="another process is at work"),
    ):
        EventStoreWriter(tmp_path / "a.events", plan())


def test_a_complete_store_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "a.events", [block(3)])
    with pytest.raises(DataError, match="complete already"):
        EventStoreWriter(tmp_path / "a.events", plan())


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no shard 0"):
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
    with EventStoreWriter(tmp_path / "a.events", plan(allow_missing=allow_missing)) as refusing:
        refusing.append(block(100))
        with pytest.raises(ValueError, match=message):
            refusing.append(bad, first_row=100)
        assert len(refusing.shards) == 1


def test_what_float32_cannot_hold_is_infinite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column 'pt' is inf in row 0"):
        write_shard(tmp_path, plan(), 0, np.full((2, 4), 1e300))


def test_large_finite_values_are_no_error(tmp_path: Path) -> None:
    table = block(4)
    table[:, 0] = np.finfo(np.float32).max
    assert write(tmp_path / "a.events", [table]).rows == 4


def test_wrong_shape_and_columns(tmp_path: Path) -> None:
    for table in (np.zeros((3, 5), np.float32), np.zeros((0, 4), np.float32)):
        with pytest.raises(ValueError, match=r"shape \(n, 4\) with n > 0, got"):
            write_shard(tmp_path, plan(), 0, table)
    with pytest.raises(ValueError, match="no column 'label'"):
        Plan(("a", "b"))
    with pytest.raises(ValueError, match="must differ"):
        Plan(("a", "a", "label"))


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard counts as not written, and the writer goes on later."""

    def full(path: Path, content: bytes) -> None:
        raise atomic.WriteError(path, OSError(28, os.strerror(28)))

    with EventStoreWriter(tmp_path / "a.events", plan()) as filling:
        filling.append(block(64))
        with monkeypatch.context() as patch:
            patch.setattr(shards, "write_atomic", full)
            with pytest.raises(DataError, match="No space left on device"):
                filling.append(block(64, 1))
        filling.append(block(3, 2))
        store = filling.finish()
    assert np.array_equal(store.table(), np.concatenate([block(64), block(3, 2)]))


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file where a folder is needed"):
        EventStoreWriter(tmp_path / "file" / "a.events", plan())
    (tmp_path / "b.events").write_text("")
    with pytest.raises(DataError, match="in the way"):
        EventStoreWriter(tmp_path / "b.events", plan())


def test_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DataError, match="read-only"):
        EventStoreWriter(tmp_path / "a.events", plan())


def change(**entries: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        (folder / INDEX).write_text(json.dumps({**index, **entries}))

    return apply


def rename_shard(folder: Path) -> None:
    index = (folder / INDEX).read_text()
    name = next(folder.glob("*.parquet")).name
    (folder / INDEX).write_text(index.replace(name, "../" + name))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / INDEX).unlink(), "is not an event store"),
        (lambda folder: (folder / INDEX).write_text("{"), "is damaged"),
        (lambda folder: (folder / INDEX).write_text("[]"), "is damaged"),
        (lambda folder: (folder / INDEX).write_bytes(b"\xff\xfe"), "is damaged"),
        (change(format=1), "has format 1"),
        (change(label="absent"), "is damaged"),
        (change(label="weight"), "does not match its own checksum"),
        (change(source={"seed": 7}), "does not match its own checksum"),
        (change(shards=[]), "does not match its own checksum"),
        (rename_shard, "is not named like a shard|own checksum"),
        (lambda folder: next(folder.glob("00001-*")).unlink(), "is missing; run the command"),
    ],
)
def test_a_damaged_store_does_not_open(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = write(tmp_path / "a.events", [block(100), block(50, 1)]).folder
    damage(folder)
    with pytest.raises(DataError, match=message):
        EventStore(folder)


def test_every_changed_byte_of_the_index_is_noticed(tmp_path: Path) -> None:
    folder = write(tmp_path / "a.events", [block(20)]).folder
    content = (folder / INDEX).read_bytes()
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1
        (folder / INDEX).write_bytes(changed)
        with pytest.raises(DataError):
            EventStore(folder)


def test_damage_is_noticed_by_the_first_read(tmp_path: Path) -> None:
    store = write(tmp_path / "a.events", [block(100), block(100, 1)])
    flip(store.shards[1].path)
    opened = EventStore(store.folder)
    opened.table(0, 100)
    with pytest.raises(DataError, match=r"00001-.* is damaged"):
        opened.table(150, 160)
    with pytest.raises(DataError, match=r"00001-.* is damaged"):
        EventStore(store.folder).verify()


def test_no_flipped_bit_of_a_shard_changes_an_event(tmp_path: Path) -> None:
    table = block(200)
    path = write_shard(tmp_path, plan(), 0, table)
    content = path.read_bytes()
    noticed = 0
    for place in range(0, len(content), 11):
        path.write_bytes(content)
        flip(path, place)
        try:
            found = np.stack(read_shard(path, COLUMNS), axis=1)
        except DataError:
            noticed += 1
        else:  # a bit that no value depends on, such as in the name of the writing program
            assert np.array_equal(found, table)
    assert noticed > len(content) / 11 / 2


def test_verified_once_not_at_every_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = EventStore(write(tmp_path / "a.events", [block(100)]).folder)
    asked: list[bool] = []
    plain = shards.read_shard
    monkeypatch.setattr(
        "torchapl.paper.data.store.read_shard",
        lambda path, columns, check: (asked.append(check), plain(path, columns, check=check))[1],
    )
    opened.table()
    opened.table()
    opened.verify()
    assert asked == [True, False, True]


def test_a_lost_shard_is_made_anew_by_the_same_command(tmp_path: Path) -> None:
    parts = [block(64, seed) for seed in range(3)]
    store = write(tmp_path / "a.events", parts, source={"seed": 0})
    store.shards[1].path.unlink()
    with pytest.raises(DataError, match="was made from another source"):
        EventStoreWriter(store.folder, plan(source={"seed": 1}))
    with EventStoreWriter(store.folder, plan(source={"seed": 0})) as writer:
        assert list(writer.shards) == [0, 2]
        writer.append(parts[1])
        again = writer.finish(3)
    assert again.checksum == store.checksum
    assert np.array_equal(again.table(), np.concatenate(parts))


def test_a_shard_damaged_before_the_end_is_removed(tmp_path: Path) -> None:
    with EventStoreWriter(tmp_path / "a.events", plan()) as writer:
        writer.append(block(50))
        flip(writer.shards[0])
        with pytest.raises(DataError, match="has been removed: run the same command again"):
            writer.finish()
        assert not find_shards(writer.partial)
