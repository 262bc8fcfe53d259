"""Event tables of any size on disk: one float32 matrix, read by row range, and its writer.

A store is a folder: ``events.f32`` (little-endian rows, features first, then the label, then extra
columns such as weights), ``blocks.jsonl`` (per block of rows: SHA-256 and column statistics) and
``store.json`` (columns, row count, source, and the SHA-256 of ``blocks.jsonl``, so that one number
vouches for everything). It is written as ``NAME.partial`` and renamed when complete, so a folder
with the final name is never half-written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchapl.paper.data.files import DataError
from torchapl.paper.data.statistics import Statistics, total

EVENTS, BLOCKS, HEAD = "events.f32", "blocks.jsonl", "store.json"
FORMAT = 1
Table = npt.NDArray[np.float32]


def store_folder(root: Path, name: str) -> Path:
    """Return the folder of the named event table below a data root.

    Example:
        >>> store_folder(Path("data"), "htautau").as_posix()
        'data/htautau.events'
    """
    return root / f"{name}.events"


class EventStore:
    """A finished store, opened for reading; safe to share between threads and processes.

    Args:
        folder: The store. A missing or damaged one raises :class:`DataError`.

    Example:
        >>> import tempfile
        >>> from torchapl.paper.data.writer import EventStoreWriter
        >>> folder = Path(tempfile.mkdtemp()) / "tiny.events"
        >>> with EventStoreWriter(folder, ["mass", "label"]) as writer:
        ...     writer.append(np.array([[91.2, 0], [125.1, 1]], dtype=np.float32))
        ...     store = writer.finish()
        >>> len(store), store.features, store.label
        (2, ('mass',), 1)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        head = self._read_head()
        self.columns: tuple[str, ...] = tuple(head["columns"])
        self.label: int = self.columns.index(head["label"])
        self.features = self.columns[: self.label]
        self.rows: int = head["rows"]
        self.checksum: str = head["blocks_sha256"]
        self.source: dict[str, Any] = head["source"]
        expected = self.rows * self.row_bytes
        found = self._events.stat().st_size if self._events.exists() else 0
        if found != expected:
            raise DataError(
                f"{self._events} has {found} bytes, {expected} expected: make the store anew"
            )

    def __len__(self) -> int:
        return self.rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return 4 * len(self.columns)

    @property
    def _events(self) -> Path:
        return self.folder / EVENTS

    def _read_head(self) -> dict[str, Any]:
        path = self.folder / HEAD
        try:
            head: dict[str, Any] = json.loads(path.read_bytes())
            if head["format"] != FORMAT:
                raise DataError(f"{path} has format {head['format']}, this version reads {FORMAT}")
            head["columns"].index(head["label"])
            return head
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{self.folder} is not an event store: it has no {HEAD}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} is damaged ({error}): make the store anew") from error

    @cached_property
    def _blocks(self) -> list[tuple[str, Statistics]]:
        path = self.folder / BLOCKS
        text = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(text).hexdigest() != self.checksum:
            raise DataError(f"{path} does not match its checksum in {HEAD}: make the store anew")
        records = [json.loads(line) for line in text.splitlines()]
        return [(record["sha256"], Statistics.from_json(record)) for record in records]

    @cached_property
    def map(self) -> Table:
        """The whole table as a read-only memory map of shape ``(rows, columns)``."""
        shape = (self.rows, len(self.columns))
        if not self.rows:
            return np.empty(shape, dtype=np.float32)
        return np.memmap(self._events, dtype="<f4", mode="r", shape=shape)

    @cached_property
    def _file(self) -> int:
        return os.open(self._events, os.O_RDONLY)

    def __del__(self) -> None:
        if "_file" in self.__dict__:
            os.close(self._file)

    def __getstate__(self) -> dict[str, object]:
        # Maps and file descriptors do not travel to other processes: each opens its own.
        return {key: value for key, value in self.__dict__.items() if key not in ("map", "_file")}

    def read(self, start: int, out: Table) -> None:
        """Fill ``out``, C-contiguous ``(n, columns)``, with the rows from ``start`` on.

        Reading, unlike mapping, leaves no page of the file in this process: memory stays constant.
        """
        view = out.reshape(-1).view(np.uint8).data
        position = start * self.row_bytes
        while view:
            got = os.preadv(self._file, [view], position)
            if not got:
                raise DataError(
                    f"{self._events} ended before row {start + len(out)}: it was changed"
                )
            view, position = view[got:], position + got

    def statistics(self, start: int = 0, stop: int | None = None) -> Statistics:
        """Return the column statistics of some rows, from those of the blocks among them."""
        stop = self.rows if stop is None else stop
        parts, first = [], 0
        for _, block in self._blocks:
            low, high = max(first, start), min(first + block.rows, stop)
            if low < high:
                whole = high - low == block.rows
                parts.append(block if whole else Statistics.of(np.array(self.map[low:high])))
            first += block.rows
        return total(parts, len(self.columns))

    def verify(self, advance: Callable[[int], None] | None = None) -> None:
        """Compare every block with its checksum; an error names the first damaged rows."""
        first = 0
        for expected, block in self._blocks:
            out = np.empty((block.rows, len(self.columns)), dtype="<f4")
            self.read(first, out)
            if hashlib.sha256(out.view(np.uint8).data).hexdigest() != expected:
                raise DataError(
                    f"{self._events}: rows {first} to {first + block.rows - 1} do not match "
                    "their checksum; make the store anew"
                )
            first += block.rows
            if advance is not None:
                advance(out.nbytes)
        if first != self.rows:
            raise DataError(f"{self.folder}: {BLOCKS} has {first} rows, {HEAD} {self.rows}")


def column_index(columns: Sequence[str], name: str) -> int:
    """Return the position of a column, or say which there are."""
    try:
        return list(columns).index(name)
    except ValueError:
        raise ValueError(f"no column {name!r} among {', '.join(columns)}") from None
