"""The GPU kernels in Triton and their launchers, imported on the first CUDA call.

The launchers are ordinary functions, so they also run on CPU tensors under the Triton interpreter.
A program sums the parameter gradients of its tile and ``torch.sum`` adds up those partial sums: no
atomics, hence the same bits from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchapl.ops.geometry import Collapsed, Tile, collapse, tile_of
from torchapl.ops.layout import flatten, laid_out_like, readable, unflatten
from torchapl.reference import compute_dtype

# Sizes by rule and not by autotuning, which would time kernels during the first training step (CUDA
# graphs forbid it) and might choose other blocks, hence other bits, the next time. 256 threads with
# 16 float32 or 8 float64 each: x, g and dx of a tile stay in registers.
THREADS = 256
TILE_BYTES = 64 * THREADS
# More hinges are a loop: the compiler fetches the parameters of all unrolled hinges at once, and
# the backward kernel spills from five on.
UNROLLED_HINGES = 2
# Neighbouring units that a thread of the backward kernel holds at most. It could load eight of
# bfloat16 at once, but would have to sum each of them across the warp: 19 instructions per element
# and hinge in place of 11 (sm_80). Holding a single unit, it spills.
HELD_UNITS = tl.constexpr(2)


@triton.jit
def _locate(
    outer,
    units,
    inner,
    unit_blocks,
    inner_blocks,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    HELD: tl.constexpr,
):
    """Return the addresses of this program's tile, (UNITS, OUTER * INNER), and where it lies."""
    program = tl.program_id(0)
    inner_block = program % inner_blocks
    unit_block = program // inner_blocks % unit_blocks
    outer_block = program // inner_blocks // unit_blocks

    # 64-bit from here on: one map may have more than 2**31 elements.
    element = tl.arange(0, OUTER * INNER)[None, :]
    row = outer_block.to(tl.int64) * OUTER + element // INNER
    column = inner_block.to(tl.int64) * INNER + element % INNER
    unit = unit_block.to(tl.int64) * UNITS
    # A single unit stays a scalar: each thread loads its parameters once and not once per element.
    if UNITS > 1:
        unit += tl.max_contiguous(tl.arange(0, UNITS), HELD)[:, None]

    index = (row * units + unit) * inner + column
    inside = (row < outer) & (unit < units) & (column < inner)
    block = outer_block.to(tl.int64) * inner_blocks + inner_block
    return index, inside, row, unit, column, block


@triton.jit
def _relu(v):
    # v <= 0 is false for NaN, which therefore passes through as in torch.relu.
    return tl.where(v <= 0, 0.0, v)


@triton.jit
def _sum(v, UNITS: tl.constexpr):
    return tl.sum(v) if UNITS == 1 else tl.sum(v, 1, keep_dims=True)


@triton.jit
def _sum_both(v, w, UNITS: tl.constexpr):
    # One reduction for two: half the barriers of two calls of _sum.
    sums = tl.sum(tl.join(v, w), 1, keep_dims=True)
    return tl.split(tl.reshape(sums, 2) if UNITS == 1 else sums)


@triton.jit(do_not_specialize=["outer"])
def forward_kernel(
    y_ptr,
    x_ptr,
    a_ptr,
    b_ptr,
    outer,
    units,
    inner,
    unit_blocks,
    inner_blocks,
    HINGES: tl.constexpr,
    UNROLL: tl.constexpr,
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
):
    """Evaluate the units on one tile."""
    index, inside, _, unit, _, _ = _locate(
        outer, units, inner, unit_blocks, inner_blocks, OUTER, UNITS, INNER, UNITS
    )
    exists = unit < units

    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(COMPUTE)
    y = _relu(x)
    for _ in range(HINGES // UNROLL):
        for _ in tl.static_range(UNROLL):
            a = tl.load(a_ptr + unit, mask=exists, other=0.0).to(COMPUTE)
            b = tl.load(b_ptr + unit, mask=exists, other=0.0).to(COMPUTE)
            y += a * _relu(b - x)
            unit += units

    tl.store(y_ptr + index, y, mask=inside)


@triton.jit(do_not_specialize=["outer"])
def backward_kernel(
    dx_ptr,
    da_ptr,
    db_ptr,
    g_ptr,
    x_ptr,
    a_ptr,
    b_ptr,
    g_outer,
    g_units,
    g_inner,
    SCALAR_G: tl.constexpr,
    outer,
    units,
    inner,
    unit_blocks,
    inner_blocks,
    HINGES: tl.constexpr,
    UNROLL: tl.constexpr,
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
):
    """Compute dx and the partial sums of da and db, (blocks, hinges, units), on one tile."""
    index, inside, row, unit, column, block = _locate(
        outer, units, inner, unit_blocks, inner_blocks, OUTER, UNITS, INNER, HELD_UNITS
    )
    exists = unit < units
    partial = block * HINGES * units

    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(COMPUTE)
    # Zero outside of the map, so that nothing from there enters a sum.
    if SCALAR_G:
        g = tl.where(inside, tl.load(g_ptr).to(COMPUTE), 0.0)
    else:
        # Strides are None where g lies in memory as x does.
        index_g = index if g_outer is None else row * g_outer + unit * g_units + column * g_inner
        g = tl.load(g_ptr + index_g, mask=inside, other=0.0).to(COMPUTE)
    dx = tl.where(x <= 0, 0.0, g)
    for _ in range(HINGES // UNROLL):
        for _ in tl.static_range(UNROLL):
            a = tl.load(a_ptr + unit, mask=exists, other=0.0).to(COMPUTE)
            b = tl.load(b_ptr + unit, mask=exists, other=0.0).to(COMPUTE)
            gate = b - x
            passed = tl.where(gate <= 0, 0.0, g)
            # A pointer is None where nobody asked for the gradient: its arithmetic is not compiled.
            if dx_ptr is not None:
                dx -= a * passed
            # relu(gate), because 0 * gate is NaN at the closed gate of an infinite x.
            if da_ptr is not None and db_ptr is not None:
                da, db = _sum_both(passed * _relu(gate), passed, UNITS)
                tl.store(da_ptr + partial + unit, da, mask=exists)
                tl.store(db_ptr + partial + unit, a * db, mask=exists)
            elif da_ptr is not None:
                da = _sum(passed * _relu(gate), UNITS)
                tl.store(da_ptr + partial + unit, da, mask=exists)
            elif db_ptr is not None:
                tl.store(db_ptr + partial + unit, a * _sum(passed, UNITS), mask=exists)
            unit += units

    if dx_ptr is not None:
        tl.store(dx_ptr + index, dx, mask=inside)


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
    _launch(forward_kernel, geometry, compute_dtype(input, slope), len(slope), (output, x, a, b))
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
    blocks = _tile(geometry, dtype).blocks(geometry)
    sums = (blocks[0] * blocks[2], len(slope), geometry.units)
    partial_da, partial_db = (
        x.new_empty(sums, dtype=dtype) if wanted else None for wanted in output_mask[1:]
    )
    results = (dx if output_mask[0] else None, partial_da, partial_db)
    tensors, scalar = (*results, g, x, a, b), g_strides == (0, 0, 0)
    _launch(backward_kernel, geometry, dtype, len(slope), tensors, *g_strides, scalar)
    return dx, unflatten(partial_da, slope, geometry), unflatten(partial_db, offset, geometry)


def _geometry(like: Tensor, slope: Tensor, unit_dim: int) -> Collapsed | None:
    return collapse(tuple(like.shape), like.stride(), unit_dim, slope.dim() - 1)


def _tile(geometry: Collapsed, dtype: torch.dtype) -> Tile:
    return tile_of(geometry, TILE_BYTES // dtype.itemsize)


def launch_settings(
    geometry: Collapsed, dtype: torch.dtype, hinges: int, hip: bool
) -> tuple[int, dict[str, Any]]:
    """Return the number of programs and every argument of a launch but its tensors."""
    tile = _tile(geometry, dtype)
    outer_blocks, unit_blocks, inner_blocks = tile.blocks(geometry)
    # A small tile gets fewer threads, four elements for each.
    threads = min(THREADS, math.prod(tile) // 4)
    settings = {
        "outer": geometry.outer,
        "units": geometry.units,
        "inner": geometry.inner,
        "unit_blocks": unit_blocks,
        "inner_blocks": inner_blocks,
        "HINGES": hinges,
        "UNROLL": hinges if hinges <= UNROLLED_HINGES else 1,
        "COMPUTE": tl.float64 if dtype == torch.float64 else tl.float32,
        "OUTER": tile.outer,
        "UNITS": tile.units,
        "INNER": tile.inner,
        "num_warps": max(1, threads // (64 if hip else 32)),
    }
    if not hip:
        # Left alone, NVIDIA's assembler spills a few bytes for the sake of occupancy.
        settings["maxnreg"] = 32768 // THREADS
    return outer_blocks * unit_blocks * inner_blocks, settings


def _launch(
    kernel: Any,
    geometry: Collapsed,
    dtype: torch.dtype,
    hinges: int,
    tensors: Sequence[Tensor | None],
    *others: int | None,
) -> None:
    programs, settings = launch_settings(geometry, dtype, hinges, hip=torch.version.hip is not None)
    with torch.cuda.device_of(tensors[-1]):
        # All on one axis of the grid: the other two end at 65535.
        kernel[(programs,)](*tensors, *others, **settings)
