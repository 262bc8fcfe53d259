"""Gathers shards to a store; an interrupted writer is resumed, a damaged shard made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from types import TracebackType

import numpy as np

from torchapl.paper.data.files import (
    DataError,
    check_writable,
    explaining,
    locked,
    make_folder,
)
from torchapl.paper.data.shards import Plan, Table, find_shards, read_shard, write_shard
from torchapl.paper.data.statistics import Statistics
from torchapl.paper.data.store import INDEX, EventStore, is_whole, read_plan, write_index
from torchapl.runs.atomic import remove_partials, write_atomic

_PLAN = "plan.json"


class EventStoreWriter:
    """Collects the shards of a store, which appears under its name only when complete.

    A new writer for the same folder and plan resumes: ``shards`` says what is there already.
    Shards may also be written by other processes, in any order, with :func:`write_shard` into
    ``partial``. A finished store that has lost shards is opened again to get them back.

    Args:
        folder: Of the finished store, see :func:`store_folder`.
        plan: What the shards have in common. Only a writer with an equal one resumes.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "toy.events"
        >>> with EventStoreWriter(folder, Plan(("x", "label"), source={"seed": 0})) as writer:
        ...     for number in range(len(writer.shards), 3):
        ...         writer.append(np.full((10, 2), number % 2, dtype=np.float32))
        ...     store = writer.finish()
        >>> store.rows, store.statistics().mean.round(2).tolist()
        (30, [0.33, 0.33])
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.partial = folder.with_name(folder.name + ".partial")
        self._resources = ExitStack()
        make_folder(folder.parent)
        check_writable(folder.parent)
        with ExitStack() as stack:
            with explaining(self.partial):
                stack.enter_context(locked(folder.with_name(f".{folder.name}.lock"), wait=False))
                self._reopen()
                make_folder(self.partial)
                self._resume_or_begin()
            self._next = first_gap(self.shards)
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
        """Let go of the folder; the shards stay for the next writer to resume."""
        self._resources.close()

    def discard(self) -> None:
        """Let go of the folder and remove the shards."""
        self.close()
        rmtree(self.partial, ignore_errors=True)

    def _reopen(self) -> None:
        """Take a finished store that has lost shards back into work."""
        if not self.folder.exists():
            return
        if read_plan(self.folder) is None:
            raise DataError(f"{self.folder} is in the way: it is no event store; move it")
        if is_whole(self.folder):
            raise DataError(f"{self.folder} is complete already; remove it to make it anew")
        if read_plan(self.folder) != self.plan.to_json():
            raise DataError(
                f"{self.folder} lacks shards, and was made from another source or with other "
                f"columns (see {INDEX} in it): repeat the command that made it, or remove it"
            )
        # The plan first: whatever moment a crash takes, the shards are known by one of the two.
        write_atomic(self.folder / _PLAN, json.dumps(self.plan.to_json(), indent=1).encode())
        self.folder.rename(self.partial)
        (self.partial / INDEX).unlink()

    def _resume_or_begin(self) -> None:
        plan = self.partial / _PLAN
        facts = self.plan.to_json()
        if plan.exists():
            try:
                same = json.loads(plan.read_bytes()) == facts
            except ValueError as error:
                raise DataError(f"{plan} is damaged ({error}): remove its folder") from error
            if not same:
                raise DataError(
                    f"{self.partial} was begun from another source or with other columns (see "
                    f"{_PLAN} in it); remove it to begin anew"
                )
        else:
            write_atomic(plan, json.dumps(facts, indent=1).encode())

    @property
    def shards(self) -> dict[int, Path]:
        """The shards that are there, by number."""
        return find_shards(self.partial)

    @property
    def leading(self) -> list[Path]:
        """The shards before the first one that is missing."""
        shards = self.shards
        return [shards[number] for number in range(first_gap(shards))]

    def append(self, table: Table, first_row: int = 0) -> None:
        """Write the next shard; see :func:`write_shard`."""
        write_shard(self.partial, self.plan, self._next, table, first_row)
        self._next += 1

    def finish(
        self, shards: int | None = None, advance: Callable[[int], None] | None = None
    ) -> EventStore:
        """Check all shards, complete the store, give it its final name and return it opened.

        Args:
            shards: How many there must be; by default those that are there.
            advance: Called with the number of rows whenever some have been checked.
        """
        present = self.shards
        number = len(present) if shards is None else shards
        if first_gap(present) < number or not number:
            raise DataError(
                f"{self.partial} has no shard {first_gap(present)} of {number}: run the same "
                "command again"
            )
        wanted = [present[index] for index in range(number)]
        statistics = {}
        for path in wanted:
            statistics[path] = self._checked(path)
            if advance is not None:
                advance(statistics[path].rows)
        with explaining(self.partial):
            for path in {*self.partial.iterdir()} - {*wanted}:
                if path.suffix == ".parquet":
                    path.unlink()
            remove_partials(self.partial)
            write_index(self.partial, self.plan, statistics)
            self.partial.rename(self.folder)
            (self.folder / _PLAN).unlink()
        self.close()
        return EventStore(self.folder)

    def _checked(self, path: Path) -> Statistics:
        try:
            columns = read_shard(path, self.plan.columns)
        except DataError:
            path.unlink(missing_ok=True)
            raise DataError(
                f"{path} was damaged and has been removed: run the same command again, which "
                "makes it anew"
            ) from None
        return Statistics.of(np.stack(columns, axis=1))


def first_gap(shards: dict[int, Path]) -> int:
    """Return the lowest number that no shard has.

    Example:
        >>> first_gap({0: Path("a"), 1: Path("b"), 3: Path("c")})
        2
    """
    return next(number for number in range(len(shards) + 1) if number not in shards)
