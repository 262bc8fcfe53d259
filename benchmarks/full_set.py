"""What training on the paper's 80 million events takes, and whether all is right at that size.

OMP_NUM_THREADS=1 python benchmarks/full_set.py --folder /some/disk

Makes a synthetic table of 25 features and a label in the folder (8.3 GB, removed at the end), opens
it, trains the paper's network on it by the real loop for a part of an epoch, stops and resumes a
second run within the epoch and compares both to the bit, trains by two processes, and computes AUC
and significances of an eighth of the rows. Each part is a process of its own; ends with a table.
Rates are in CPU time of all threads, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from torchapl.paper import metrics
from torchapl.paper.data import EventStoreWriter, Plan, open_data
from torchapl.paper.data.events import EventBatches
from torchapl.paper.data.shards import SHARD_ROWS
from torchapl.paper.data.store import EventStore, store_folder
from torchapl.paper.experiments import get
from torchapl.paper.train import InterruptedRunError, checkpoint, train
from torchapl.paper.train.progress import Silent

NAME, EXPERIMENT = "htautau", "higgs-dnn-relu"
# The last two features are the row's number, so that rows can be told apart.
FEATURES, DIGIT = 25, 4096
NAMES = (*(f"feature_{number}" for number in range(FEATURES)), "label")
SAMPLE_EVERY = 100


def megabytes(name: str = "VmRSS") -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def most_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return CPU and wall seconds."""
    cpu, wall = time.process_time(), time.monotonic()
    run()
    return time.process_time() - cpu, time.monotonic() - wall


def tables(rows: int) -> Iterator[np.ndarray]:
    """Make shards of the same random numbers in which only the row's number differs: no time."""
    table = np.random.default_rng(0).standard_normal((SHARD_ROWS, len(NAMES)), dtype=np.float32)
    table[:, -1] = table[:, -1] > 0
    table[:, 0] += table[:, -1]
    for first in range(0, rows, SHARD_ROWS):
        numbers = np.arange(first, min(first + SHARD_ROWS, rows))
        part = table[: len(numbers)]
        part[:, FEATURES - 2], part[:, FEATURES - 1] = numbers // DIGIT, numbers % DIGIT
        yield part


def write(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    path = store_folder(folder, NAME)
    with EventStoreWriter(path, Plan(NAMES)) as writer:
        cpu, _ = timed(lambda: [writer.append(table) for table in tables(args.rows)])
        check, _ = timed(writer.finish)
    size = sum(file.stat().st_size for file in path.iterdir())
    return {
        "on disk": f"{size / 1e9:.2f} GB in {len(list(path.glob('*.parquet'))):,} shards",
        "written": f"{args.rows / cpu / 1e6:.2f} million rows per CPU second",
        "checksums, mean and deviation of all columns, in one pass": f"{check:.0f} CPU s",
        "memory of the writer": f"{most_megabytes():.0f} MB at most",
    }


def opened(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    before = megabytes()
    _, seconds = timed(lambda: bundle(folder))
    used = megabytes() - before
    train_rows = args.rows - args.rows // 8
    means = EventStore(store_folder(folder, NAME)).statistics(0, train_rows).mean
    exact = np.mean(np.arange(train_rows) // DIGIT)
    assert abs(means[FEATURES - 2] / exact - 1) < 1e-9, (means[FEATURES - 2], exact)
    return {"opened, standardised by its statistics": f"{seconds:.1f} s, {used:.0f} MB"}


def bundle(folder: Path, rank: int = 0, world_size: int = 1) -> EventBatches:
    data = open_data(
        NAME,
        folder,
        batch_size=100,
        seed=0,
        preprocessing="physics",
        rank=rank,
        world_size=world_size,
    )
    assert isinstance(data.train, EventBatches)
    return data.train


class Until(Silent):
    """Stops a run after a step, as a signal from outside would, and notes its memory on the way."""

    def __init__(self, last: int) -> None:
        self.last, self.first, self.memory = last, 0, list[float]()
        self.created = time.monotonic()
        self.waited = 0.0

    def begin(self, name: str, step: int, total_steps: int, epochs: int) -> None:
        self.first, self.total = step, total_steps

    def step(self, step: int) -> None:
        if step == self.first + 1:
            # The first window is there.
            self.waited = time.monotonic() - self.created
            self.cpu, self.wall = time.process_time(), time.monotonic()
        if step % SAMPLE_EVERY == 0:
            self.memory.append(megabytes())
        if step == self.last:
            self.cpu, self.wall = time.process_time() - self.cpu, time.monotonic() - self.wall
            os.kill(os.getpid(), signal.SIGTERM)


def trained(folder: Path, run: Path, last: int) -> Until:
    until = Until(last)
    try:
        # Checkpoints at the end of each part alone: what they cost is measured by the tests.
        train(
            get(EXPERIMENT),
            0,
            run,
            device="cpu",
            data_root=folder,
            checkpoint_seconds=1e9,
            reporter=until,
        )
    except InterruptedRunError:
        return until
    raise RuntimeError(f"the run ended before step {last}: make --steps smaller")


def whole(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    until = trained(folder, folder / "whole", args.steps)
    done = args.steps - until.first - 1
    rate = 100 * done / until.cpu
    epoch = (args.rows - args.rows // 8) / rate
    middle = len(until.memory) // 2
    return {
        "steps of 100 rows by the real loop": f"{args.steps:,} ({args.steps / 10_000:.1f} million "
        f"rows) in {until.wall:.0f} s",
        "rows per CPU second": f"{rate:,.0f}",
        "hence an epoch": f"{epoch / 60:.0f} min of a core",
        "and the paper's 65 epochs": f"{65 * epoch / 3600:.0f} core-hours",
        "until the first step": f"{until.waited:.1f} s",
        "memory in the first and in the second half of the steps": (
            f"{max(until.memory[:middle]):.0f} and {max(until.memory[middle:]):.0f} MB"
        ),
    }


def stopped(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    trained(folder, folder / "parts", args.steps // 2)
    return {}


def resumed(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    until = trained(folder, folder / "parts", args.steps)
    assert until.first == args.steps // 2
    states = [checkpoint.load(folder / name, "last") for name in ("whole", "parts")]
    tensors = [state[0] for state in states if state is not None]
    same = all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    assert same
    assert tensors[0].keys() == tensors[1].keys()
    return {
        f"stopped after step {args.steps // 2:,}, resumed": f"the same {len(tensors[0])} tensors "
        f"to the bit at step {args.steps:,}; {until.waited:.1f} s until the first step"
    }


def process(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    begin, cpu = time.monotonic(), time.process_time()
    trained(folder, folder / "two", args.steps // 10)
    seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
    return {
        f"process {os.environ['RANK']} of two, {args.steps // 10:,} steps": f"{seconds:.0f} s, "
        f"{cpu:.0f} CPU s, {most_megabytes():.0f} MB at most"
    }


def disjoint(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    """Look at the rows that two processes and one get of more than a window."""
    steps = min(12_000, (args.rows - args.rows // 8) // 100)

    def rows(batches: EventBatches) -> np.ndarray:
        scale = batches.standardiser
        numbers = []
        for _, (features, _) in zip(range(steps), batches.epoch(0), strict=False):
            digits = (features / scale.scale + scale.shift)[:, -2:].double().round()
            numbers.append((digits[:, 0] * DIGIT + digits[:, 1]).long().numpy())
        return np.concatenate(numbers)

    one, first, second = (rows(bundle(folder, *place)) for place in ((0, 1), (0, 2), (1, 2)))
    assert len(np.unique(one)) == len(one) == len(first) + len(second)
    assert not len(np.intersect1d(first, second))
    assert (np.union1d(first, second) == np.sort(one)).all()
    return {
        f"rows of two processes in {steps:,} steps": f"{len(first):,} and {len(second):,}, none in "
        "common, together those of one process"
    }


def judged(folder: Path, args: argparse.Namespace) -> dict[str, str]:
    rows = args.rows // 8
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(rows, generator=generator) > 0.5).float()
    scores = (torch.randn(rows, generator=generator) + 1.2 * labels).sigmoid()
    before = megabytes()
    lines = {}
    for title, metric in (
        ("AUC", metrics.auc),
        ("best cut", metrics.cut_significance),
        ("histogram", metrics.histogram_significance),
    ):
        value = 0.0

        def run(metric: Callable[..., float] = metric) -> None:
            nonlocal value
            value = metric(scores, labels)

        cpu, _ = timed(run)
        lines[f"{title} of {rows:,} test rows"] = f"{cpu:.1f} CPU s ({value:.4f})"
    lines["memory of the three beside scores and labels"] = (
        f"{most_megabytes() - before:.0f} MB at most"
    )
    return lines


PARTS = {
    "write": write,
    "open": opened,
    "train": whole,
    "stop": stopped,
    "resume": resumed,
    "process": process,
    "rows": disjoint,
    "metrics": judged,
}


def start(part: str, args: argparse.Namespace, folder: Path, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    command += ["--rows", str(args.rows), "--steps", str(args.steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **more})


def ended(child: subprocess.Popen[str]) -> dict[str, str]:
    output, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"{child.args} ended with {child.returncode}")
    lines: dict[str, str] = json.loads(output.splitlines()[-1])
    for title, value in lines.items():
        print(f"| {title} | {value} |", flush=True)
    return lines


def together(args: argparse.Namespace, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    children = [
        start("process", args, folder, RANK=rank, LOCAL_RANK=rank, **place) for rank in ("0", "1")
    ]
    for child in children:
        ended(child)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=80_000_000)
    parser.add_argument("--steps", type=int, default=12_000, help="of 100 rows; a multiple of 200")
    parser.add_argument("--folder", type=Path, help="where to put the table")
    parser.add_argument("--part", choices=tuple(PARTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part is not None:
        # A smaller table than the paper's shortens the schedule, and says so each time.
        warnings.filterwarnings("ignore", "the schedule of")
        print(json.dumps(PARTS[args.part](args.folder, args)))
        return
    print(f"| {args.rows:,} rows x {len(NAMES)} float32, torch {torch.__version__} | |\n|---|---|")
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        for part in PARTS:
            if part == "process":
                together(args, folder)
            else:
                ended(start(part, args, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
