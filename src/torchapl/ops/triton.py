"""The launchers of the GPU kernels in Triton, imported on the first CUDA call.

The launchers are ordinary functions, so they also run on CPU tensors under the Triton interpreter.
A program sums the parameter gradients of its tile and ``torch.sum`` adds up those partial sums: no
atomics, hence the same bits from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from torchapl.ops import triton_kernels
from torchapl.ops.geometry import Collapsed, Tile, collapse, tile_of
from torchapl.ops.layout import flatten, laid_out_like, readable, unflatten
from torchapl.reference import compute_dtype

# Sizes by rule and not by autotuning, which would time kernels during the first training step (CUDA
# graphs forbid it) and might choose other blocks, hence other bits, the next time. 256 threads with
# 16 float32 or 8 float64 each: x, g and dx of a tile stay in registers.
THREADS = 256
TILE_BYTES = 64 * THREADS
# So many bytes of slopes are few: a thread keeps parameters and sums of all hinges in registers.
FEW_BYTES = 32
# Elements of a thread with few hinges: 64, so that sums across threads weigh little. In small maps
# 16, else most of a GPU would have nothing to do.
FEW_ELEMENTS = 64
LARGE_MAP = 2**22
WARP = 32 if torch.version.hip is None else 64


def apl(input: Tensor, slope: Tensor, offset: Tensor, unit_dim: int) -> Tensor:
    """Evaluate the units; the result has the strides of ``torch.empty_like(input)``."""
    output = torch.empty_like(input)
    if input.numel() == 0:
        return output
    geometry = _geometry(output, slope, unit_dim)
    if geometry is None:
        # Units of (C, H) on channels last, say: in row-major order their axes are neighbours.
        return output.copy_(apl(input.contiguous(), slope, offset, unit_dim))

    x = laid_out_like(output, input)
    a, b = (flatten(parameter, geometry) for parameter in (slope, offset))
    _launch("forward", geometry, compute_dtype(input, slope), len(slope), (output, x, a, b))
    return output


def apl_backward(
    grad: Tensor,
    input: Tensor,
    slope: Tensor,
    offset: Tensor,
    unit_dim: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of input, slope and offset; an empty tensor where the mask is false."""
    dx = torch.empty_like(input) if output_mask[0] else input.new_empty(0)
    if input.numel() == 0 or not any(output_mask):
        da, db = (
            parameter.new_zeros(parameter.shape if wanted else 0)
            for parameter, wanted in zip((slope, offset), output_mask[1:], strict=True)
        )
        return dx, da, db
    like = torch.empty_like(input, device="meta")
    geometry = _geometry(like, slope, unit_dim)
    if geometry is None:
        result, da, db = apl_backward(
            grad, input.contiguous(), slope, offset, unit_dim, output_mask
        )
        return dx.copy_(result), da, db

    x = laid_out_like(like, input)
    g, g_strides = readable(grad, like, slope, unit_dim)
    a, b = (flatten(parameter, geometry) for parameter in (slope, offset))
    dtype = compute_dtype(input, slope)
    blocks = _tile(geometry, dtype, len(slope), WARP).blocks(geometry)
    sums = (blocks[0] * blocks[2], len(slope), geometry.units)
    partial_da, partial_db = (
        x.new_empty(sums, dtype=dtype) if wanted else None for wanted in output_mask[1:]
    )
    results = (dx if output_mask[0] else None, partial_da, partial_db)
    tensors, scalar = (*results, g, x, a, b), g_strides == (0, 0, 0)
    _launch("backward", geometry, dtype, len(slope), tensors, *g_strides, scalar)
    return dx, unflatten(partial_da, slope, geometry), unflatten(partial_db, offset, geometry)


def _geometry(like: Tensor, slope: Tensor, unit_dim: int) -> Collapsed | None:
    return collapse(tuple(like.shape), like.stride(), unit_dim, slope.dim() - 1)


def _few(hinges: int, dtype: torch.dtype) -> bool:
    return hinges * dtype.itemsize <= FEW_BYTES


def _tile(geometry: Collapsed, dtype: torch.dtype, hinges: int, warp: int) -> Tile:
    elements = TILE_BYTES // dtype.itemsize
    if not _few(hinges, dtype):
        return tile_of(geometry, elements, elements // 4)
    tile = tile_of(geometry, elements, elements // 32)
    if tile.units > 1:
        return tile
    # One warp sums a single unit without a barrier.
    return tile_of(geometry, min(elements, warp * FEW_ELEMENTS), 1)


def kernel(name: str, hinges: int, dtype: torch.dtype) -> Any:
    """Return the kernel for ``"forward"`` or ``"backward"``, computing in ``dtype``."""
    return getattr(
        triton_kernels, f"{name}_few_kernel" if _few(hinges, dtype) else f"{name}_kernel"
    )


def launch_settings(
    geometry: Collapsed, dtype: torch.dtype, hinges: int, warp: int
) -> tuple[int, dict[str, Any]]:
    """Return the number of programs and every argument of a launch but its tensors."""
    tile = _tile(geometry, dtype, hinges, warp)
    outer_blocks, unit_blocks, inner_blocks = tile.blocks(geometry)
    settings = {
        "outer": geometry.outer,
        "units": geometry.units,
        "inner": geometry.inner,
        "unit_blocks": unit_blocks,
        "inner_blocks": inner_blocks,
        "HINGES": hinges,
        "COMPUTE": tl.float64 if dtype == torch.float64 else tl.float32,
        "OUTER": tile.outer,
        "UNITS": tile.units,
        "INNER": tile.inner,
    }
    if _few(hinges, dtype):
        large = math.prod(geometry[:3]) >= LARGE_MAP
        elements = FEW_ELEMENTS if large else FEW_ELEMENTS // 4
        # No thread holds more than two units.
        threads = max(warp, math.prod(tile) // elements, tile.units // 2)
        settings |= _chunks(geometry, tile, dtype, threads, warp)
    else:
        # A small tile gets fewer threads, four elements for each.
        threads = max(warp, min(THREADS, math.prod(tile) // 4))
    settings["num_warps"] = threads // warp
    if warp == 32:
        # Left alone, NVIDIA's assembler spills a few bytes for the sake of occupancy.
        settings["maxnreg"] = 32768 // THREADS
    return outer_blocks * unit_blocks * inner_blocks, settings


def _chunks(
    geometry: Collapsed, tile: Tile, dtype: torch.dtype, threads: int, warp: int
) -> dict[str, int]:
    """Return how a program goes through a tile: with as many elements at once as do not spill."""
    elements = tile.outer * tile.inner
    if tile.units == 1:
        neighbours = geometry.inner
        chunk = threads * (16 if warp == 32 else 8) // dtype.itemsize
    else:
        neighbours = geometry.units if geometry.inner == 1 else 1
        chunk = max(1, threads * 2 // tile.units)
    chunk = min(elements, chunk)
    # Single elements need an address and a mask for each.
    most = min(4 if warp == 32 else 2, math.prod(tile) // threads // 8)
    wide = 1 if neighbours % 16 else max(1, most)
    return {
        "CHUNK": chunk,
        "WIDE": min(wide, elements // chunk),
        "THREADS": min(chunk, threads),
        "ROLLED": warp == 64 and wide == 1,
    }


def _launch(
    name: str,
    geometry: Collapsed,
    dtype: torch.dtype,
    hinges: int,
    tensors: Sequence[Tensor | None],
    *others: int | None,
) -> None:
    programs, settings = launch_settings(geometry, dtype, hinges, WARP)
    with torch.cuda.device_of(tensors[-1]):
        # All on one axis of the grid: the other two end at 65535.
        kernel(name, hinges, dtype)[(programs,)](*tensors, *others, **settings)
