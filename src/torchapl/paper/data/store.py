"""Event tables of any size on disk: a folder of Parquet shards and an index.

``index.json`` holds the names of the columns, the source, and of each shard its name, which carries
its checksum, its number of rows and its column statistics; and a checksum of itself, so that one
number vouches for everything. It is written last: a folder without it is not a store.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from torchapl.paper.data.files import DataError
from torchapl.paper.data.shards import Plan, Table, read_shard, shard_digest
from torchapl.paper.data.statistics import Statistics, total
from torchapl.runs.atomic import write_atomic

INDEX = "index.json"
FORMAT = 2


def store_folder(root: Path, name: str) -> Path:
    """Return the folder of the named event table below a data root.

    Example:
        >>> store_folder(Path("data"), "htautau").as_posix()
        'data/htautau.events'
    """
    return root / f"{name}.events"


@dataclass(frozen=True)
class Shard:
    """A shard in the index: file, place of its rows in the table, and their statistics."""

    path: Path
    first: int
    statistics: Statistics

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.statistics.rows


class EventStore:
    """A finished store, opened for reading; safe to share between threads and processes.

    A shard is compared with its checksum when it is first read, so that damage never passes
    unnoticed.

    Args:
        folder: The store. A missing or damaged one raises :class:`DataError`.

    Example:
        >>> import tempfile
        >>> from torchapl.paper.data.writer import EventStoreWriter
        >>> folder = Path(tempfile.mkdtemp()) / "tiny.events"
        >>> with EventStoreWriter(folder, Plan(("mass", "label"))) as writer:
        ...     writer.append(np.array([[91.2, 0], [125.1, 1]], dtype=np.float32))
        ...     store = writer.finish()
        >>> len(store), store.features, store.label
        (2, ('mass',), 1)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = _read_index(folder)
        self.columns: tuple[str, ...] = tuple(index["columns"])
        self.label: int = self.columns.index(index["label"])
        self.features = self.columns[: self.label]
        self.source: dict[str, Any] = index["source"]
        self.checksum: str = index["sha256"]
        statistics = [Statistics.from_json(record) for record in index["shards"]]
        firsts = [0, *accumulate(shard.rows for shard in statistics)]
        self.rows = firsts.pop()
        self.shards = tuple(
            Shard(folder / record["name"], first, shard)
            for record, first, shard in zip(index["shards"], firsts, statistics, strict=True)
        )
        self._firsts = firsts
        self._checked: set[int] = set()
        for path in missing_shards(folder, index):
            raise DataError(
                f"{path} is missing; run the command that made this set again, which makes it anew"
            )

    def __len__(self) -> int:
        return self.rows

    @property
    def row_bytes(self) -> int:
        """Bytes of the values of one row."""
        return 4 * len(self.columns)

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return first row and length of the pieces that are read at once: shards, cut to fit."""
        pieces = [(max(s.first, start), min(s.first + s.rows, stop)) for s in self.shards]
        return [(low, high - low) for low, high in pieces if low < high]

    def read(self, start: int, out: Table) -> None:
        """Fill ``out``, of shape ``(n, columns)``, with the rows from ``start`` on."""
        if not 0 <= start <= start + len(out) <= self.rows:
            raise ValueError(
                f"rows {start} to {start + len(out) - 1} do not lie in 0..{self.rows - 1}"
            )
        filled = 0
        while filled < len(out):
            number = bisect_right(self._firsts, start + filled) - 1
            columns = self._read_shard(number)
            low = start + filled - self._firsts[number]
            count = min(len(out) - filled, self.shards[number].rows - low)
            # One block is turned in half the time that column after column takes.
            block = np.stack([column[low : low + count] for column in columns])
            out[filled : filled + count] = block.T
            filled += count

    def _read_shard(self, number: int) -> list[Table]:
        shard = self.shards[number]
        columns = read_shard(shard.path, self.columns, check=number not in self._checked)
        if len(columns[0]) != shard.rows:
            raise DataError(f"{shard.path} has {len(columns[0])} rows, {INDEX} says {shard.rows}")
        self._checked.add(number)
        return columns

    def table(self, start: int = 0, stop: int | None = None) -> Table:
        """Return rows in memory, of shape ``(n, columns)``."""
        stop = self.rows if stop is None else stop
        rows = np.empty((stop - start, len(self.columns)), dtype=np.float32)
        self.read(start, rows)
        return rows

    def statistics(self, start: int = 0, stop: int | None = None) -> Statistics:
        """Return the column statistics of some rows, from those of the shards among them."""
        stop = self.rows if stop is None else stop
        parts = []
        for shard in self.shards:
            low, high = max(shard.first, start), min(shard.first + shard.rows, stop)
            if low < high:
                whole = high - low == shard.rows
                parts.append(shard.statistics if whole else Statistics.of(self.table(low, high)))
        return total(parts, len(self.columns))

    def verify(self, advance: Callable[[int], None] | None = None) -> None:
        """Compare every shard with its checksum; an error names the first damaged one.

        Args:
            advance: Called with the number of rows whenever some have been checked.
        """
        self._checked.clear()
        for number, shard in enumerate(self.shards):
            self._read_shard(number)
            if advance is not None:
                advance(shard.rows)


def write_index(folder: Path, plan: Plan, shards: Mapping[Path, Statistics]) -> None:
    """Write the index of a folder of shards, given in order."""
    index: dict[str, Any] = {
        "format": FORMAT,
        **plan.to_json(),
        "shards": [
            {"name": path.name, **statistics.to_json()} for path, statistics in shards.items()
        ],
    }
    index["sha256"] = _digest(index)
    write_atomic(folder / INDEX, json.dumps(index).encode())


def read_plan(folder: Path) -> dict[str, Any] | None:
    """Return columns, label and source of the store in a folder; None where there is none."""
    if not (folder / INDEX).exists():
        return None
    index = _read_index(folder)
    return {name: index[name] for name in ("columns", "label", "source")}


def is_whole(folder: Path) -> bool:
    """Say whether a folder holds a store with all its files."""
    return (folder / INDEX).exists() and not missing_shards(folder, _read_index(folder))


def missing_shards(folder: Path, index: Mapping[str, Any]) -> list[Path]:
    """Return the shards of an index that are not in its folder."""
    present = {path.name for path in folder.iterdir()}
    return [folder / shard["name"] for shard in index["shards"] if shard["name"] not in present]


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        index: dict[str, Any] = json.loads(path.read_bytes())
        if index["format"] != FORMAT:
            raise DataError(f"{path} has format {index['format']}, this version reads {FORMAT}")
        index["columns"].index(index["label"])
        for shard in index["shards"]:
            shard_digest(folder / shard["name"])
        matches = index["sha256"] == _digest(index)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{folder} is not an event store: it has no {INDEX}. One that an older version made "
            "must be made anew: remove it"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged ({error!r}): {_REMEDY}") from error
    if not matches:
        raise DataError(f"{path} does not match its own checksum: it was changed; {_REMEDY}")
    return index


_REMEDY = "remove its folder and make the set anew"


def _digest(index: Mapping[str, Any]) -> str:
    content = {name: value for name, value in index.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
