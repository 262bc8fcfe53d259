"""Cost of the maxout unit in ReLUs: forward plus backward, median of several calls.

    python benchmarks/rivals.py

One ReLU is F.relu, forward plus backward, on a map of the unit's *output* shape, which is what a
ReLU network of the same depth and width would run; the second figure is against F.relu on the
*input* map, the k times larger one that the linear layer below writes. Both have the layout of the
unit. torch's max(dim) is shown for comparison.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl.paper.rivals import maxout

# Maps of Goodfellow's network at batch 32 and 128, and others; pieces.
CASES = [
    ((32, 192, 33, 33), 2, "contiguous"),
    ((32, 192, 33, 33), 2, "channels_last"),
    ((128, 384, 15, 15), 2, "contiguous"),
    ((128, 384, 15, 15), 2, "channels_last"),
    ((128, 384, 9, 9), 2, "contiguous"),
    ((32, 320, 16, 16), 5, "contiguous"),
    ((128, 2500), 5, "contiguous"),
]


def seconds(function: Callable[[Tensor], Tensor], input: Tensor, calls: int = 25) -> float:
    leaf = input.detach().requires_grad_()
    grad = torch.randn_like(function(leaf))
    times = []
    for _ in range(calls):
        leaf.grad = None
        start = time.perf_counter()
        function(leaf).backward(grad)
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s), CPU, float32")
    print(
        "input | k | layout | ReLU (ms) | maxout (ReLUs of output) | of input | max(dim) of output"
    )
    for shape, pieces, layout in CASES:
        x = torch.randn(shape)
        y = torch.randn(shape[0], shape[1] // pieces, *shape[2:])
        if layout == "channels_last":
            x, y = (t.contiguous(memory_format=torch.channels_last) for t in (x, y))
        relu = seconds(F.relu, y)
        own = seconds(lambda t, k=pieces: maxout(t, k), x)
        wide = seconds(F.relu, x)
        plain = seconds(lambda t, k=pieces: t.unflatten(1, (k, -1)).max(dim=1).values, x)
        print(
            f"{shape} | {pieces} | {layout} | {1e3 * relu:.2f} | {own / relu:.1f} | "
            f"{own / wide:.1f} | {plain / relu:.1f}"
        )


if __name__ == "__main__":
    main()
