"""Throughput of the data loaders, as ratios to a DataLoader, a memory copy and a raw read.

python benchmarks/data.py images
python benchmarks/data.py events --rows 20000000 --folder /some/disk
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchapl.paper.data import EventStore, EventStoreWriter
from torchapl.paper.data.batches import Slicing
from torchapl.paper.data.events import EventBatches
from torchapl.paper.data.images import ImageBatches
from torchapl.paper.data.preprocess import mean_image
from torchapl.paper.data.standardise import fit

BLOCK = 65_536


def median_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeats // 2]


class PerImage(Dataset[tuple[Tensor, Tensor]]):
    """The same preprocessing and augmentation, an image at a time, as DataLoader wants it."""

    def __init__(self, images: Tensor, labels: Tensor, mean: Tensor) -> None:
        self.images, self.labels, self.mean = images, labels, mean

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        image = F.pad(self.images[row].float() - self.mean, (4,) * 4)
        top, left = torch.randint(0, 9, (2,)).tolist()
        image = image[:, top : top + 32, left : left + 32]
        return image.flip(-1) if torch.rand(()) < 0.5 else image, self.labels[row]


def images(batch: int) -> None:
    rows = 50_000
    pixels = torch.randint(0, 256, (rows, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (rows,))
    fitted = mean_image(pixels)
    ours = ImageBatches(pixels, labels, Slicing(batch), fitted, seed=0, augment=True)

    def epoch() -> None:
        for _ in ours.epoch(0):
            pass

    source, target = torch.rand(batch, 3, 32, 32), torch.empty(batch, 3, 32, 32)

    def copy() -> None:
        for _ in range(rows // batch):
            target.copy_(source)

    few = 5_000
    dataset = PerImage(pixels[:few], labels[:few], fitted.shift)

    def loader(workers: int) -> Callable[[], None]:
        def run() -> None:
            for _ in DataLoader(dataset, batch, shuffle=True, num_workers=workers):
                pass

        return run

    own = rows / median_seconds(epoch)
    memory = rows / median_seconds(copy)
    print(f"threads {torch.get_num_threads()}, batch {batch}, torch {torch.__version__}")
    print(f"{'resident batches':28}{own:12,.0f} images/s")
    print(f"{'copy of the float32 batches':28}{memory:12,.0f} images/s{own / memory:9.2f} of it")
    for workers in (0, 2):
        rival = few / median_seconds(loader(workers), 3)
        name = f"DataLoader, {workers} workers"
        print(f"{name:28}{rival:12,.0f} images/s{own / rival:9.1f} x it")


def blocks(rows: int, features: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    for first in range(0, rows, BLOCK):
        block = random.standard_normal((min(BLOCK, rows - first), features + 1), dtype=np.float32)
        block[:, -1] = block[:, -1] > 0
        yield block


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write(folder: Path, rows: int, features: int) -> None:
    before, begin = peak_megabytes(), time.perf_counter()
    names = [*(f"f{number}" for number in range(features)), "label"]
    with EventStoreWriter(folder, names) as writer:
        for block in blocks(rows, features):
            writer.append(block)
        store = writer.finish()
    seconds = time.perf_counter() - begin
    print(
        f"write {rows:>11,} rows x {features + 1}: {store.rows * store.row_bytes / 1e9:.2f} GB in "
        f"{seconds:.1f} s with generation and checksums; "
        f"memory {before:.0f} -> {peak_megabytes():.0f} MB"
    )


def read(folder: Path, batch: int) -> None:
    store = EventStore(folder)
    buffer = np.empty((BLOCK, len(store.columns)), dtype=np.float32)

    def raw() -> None:
        for first in range(0, store.rows - BLOCK, BLOCK):
            store.read(first, buffer)

    raw()
    bare = store.rows / median_seconds(raw, 3)
    before = peak_megabytes()
    batches = EventBatches(
        store,
        len(store.columns),
        0,
        store.rows,
        Slicing(batch),
        fit(store.statistics(), store.features, "physics"),
        seed=0,
    )
    seen, begin = 0, time.perf_counter()
    for _, labels in batches.epoch(0):
        seen += len(labels)
    own = seen / (time.perf_counter() - begin)
    print(
        f"read  {seen:>11,} rows, batch {batch:5}: {own:11,.0f} events/s, {own / bare:.2f} of the "
        f"raw read's {bare:,.0f}; memory {before:.0f} -> {peak_megabytes():.0f} MB",
        flush=True,
    )


def events(rows: int, features: int, folder: Path | None) -> None:
    """Each step in a process of its own, so that its peak memory is its own."""
    scratch = Path(tempfile.mkdtemp(dir=folder))
    print(f"threads {torch.get_num_threads()}, {os.cpu_count()} cores, torch {torch.__version__}")
    try:
        for size in (rows // 10, rows):
            store = scratch / f"{size}.events"
            for step in (["write", size, features], ["read", 100], ["read", 1000]):
                command = [sys.executable, __file__, step[0], store, *step[1:]]
                subprocess.run([str(part) for part in command], check=True)
            shutil.rmtree(store)
    finally:
        shutil.rmtree(scratch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("images")
    step.add_argument("--batch", type=int, default=100)
    step = steps.add_parser("events")
    step.add_argument("--rows", type=int, default=20_000_000)
    step.add_argument("--features", type=int, default=25)
    step.add_argument(
        "--folder", type=Path, help="where to put the table; it is deleted afterwards"
    )
    step = steps.add_parser("write")
    step.add_argument("folder", type=Path)
    step.add_argument("rows", type=int)
    step.add_argument("features", type=int)
    step = steps.add_parser("read")
    step.add_argument("folder", type=Path)
    step.add_argument("batch", type=int)
    args = parser.parse_args()
    if args.step == "images":
        images(args.batch)
    elif args.step == "events":
        events(args.rows, args.features, args.folder)
    elif args.step == "write":
        write(args.folder, args.rows, args.features)
    else:
        read(args.folder, args.batch)


if __name__ == "__main__":
    main()
