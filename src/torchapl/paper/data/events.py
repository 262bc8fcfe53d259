"""Batches of events from a table of any size: block shuffle, read-ahead, constant memory.

An epoch visits the blocks of neighbouring rows (a shard of a store, 2,048 rows of an array) in
random order, gathers them into windows of about a million rows, and shuffles the rows of each
window. The guarantee: every row comes exactly once an epoch; each window is a uniformly random set
of blocks; within a window every order of its rows is equally likely. Rows of one block never stand
further apart than a window, and that is the only difference from a full shuffle, which a table of
at most one window gets. In a table sorted by class, the worst case, the signal share of a window
deviates from that of the table by about ``0.5 / sqrt(blocks)``: 7 % for 50 shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from torchapl.paper.data.batches import Slicing, check_start, generator
from torchapl.paper.data.shards import Table
from torchapl.paper.data.standardise import Standardiser
from torchapl.paper.data.statistics import Statistics

# Rows shuffled and standardised at a time: 8,192 x 26 float32 stay in the L2 cache.
_PIECE = 8192

# Features and labels.
Rowset = tuple[Tensor, Tensor]


class Rows(Protocol):
    """A table that can be read by row range: an event store, or an array in memory."""

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return first row and length of the blocks in which the rows are best read."""

    def read(self, start: int, out: Table) -> None:
        """Fill ``out`` with the rows from ``start`` on."""

    def statistics(self, start: int = 0, stop: int | None = None) -> Statistics:
        """Return the statistics of some rows' columns."""


@dataclass(frozen=True)
class ArrayRows:
    """An array in memory, read like a store."""

    table: Table
    block_rows: int = 2048

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [
            (first, min(self.block_rows, stop - first))
            for first in range(start, stop, self.block_rows)
        ]

    def read(self, start: int, out: Table) -> None:
        out[:] = self.table[start : start + len(out)]

    def statistics(self, start: int = 0, stop: int | None = None) -> Statistics:
        return Statistics.of(self.table[start:stop])


@dataclass(frozen=True)
class Window:
    """Some blocks of the table: first row and length of each, and their place in the epoch."""

    blocks: list[tuple[int, int]]
    first: int
    rows: int


@dataclass(frozen=True)
class EventBatches:
    """Standardised events and their labels, a batch at a time.

    Args:
        source: Holds the rows; columns are the features, then the label, then what is ignored here.
        columns: How many columns a row has.
        start: First row of the split.
        rows: Number of rows of the split.
        slicing: Batch size and this rank's part. All ranks walk through the same windows (they
            share the page cache), each builds its own rows of every global batch.
        standardiser: Fitted on the training rows.
        seed: Shuffles by it; None keeps the order, for evaluation.
        device: Of the batches.
        block_rows: Rows that are read together.
        window_blocks: Blocks that are shuffled together. Three windows of them are in memory: one
            in use, one being built, and what it is built from.
        classes: More than one makes labels whole numbers.

    Example:
        >>> table = np.stack([np.arange(5), np.arange(5) % 2], 1).astype(np.float32)
        >>> scale = Standardiser(torch.zeros(1), torch.ones(1), None)
        >>> batches = EventBatches(ArrayRows(table), 2, 0, 5, Slicing(2), scale, seed=1)
        >>> sorted(torch.cat([features for features, _ in batches.epoch(0)]).flatten().tolist())
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """

    source: Rows
    columns: int
    start: int
    rows: int
    slicing: Slicing
    standardiser: Standardiser
    seed: int | None = None
    device: torch.device | str = "cpu"
    window_rows: int = 1 << 20
    classes: int = 1

    def __len__(self) -> int:
        return self.slicing.steps(self.rows)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        check_start(start, len(self))
        step, size = start, self.slicing.batch_size
        together = -(-_PIECE // size)
        windows = [w for w in self._windows(epoch) if w.first + w.rows > start * size]
        # Rows of a batch that began in the window before.
        carried = torch.empty(0, len(self.standardiser.shift)), torch.empty(0)
        for window, content in self._read_ahead(windows, epoch):
            begin, end = window.first - len(carried[0]), window.first + window.rows
            whole = len(self) if end == self.rows else end // size
            # Copied, since windows reuse their memory, but many at a time: that costs less.
            for group in range(step, whole, together):
                last = min(group + together, whole)
                low, high = group * size - begin, min(last * size, self.rows) - begin
                features, labels = (
                    values.to(self.device) for values in _joined(carried, content, low, high)
                )
                labels = labels if self.classes == 1 else labels.long()
                cuts = [
                    bound - group * size
                    for number in range(group, last)
                    for bound in self.slicing.bounds(self.rows, number)
                ]
                # All views at once: 3 us a batch, where two slices a batch take 25.
                yield from zip(
                    features.tensor_split(cuts)[1::2], labels.tensor_split(cuts)[1::2], strict=True
                )
            step = max(step, whole)
            carried = _joined(carried, content, min(step * size, end) - begin, end - begin)

    def _windows(self, epoch: int) -> list[Window]:
        """Deal the blocks of the split to windows."""
        blocks = self.source.blocks(self.start, self.start + self.rows)
        order = torch.arange(len(blocks))
        if self.seed is not None:
            order = torch.randperm(len(blocks), generator=generator(self.seed, epoch, "blocks"))
        windows: list[Window] = []
        dealt: list[tuple[int, int]] = []
        first = rows = 0
        for count, number in enumerate(order.tolist(), start=1):
            dealt.append(blocks[number])
            rows += blocks[number][1]
            if rows >= self.window_rows or count == len(blocks):
                windows.append(Window(dealt, first, rows))
                first, rows, dealt = first + rows, 0, []
        return windows

    def _read_ahead(self, windows: list[Window], epoch: int) -> Iterator[tuple[Window, Rowset]]:
        """Build the next window in a thread while the current one is used.

        Two windows take turns in the same memory: fresh memory for each would cost more time than
        reading and shuffling together.
        """
        largest = max((window.rows for window in windows), default=0)
        raw = np.empty((largest, self.columns), dtype=np.float32)
        turns = [
            (torch.empty(largest, len(self.standardiser.shift)), torch.empty(largest))
            for _ in range(min(2, len(windows)))
        ]
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(1, thread_name_prefix="torchapl-read-ahead") as pool:
            pool.submit(_compute_alone).result()
            # What a thread sets is also what later threads begin with.
            torch.set_num_threads(threads)
            pending = None
            for number, window in enumerate(windows):
                following = pool.submit(self._load, window, epoch, raw, turns[number % 2])
                if pending is not None:
                    yield pending[0], pending[1].result()
                pending = window, following
            if pending is not None:
                yield pending[0], pending[1].result()

    def _load(self, window: Window, epoch: int, raw: Table, output: Rowset) -> Rowset:
        """Fill ``output`` with a window's rows, standardised and in the order of the epoch."""
        filled = 0
        for row, length in window.blocks:
            self.source.read(row, raw[filled : filled + length])
            filled += length
        table = torch.from_numpy(raw)[: window.rows]
        features, labels = (values[: window.rows] for values in output)
        order = None
        if self.seed is not None:
            shuffle = generator(self.seed, epoch, "rows", window.first)
            order = torch.randperm(window.rows, generator=shuffle)
        width = features.shape[1]
        for first in range(0, window.rows, _PIECE):
            rows = slice(first, first + _PIECE)
            piece = table[rows] if order is None else table.index_select(0, order[rows])
            self.standardiser.apply(piece[:, :width], features[rows])
            labels[rows] = piece[:, width]
        return features, labels


def _compute_alone() -> None:
    """Let torch use no other thread in this one.

    OpenMP has helpers for each thread that asks for some. With those of two threads there are more
    than processors, so they sleep after each piece of work, and are to be woken for the next: steps
    of a small network took twice as long.
    """
    # Settles the number of this thread; only then can it be changed.
    torch.get_num_threads()
    torch.set_num_threads(1)


def _joined(carried: Rowset, content: Rowset, low: int, high: int) -> Rowset:
    """Copy rows ``low`` to ``high`` of two windows set end to end."""
    first = len(carried[0])
    if low >= first:
        rows = slice(low - first, high - first)
        return content[0][rows].clone(), content[1][rows].clone()
    older, newer = slice(low, min(high, first)), slice(0, max(high - first, 0))
    features, labels = (
        torch.cat([before[older], after[newer]])
        for before, after in zip(carried, content, strict=True)
    )
    return features, labels
