"""Time with results written past the caches, over the time with results written to them.

python benchmarks/past.py

Prints a table: units on one large map, forward and backward, and whole steps of networks with large
maps. Steps are what counts: the next layer has to read from memory what was written past the
caches. The paper's CNN computes, the pointwise network moves memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import quantiles
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchapl import APL
from torchapl.bench.timing import reuse_memory
from torchapl.ops import _C
from torchapl.paper.activations import Activation
from torchapl.paper.nets import build

NEVER = 2**62


def pointwise() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 96, 3, padding=1), nn.BatchNorm2d(96), APL(96)),
        *(nn.Conv2d(96, 96, 1), nn.BatchNorm2d(96), APL(96), nn.Conv2d(96, 32, 1), APL(32)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )


def unit(module: nn.Module) -> Callable[[], object]:
    x, g = torch.randn(128, 96, 32, 32, requires_grad=True), torch.randn(128, 96, 32, 32)
    return lambda: torch.autograd.grad(module(x), [x, *module.parameters()], g)


def step(model: nn.Module, x: Tensor, memory_format: torch.memory_format) -> Callable[[], object]:
    model = model.to(memory_format=memory_format)
    x = x.contiguous(memory_format=memory_format)
    classes = torch.randint(10, (len(x),))

    def run() -> None:
        model.zero_grad()
        F.cross_entropy(model(x), classes).backward()

    return run


def cases(batch: int) -> dict[str, Callable[[], object]]:
    found = {
        "(128, 96, 32, 32), a curve per channel": unit(APL(96)),
        "(128, 96, 32, 32), a curve per position": unit(APL((96, 32, 32))),
    }
    for layout, memory_format in (
        ("rows", torch.contiguous_format),
        ("channels last", torch.channels_last),
    ):
        cnn = build(
            "cifar-cnn",
            activation=Activation.parse("apl:8:channel"),
            input_shape=(3, 32, 32),
            num_classes=10,
        )
        found[f"CNN, {layout}"] = step(cnn, torch.randn(batch, 3, 32, 32), memory_format)
        x = torch.randn(batch, 3, 64, 64)
        found[f"pointwise, {layout}"] = step(pointwise(), x, memory_format)
    return found


def ratios(call: Callable[[], object], past_from: int, rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        seconds = []
        for limit in (NEVER, past_from):
            _C.set_past_from(limit)
            call()
            start = perf_counter()
            call()
            call()
            seconds.append(perf_counter() - start)
        found.append(seconds[1] / seconds[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=17)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=100, help="of the steps")
    options = parser.parse_args()
    reuse_memory()
    past_from = _C.past_from()
    print(f"maps of more than {past_from / 2**20:.0f} MiB, median (20 % - 80 %)\n")
    print("| | " + " | ".join(f"threads: {n}" for n in options.threads) + " |")
    print("|---" * (1 + len(options.threads)) + "|")
    for name, call in cases(options.batch).items():
        cells = []
        for threads in options.threads:
            torch.set_num_threads(threads)
            low, _, middle, _, high = quantiles(ratios(call, past_from, options.rounds), n=6)
            cells.append(f"{middle:.2f} ({low:.2f} - {high:.2f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
