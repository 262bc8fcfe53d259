"""What the GPU kernels move and compute, beside ReLU: from their tiles and their machine code.

$ python benchmarks/triton_roofline.py      # two Markdown tables; needs no GPU
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from pathlib import Path

import torch
from triton.backends.nvidia.compiler import get_ptxas
from triton_codegen import GEOMETRIES, TARGETS, compile_kernel

from torchapl.ops.geometry import Geometry, tile_of

SHAPES = {
    "(128,96,32,32) per channel": Geometry(128, 96, 1024, (0,)),
    "(128,96,32,32) per unit": Geometry(128, 98304, 1, (0,)),
    "(128,128,16,16) per channel": Geometry(128, 128, 256, (0,)),
    "(128,128,16,16) per unit": Geometry(128, 32768, 1, (0,)),
    "(4096,300)": Geometry(4096, 300, 1, (0,)),
    "(100,274)": Geometry(100, 274, 1, (0,)),
    "(32,197,768) last axis": Geometry(6304, 768, 1, (0,)),
    "(64,8,224,224) per channel": Geometry(64, 8, 50176, (0,)),
    "(64,8,224,224) per unit": Geometry(64, 401408, 1, (0,)),
}
# Bytes per second, and instructions of a thread per second: multiprocessors * 128 * clock.
GPUS = {
    "A100": ("sm_80", 2.04e12, 108 * 128 * 1.41e9),
    "H100": ("sm_90", 3.35e12, 132 * 128 * 1.755e9),
    "B200": ("sm_100", 8.0e12, 148 * 128 * 1.85e9),
}


def side_traffic(geometry: Geometry, hinges: int) -> tuple[float, float, float]:
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


def instructions(kernel: str, dtype: torch.dtype, hinges: int, pattern: str, target: str) -> float:
    """Return machine instructions per element; 16 elements belong to a thread."""
    code = compile_kernel(kernel, dtype, min(hinges, 2), GEOMETRIES[pattern], target)
    count = _count(code.binary, target)
    if hinges > 2:
        one = compile_kernel(kernel, dtype, 1, GEOMETRIES[pattern], target)
        count += (hinges - 2) * (count - _count(one.binary, target))
    return count / 16


def _count(binary: bytes, target: str) -> int:
    nvdisasm = Path(get_ptxas(TARGETS[target].arch).path).parent / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        listing = subprocess.run(
            [str(nvdisasm), "-c", file.name], check=True, text=True, capture_output=True
        ).stdout
    return len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?=\S)(?!NOP)", listing, re.M))


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
        tile = tile_of(geometry, 4096)
        numbers = " | ".join(f"{value:.2f}" for value in side_traffic(geometry, 5))
        print(f"| {name} | {tile.outer} x {tile.units} x {tile.inner} | {numbers} |")
    print("\n| GPU | dtype | pattern | S = 1 | 2 | 5 | 10 |\n|---|---|---|---|---|---|---|")
    for gpu in GPUS:
        for dtype in (torch.float32, torch.bfloat16):
            for pattern in GEOMETRIES:
                ratios = [expected_ratio(dtype, hinges, pattern, gpu) for hinges in (1, 2, 5, 10)]
                cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
                name = str(dtype).removeprefix("torch.")
                print(f"| {gpu} | {name} | {pattern} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
