"""Which format of event tables feeds training fastest: plain rows, Parquet shards, mapped Arrow.

python benchmarks/formats.py --rows 5000000 --folder /some/disk

Makes synthetic tables of 25 features and a label in each format below the folder, reads them with
the loader of the training loop, and deletes them. Each line is a process of its own. Times are CPU
time (all threads), which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch

from torchapl.paper.data import EventStore, EventStoreWriter, Plan
from torchapl.paper.data.batches import Slicing
from torchapl.paper.data.events import EventBatches, Rows
from torchapl.paper.data.shards import SHARD_ROWS
from torchapl.paper.data.standardise import Standardiser
from torchapl.paper.data.statistics import Statistics

FEATURES = 25
NAMES = (*(f"f{number}" for number in range(FEATURES)), "label")
ROW_BYTES = 4 * len(NAMES)


class Format(Rows, Protocol):
    """A table on disk."""

    def write(self, blocks: Iterator[np.ndarray]) -> None: ...

    def open(self) -> None: ...

    def verify(self) -> None: ...


class PlainRows:
    """One file of float32 rows with checksums of its blocks: a format of one's own."""

    block = 2048

    def __init__(self, folder: Path, rows: int) -> None:
        self.path, self.rows = folder / "rows.f32", rows

    def write(self, blocks: Iterator[np.ndarray]) -> None:
        sums, statistics = [], []
        with self.path.open("wb") as file:
            for block in blocks:
                file.write(block.tobytes())
                sums.append(hashlib.sha256(block).hexdigest())
                statistics.append(Statistics.of(block).to_json())
        self.path.with_suffix(".json").write_text(json.dumps([sums, statistics]))

    def open(self) -> None:
        self.file = os.open(self.path, os.O_RDONLY)
        self.sums, self.statistics = json.loads(self.path.with_suffix(".json").read_text())

    def verify(self) -> None:
        out = np.empty((SHARD_ROWS, len(NAMES)), dtype=np.float32)
        for first, length in pieces(0, self.rows, SHARD_ROWS):
            self.read(first, out[:length])
            assert hashlib.sha256(out[:length]).hexdigest() == self.sums[first // SHARD_ROWS]

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        return pieces(start, stop, self.block)

    def read(self, start: int, out: np.ndarray) -> None:
        view, position = out.reshape(-1).view(np.uint8).data, start * ROW_BYTES
        while view:
            got = os.preadv(self.file, [view], position)
            view, position = view[got:], position + got


class ParquetShards:
    """The store of this package."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder / "shards.events"

    def write(self, blocks: Iterator[np.ndarray]) -> None:
        with EventStoreWriter(self.folder, Plan(NAMES)) as writer:
            for block in blocks:
                writer.append(block)
            writer.finish()

    def open(self) -> None:
        self.store = EventStore(self.folder)

    def verify(self) -> None:
        self.store.verify()

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        return self.store.blocks(start, stop)

    def read(self, start: int, out: np.ndarray) -> None:
        self.store.read(start, out)


class MappedArrow:
    """One Arrow file in a memory map; it has no checksums."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.path, self.rows = folder / "table.arrow", rows

    def write(self, blocks: Iterator[np.ndarray]) -> None:
        schema = pa.schema([(name, pa.float32()) for name in NAMES])
        with pa.OSFile(str(self.path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for block in blocks:
                columns = [np.ascontiguousarray(column) for column in block.T]
                writer.write_batch(pa.record_batch(columns, schema=schema))

    def open(self) -> None:
        self.file = pa.ipc.open_file(pa.memory_map(str(self.path)))

    def verify(self) -> None:
        pass

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        return pieces(start, stop, 2000)

    def read(self, start: int, out: np.ndarray) -> None:
        batch, low = self.file.get_batch(start // SHARD_ROWS), start % SHARD_ROWS
        for place, column in enumerate(batch.columns):
            out[:, place] = column.to_numpy()[low : low + len(out)]


FORMATS: dict[str, Callable[[Path, int], Any]] = {
    "plain rows": PlainRows,
    "Parquet shards": ParquetShards,
    "mapped Arrow": MappedArrow,
}


def pieces(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    return [(first, min(length, stop - first)) for first in range(start, stop, length)]


def tables(rows: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    for _, length in pieces(0, rows, SHARD_ROWS):
        block = random.standard_normal((length, len(NAMES)), dtype=np.float32)
        block[:, -1] = block[:, -1] > 0
        yield block


def cpu(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def megabytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def write(name: str, folder: Path, rows: int) -> None:
    idle = cpu(lambda: [None for _ in tables(rows)])
    seconds = cpu(lambda: FORMATS[name](folder, rows).write(tables(rows))) - idle
    print(f"{name:16}write    {rows / seconds / 1e6:8.2f} million rows per CPU second", flush=True)


def read(name: str, folder: Path, rows: int) -> None:
    table: Format = FORMATS[name](folder, rows)
    start = cpu(table.open)
    print(f"{name:16}open     {1e3 * start:8.1f} ms")
    scale = Standardiser(torch.zeros(FEATURES), torch.ones(FEATURES), None)

    def epoch(batch: int, number: int) -> float:
        batches = EventBatches(table, len(NAMES), 0, rows, Slicing(batch), scale, seed=0)
        seen = 0

        def run() -> None:
            nonlocal seen
            for _, labels in batches.epoch(number):
                seen += len(labels)

        seconds = cpu(run)
        assert seen == rows
        return seconds

    first = epoch(1000, 0)
    later = {batch: min(epoch(batch, 1), epoch(batch, 2)) for batch in (100, 1000)}
    for batch, seconds in later.items():
        speed = rows / seconds / 1e6
        print(f"{name:16}batches  {speed:8.2f} million rows per CPU second, {batch} a batch")
    print(
        f"{name:16}first    {1e9 * (first - later[1000]) / rows:8.1f} ns a row more in the first "
        "epoch"
    )
    print(
        f"{name:16}memory   {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MB at "
        f"most, now {megabytes('RssAnon'):.0f} of its own and {megabytes('RssFile'):.0f} of files"
    )
    seconds = cpu(table.verify)
    print(f"{name:16}verify   {1e9 * seconds / rows:8.1f} ns a row")
    out = np.empty((1, len(NAMES)), dtype=np.float32)
    places = np.random.default_rng(0).integers(0, rows, 500).tolist()
    seconds = cpu(lambda: [table.read(place, out) for place in places])
    print(f"{name:16}random   {1e6 * seconds / 500:8.1f} us a row at random", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, help="where to put the tables")
    parser.add_argument("--step", choices=("write", "read"), help=argparse.SUPPRESS)
    parser.add_argument("--format", choices=tuple(FORMATS), help="only this one")
    args = parser.parse_args()
    if args.step is not None:
        {"write": write, "read": read}[args.step](args.format, args.folder, args.rows)
        return
    print(
        f"{args.rows:,} rows x {len(NAMES)} float32, {args.rows * ROW_BYTES / 1e9:.2f} GB; threads "
        f"{torch.get_num_threads()}, pyarrow {pa.__version__}, torch {torch.__version__}",
        flush=True,
    )
    for name in [args.format] if args.format else FORMATS:
        scratch = Path(tempfile.mkdtemp(dir=args.folder))
        try:
            for step in ("write", "read"):
                command = [sys.executable, __file__, "--step", step, "--format", name]
                command += ["--folder", str(scratch), "--rows", str(args.rows)]
                subprocess.run(command, check=True)
        finally:
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
