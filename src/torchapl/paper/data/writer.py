"""Writes an event store block by block; an interrupted writer is resumed after the last one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any

import numpy as np

from torchapl.paper.data.files import (
    DataError,
    check_writable,
    explaining,
    locked,
    make_folder,
)
from torchapl.paper.data.statistics import Statistics
from torchapl.paper.data.store import BLOCKS, EVENTS, FORMAT, HEAD, EventStore, Table, column_index
from torchapl.runs.atomic import write_atomic

_PLAN = "plan.json"


class EventStoreWriter:
    """Appends blocks of events to a store that appears under its name only when complete.

    A new writer for the same folder, columns and source resumes: ``blocks`` and ``rows`` say what
    is there already, and the caller goes on with the block of number ``blocks``.

    Args:
        folder: Of the finished store, see :func:`store_folder`; must not exist yet.
        columns: Names of the columns: the features, then ``label``, then extra ones.
        label: Name of the column with 0 (background) and 1 (signal).
        source: Where the events come from, as plain JSON. It is stored with them, and only a writer
            with an equal source resumes: put the seed and all settings there.
        allow_missing: Whether features may be NaN. Infinities never may.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "toy.events"
        >>> with EventStoreWriter(folder, ["x", "label"], source={"seed": 0}) as writer:
        ...     for number in range(writer.blocks, 3):
        ...         writer.append(np.full((10, 2), number % 2, dtype=np.float32))
        ...     store = writer.finish()
        >>> store.rows, store.statistics().mean.round(2).tolist()
        (30, [0.33, 0.33])
    """

    def __init__(
        self,
        folder: Path,
        columns: Sequence[str],
        *,
        label: str = "label",
        source: Mapping[str, Any] | None = None,
        allow_missing: bool = False,
    ) -> None:
        if len(set(columns)) != len(columns):
            raise ValueError(f"columns must differ, got {', '.join(columns)}")
        if (folder / HEAD).exists():
            raise DataError(f"{folder} is complete already; remove it to make it anew")
        if folder.exists():
            raise DataError(f"{folder} is in the way: it is no event store; move it")
        self.folder, self.columns = folder, tuple(columns)
        self.label = column_index(columns, label)
        self.allow_missing = allow_missing
        self.blocks = self.rows = 0
        # Through JSON, so that a tuple equals the list it becomes on disk.
        self._plan: dict[str, Any] = json.loads(
            json.dumps(
                {
                    "format": FORMAT,
                    "columns": self.columns,
                    "label": label,
                    "source": dict(source or {}),
                }
            )
        )
        self._partial = folder.with_name(folder.name + ".partial")
        self._resources = ExitStack()
        make_folder(folder.parent)
        check_writable(folder.parent)
        with ExitStack() as stack:
            with explaining(self._partial):
                stack.enter_context(locked(folder.with_name(f".{folder.name}.lock"), wait=False))
                make_folder(self._partial)
                self._resume_or_begin()
                self._events = stack.enter_context(
                    (self._partial / EVENTS).open("r+b", buffering=0)
                )
                self._journal = stack.enter_context(
                    (self._partial / BLOCKS).open("r+b", buffering=0)
                )
                self._cut_to_whole_blocks()
            self._resources = stack.pop_all()

    def __enter__(self) -> EventStoreWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; what was appended stays for the next writer to resume."""
        self._resources.close()

    def discard(self) -> None:
        """Let go of the files and remove what was appended."""
        self.close()
        rmtree(self._partial, ignore_errors=True)

    def _resume_or_begin(self) -> None:
        plan = self._partial / _PLAN
        if plan.exists():
            if json.loads(plan.read_bytes()) != self._plan:
                raise DataError(
                    f"{self._partial} was begun from another source or with other columns (see "
                    f"{_PLAN} in it); remove it to begin anew"
                )
            return
        for name in (EVENTS, BLOCKS):
            (self._partial / name).write_bytes(b"")
        write_atomic(plan, json.dumps(self._plan, indent=1).encode())

    def _cut_to_whole_blocks(self) -> None:
        """Drop what a crash left behind: a torn journal line, and rows no line vouches for."""
        journal = self._journal.read()
        whole = journal[: journal.rfind(b"\n") + 1]
        try:
            rows = [int(json.loads(line)["rows"]) for line in whole.splitlines()]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self._partial / BLOCKS} is damaged; remove the folder") from error
        self.blocks, self.rows = len(rows), sum(rows)
        size = self.rows * 4 * len(self.columns)
        found = os.fstat(self._events.fileno()).st_size
        if found < size:
            raise DataError(f"{self._partial} has lost rows: {found} bytes of {size}; remove it")
        self._events.truncate(size)
        self._events.seek(size)
        self._journal.truncate(len(whole))
        self._journal.seek(len(whole))

    def append(self, block: Table) -> None:
        """Add rows, of shape ``(n, columns)``; on return they survive a crash.

        Raises:
            ValueError: A value is infinite, or NaN where that is not allowed; names the column and
                the row.
            DataError: The disk is full or fails. The block counts as not written.
        """
        if block.ndim != 2 or block.shape[1] != len(self.columns):
            raise ValueError(
                f"a block must have shape (n, {len(self.columns)}), got {tuple(block.shape)}"
            )
        with np.errstate(over="ignore"):  # what overflows is reported as infinite, with its place
            block = np.ascontiguousarray(block, dtype="<f4")
        self._check_values(block)
        data = block.reshape(-1).view(np.uint8).data
        record = {"sha256": hashlib.sha256(data).hexdigest(), **Statistics.of(block).to_json()}
        before = self._events.tell(), self._journal.tell()
        try:
            with explaining(self._partial):
                _write_all(self._events.fileno(), data)
                # Rows first: a journal line must never vouch for rows that a crash took.
                os.fsync(self._events.fileno())
                _write_all(self._journal.fileno(), memoryview(json.dumps(record).encode() + b"\n"))
                os.fsync(self._journal.fileno())
        except DataError:
            for file, end in zip((self._events, self._journal), before, strict=True):
                file.truncate(end)
                file.seek(end)
            raise
        self.blocks += 1
        self.rows += len(block)

    def _check_values(self, block: Table) -> None:
        # The sum of a block is finite unless a value is not (or it overflows, which the search then
        # clears).
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum(dtype=np.float64)):
                return
        finite = np.isfinite(block)
        if self.allow_missing:
            finite[:, : self.label] |= np.isnan(block[:, : self.label])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise ValueError(
                f"column {self.columns[column]!r} is {block[row, column]} in row "
                f"{self.rows + int(row)}; "
                "values must be finite"
                + (" or, for features, missing" if self.allow_missing else "")
            )

    def finish(self) -> EventStore:
        """Complete the store, give it its final name and return it opened."""
        if not self.rows:
            raise DataError(f"{self.folder} would be empty: no event was appended")
        checksum = hashlib.sha256((self._partial / BLOCKS).read_bytes()).hexdigest()
        head = {**self._plan, "rows": self.rows, "blocks_sha256": checksum}
        with explaining(self._partial):
            write_atomic(self._partial / HEAD, json.dumps(head, indent=1).encode())
            self._partial.rename(self.folder)
            (self.folder / _PLAN).unlink()
        self.close()
        return EventStore(self.folder)


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
