"""Run as a program: train for a while and swap many times, and see that nothing grows.

    python tests/long/soak.py --minutes 60 --swaps 1000

Trains a network run after run in one process, and swaps, restores and rebuilds the activations of
a model, while memory, open files and threads are counted. Prints the slope of each over the second
half, when caches are full, with its 95 % interval; memory that grows by more than a page a round,
or any growth of files or threads, is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "paper" / "train"))

import toy

import torchapl
from torchapl.paper.train import train

# Bytes of a round that may be noise of the allocator: what a leaked tensor, graph or model has is
# more.
NOISE = 4096
LIBC = ctypes.CDLL(None)
# Of rounds, for the interval of a slope.
BLOCKS = 10


@dataclass(frozen=True)
class Sample:
    """What the process holds after a round."""

    memory: float
    files: float
    threads: float

    @classmethod
    def take(cls) -> Sample:
        gc.collect()
        # What is free, but not given back, is no growth: it took as much as there was at the most.
        if hasattr(LIBC, "malloc_trim"):
            LIBC.malloc_trim(0)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(list(Path("/proc/self/fd").iterdir())),
            len(list(Path("/proc/self/task").iterdir())),
        )


def slope(values: list[float]) -> tuple[float, float]:
    """Return the growth by round over the second half, and half the width of its 95 % interval.

    A straight line through the means of blocks: neighbouring rounds depend on each other, blocks
    hardly do.
    """
    half = values[len(values) // 2 :]
    length = max(1, len(half) // BLOCKS)
    blocks = [np.mean(half[at : at + length]) for at in range(0, len(half) - length + 1, length)]
    line = stats.linregress(np.arange(len(blocks)) * length, blocks)
    # Where nothing ever changes there is no spread.
    return line.slope, float(np.nan_to_num(line.stderr * stats.t.ppf(0.975, len(blocks) - 2)))


def train_for(minutes: float, folder: Path) -> list[Sample]:
    """Train one run after the other in this process, so long by its own time of the processor."""
    samples: list[Sample] = []
    end = time.process_time() + 60 * minutes
    while time.process_time() < end or len(samples) < 2 * BLOCKS:
        train(toy.TOY, len(samples), folder / "run", device="cpu")
        shutil.rmtree(folder / "run")
        samples.append(Sample.take())
    return samples


class Block(nn.Module):
    """Half its activations are modules, the other half calls that a swap must rewrite."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.ReLU())
        self.last = nn.Linear(16, 4)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.layers(input)))


def swap_often(count: int) -> list[Sample]:
    samples = []
    model, inputs = Block(), torch.randn(32, 8)
    for _ in range(count):
        torchapl.swap_activations(model, inputs)
        description = torchapl.describe(model).to_json()
        model(inputs).sum().backward()
        torchapl.rebuild_swapped(Block(), description)
        torchapl.restore_activations(model)
        samples.append(Sample.take())
    return samples


def report(name: str, samples: list[Sample]) -> bool:
    growth = {
        field.name: slope([getattr(sample, field.name) for sample in samples])
        for field in fields(Sample)
    }
    last = samples[-1]
    memory, files, threads = (
        f"{by_round:+.{digits}f} +- {spread:.{digits}f}"
        for (by_round, spread), digits in zip(growth.values(), (0, 4, 4), strict=True)
    )
    print(
        f"| {name} | {len(samples)} | {memory} bytes ({int(last.memory) >> 20} MiB) | "
        f"{files} ({last.files}) | {threads} ({last.threads}) |",
        flush=True,
    )
    # A slope that adds up to less than one file or thread is none.
    least = 0.5 / (len(samples) // 2)
    most = Sample(NOISE, least, least)
    return all(by_round <= getattr(most, name) for name, (by_round, _) in growth.items())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="of training, by the processor's clock"
    )
    parser.add_argument("--swaps", type=int, default=1000)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parts: dict[str, Callable[[], list[Sample]]] = {}
    with tempfile.TemporaryDirectory() as name:
        parts["training run"] = lambda: train_for(args.minutes, Path(name))
        parts["swap"] = lambda: swap_often(args.swaps)
        print("| round | rounds | memory by round | files | threads |\n|---|---|---|---|---|")
        holds = [report(title, work()) for title, work in parts.items()]
    assert threading.active_count() == 1
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
