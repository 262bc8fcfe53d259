"""What the GPU kernels move and compute, beside ReLU: from their tiles and their machine code.

$ python benchmarks/triton_roofline.py      # three Markdown tables; needs no GPU
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import torch
from triton_codegen import GEOMETRIES, compile_kernel, count_instructions

from torchapl.ops.geometry import Collapsed, tile_of
from torchapl.ops.triton import THREADS

SHAPES = {
    "(128,96,32,32) per channel": Collapsed(128, 96, 1024, (0,)),
    "(128,96,32,32) per unit": Collapsed(128, 98304, 1, (0,)),
    "(128,128,16,16) per channel": Collapsed(128, 128, 256, (0,)),
    "(128,128,16,16) per unit": Collapsed(128, 32768, 1, (0,)),
    "(4096,300)": Collapsed(4096, 300, 1, (0,)),
    "(100,274)": Collapsed(100, 274, 1, (0,)),
    "(32,197,768) last axis": Collapsed(6304, 768, 1, (0,)),
    "(64,8,224,224) per channel": Collapsed(64, 8, 50176, (0,)),
    "(64,8,224,224) per unit": Collapsed(64, 401408, 1, (0,)),
}
# Bytes per second, and instructions of a thread per second: multiprocessors * 128 * clock, or
# compute units * 64 * clock.
GPUS = {
    "A100": ("sm_80", 2.04e12, 108 * 128 * 1.41e9),
    "H100": ("sm_90", 3.35e12, 132 * 128 * 1.755e9),
    "B200": ("sm_100", 8.0e12, 148 * 128 * 1.85e9),
    "MI300X": ("gfx942", 5.3e12, 304 * 64 * 2.1e9),
}
# So many hinges are a loop or very long code.
MANY = 10


def side_traffic(geometry: Collapsed, hinges: int) -> tuple[float, float, float]:
    """Return bytes per element: parameters in forward, parameters and sums in backward.

    Third, what of the two must come from memory: every parameter read twice and its gradient
    written once. The rest is read and written again within the L2 cache.
    """
    tile = tile_of(geometry, 4096)
    outer, _, inner = tile.blocks(geometry)
    elements = math.prod(geometry[:3])
    parameters = 2 * hinges * geometry.units * 4
    blocks = outer * inner
    sums = parameters * (1 if blocks == 1 else 2 * blocks + 1)
    forward, backward = parameters * blocks, parameters * blocks + sums
    return forward / elements, backward / elements, 3 * parameters / elements


@cache
def instructions(kernel: str, dtype: torch.dtype, pattern: str, target: str) -> tuple[float, float]:
    """Return machine instructions per element: with one hinge, and for each further one."""
    counts = []
    for hinges in (1, 2, MANY):
        code = compile_kernel(kernel, dtype, hinges, GEOMETRIES[pattern], target)
        share = math.prod(code.tile) / THREADS
        counts.append([count / share for count in count_instructions(code, target)])
    one, two, (once, loop) = sum(counts[0]), sum(counts[1]), counts[2]
    if once + loop > one + MANY:
        # Too long for anything but straight code.
        return one, (once + loop - one) / (MANY - 1)
    # AMD's compiler may put two hinges into one turn of the loop.
    return one, loop / max(1, round(loop / (two - one)))


def expected_ratio(dtype: torch.dtype, hinges: int, pattern: str, gpu: str) -> float:
    """Return time over ReLU's, forward and backward, by the slower of memory and instructions."""
    target, bandwidth, issue = GPUS[gpu]
    size = dtype.itemsize
    side = side_traffic(GEOMETRIES[pattern], hinges)[2]
    total = 0.0
    for kernel, maps, share in (("forward", 2, side / 3), ("backward", 3, side * 2 / 3)):
        memory = (maps * size + share) / bandwidth
        one, more = instructions(kernel, dtype, pattern, target)
        total += max(memory, (one + (hinges - 1) * more) / issue)
    return total / (5 * size / bandwidth)


def main() -> None:
    print("| shape | tile | forward | backward | from memory |\n|---|---|---|---|---|")
    for name, geometry in SHAPES.items():
        tile = tile_of(geometry, 4096)
        numbers = " | ".join(f"{value:.2f}" for value in side_traffic(geometry, 5))
        print(f"| {name} | {tile.outer} x {tile.units} x {tile.inner} | {numbers} |")
    dtypes = (torch.float32, torch.bfloat16)
    print("\n| GPU | dtype | pattern | S = 1 | 2 | 5 | 8 | 10 |\n|---|---|---|---|---|---|---|---|")
    for gpu, dtype, pattern in itertools.product(GPUS, dtypes, GEOMETRIES):
        ratios = [expected_ratio(dtype, hinges, pattern, gpu) for hinges in (1, 2, 5, 8, 10)]
        cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {gpu} | {_name(dtype)} | {pattern} | {cells} |", flush=True)
    print("\n| GPU | dtype | kernel | paid by bytes | inner > 1 | inner = 1 |\n" + "|---" * 6 + "|")
    for gpu, dtype, kernel in itertools.product(GPUS, dtypes, ("forward", "backward")):
        target, bandwidth, issue = GPUS[gpu]
        maps = 2 if kernel == "forward" else 3
        budget = maps * dtype.itemsize / bandwidth * issue
        costs = (instructions(kernel, dtype, pattern, target) for pattern in GEOMETRIES)
        cells = " | ".join(f"{one:.1f} + {more:.1f} (S - 1)" for one, more in costs)
        print(f"| {gpu} | {_name(dtype)} | {kernel} | {budget:.0f} | {cells} |")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
