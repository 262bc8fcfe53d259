"""What the GPU kernels move and compute, beside ReLU: from their tiles and their machine code.

$ python benchmarks/triton_roofline.py      # three Markdown tables; needs no GPU
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import torch
from triton_codegen import GEOMETRIES, compile_kernel, instructions_per_element

from torchapl.ops.geometry import Collapsed, Tile
from torchapl.ops.triton import launch_settings

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
HINGES = (1, 2, 5, 8, 10)


def tile_of(geometry: Collapsed, hinges: int) -> Tile:
    """Return the tile of float32 arithmetic on an NVIDIA GPU."""
    _, settings = launch_settings(geometry, torch.float32, hinges, 32)
    return Tile(*(settings[name] for name in ("OUTER", "UNITS", "INNER")))


def side_traffic(geometry: Collapsed, hinges: int) -> tuple[float, float, float]:
    """Return bytes per element: parameters in forward, parameters and sums in backward.

    Third, what of the two must come from memory: every parameter read twice and its gradient
    written once. The rest is read and written again within the L2 cache.
    """
    tile = tile_of(geometry, hinges)
    outer, _, inner = tile.blocks(geometry)
    elements = math.prod(geometry[:3])
    parameters = 2 * hinges * geometry.units * 4
    blocks = outer * inner
    sums = parameters * (1 if blocks == 1 else 2 * blocks + 1)
    forward, backward = parameters * blocks, parameters * blocks + sums
    return forward / elements, backward / elements, 3 * parameters / elements


@cache
def instructions(kernel: str, dtype: torch.dtype, hinges: int, pattern: str, target: str) -> float:
    """Return machine instructions per element."""
    code = compile_kernel(kernel, dtype, hinges, GEOMETRIES[pattern], target)
    return instructions_per_element(code, target)


def expected_ratio(dtype: torch.dtype, hinges: int, pattern: str, gpu: str) -> float:
    """Return time over ReLU's, forward and backward, by the slower of memory and instructions."""
    target, bandwidth, issue = GPUS[gpu]
    size = dtype.itemsize
    side = side_traffic(GEOMETRIES[pattern], hinges)[2]
    total = 0.0
    for kernel, maps, share in (("forward", 2, side / 3), ("backward", 3, side * 2 / 3)):
        memory = (maps * size + share) / bandwidth
        total += max(memory, instructions(kernel, dtype, hinges, pattern, target) / issue)
    return total / (5 * size / bandwidth)


def main() -> None:
    print("| shape | tile | forward | backward | from memory |\n|---|---|---|---|---|")
    for name, geometry in SHAPES.items():
        tile = tile_of(geometry, 8)
        numbers = " | ".join(f"{value:.2f}" for value in side_traffic(geometry, 8))
        print(f"| {name} | {tile.outer} x {tile.units} x {tile.inner} | {numbers} |")
    dtypes = (torch.float32, torch.bfloat16)
    print("\n| GPU | dtype | pattern | S = 1 | 2 | 5 | 8 | 10 |\n|---|---|---|---|---|---|---|---|")
    for gpu, dtype, pattern in itertools.product(GPUS, dtypes, GEOMETRIES):
        ratios = [expected_ratio(dtype, hinges, pattern, gpu) for hinges in HINGES]
        cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {gpu} | {_name(dtype)} | {pattern} | {cells} |", flush=True)
    print("\n| GPU | dtype | kernel | paid by bytes | inner > 1 | inner = 1 |\n" + "|---" * 6 + "|")
    for gpu, dtype, kernel in itertools.product(GPUS, dtypes, ("forward", "backward")):
        target, bandwidth, issue = GPUS[gpu]
        maps = 2 if kernel == "forward" else 3
        budget = maps * dtype.itemsize / bandwidth * issue
        cells = " | ".join(
            " / ".join(f"{instructions(kernel, dtype, S, pattern, target):.0f}" for S in HINGES)
            for pattern in GEOMETRIES
        )
        print(f"| {gpu} | {_name(dtype)} | {kernel} | {budget:.0f} | {cells} |")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
