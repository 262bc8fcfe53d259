"""The GPU kernels in Triton: evaluate the units on one tile, and sum their gradients over it.

Few hinges have their parameters and sums in registers while a program goes through its tile in
chunks. With more hinges than that, a program holds a whole tile and goes through the hinges.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Neighbouring units that a thread holds at most. It could load eight of bfloat16 at once, but
# would have parameters and sums for each of them.
HELD_UNITS = tl.constexpr(2)


@triton.jit
def _place(units, unit_blocks, inner_blocks, UNITS: tl.constexpr, HELD: tl.constexpr):
    """Return this program's block along outer and inner, and its units."""
    program = tl.program_id(0)
    inner_block = program % inner_blocks
    unit_block = program // inner_blocks % unit_blocks
    outer_block = program // inner_blocks // unit_blocks
    # 64-bit from here on: one map may have more than 2**31 elements.
    unit = unit_block.to(tl.int64) * UNITS
    # A single unit stays a scalar: each thread loads its parameters once and not once per element.
    if UNITS > 1:
        unit += tl.max_contiguous(tl.arange(0, UNITS), HELD)[:, None]
    return outer_block.to(tl.int64), unit, inner_block.to(tl.int64)


@triton.jit
def _locate(
    element,
    outer_block,
    unit,
    inner_block,
    outer,
    units,
    inner,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
):
    """Return the addresses of elements of the program's tile, (UNITS, elements)."""
    row = outer_block * OUTER + element // INNER
    column = inner_block * INNER + element % INNER
    index = (row * units + unit) * inner + column
    inside = (row < outer) & (column < inner)
    if UNITS > 1:
        inside = inside & (unit < units)
    return index, inside, row, column


@triton.jit
def _length(outer_block, outer, OUTER: tl.constexpr, INNER: tl.constexpr, ROLLED: tl.constexpr):
    """Return how many elements a program goes through."""
    if ROLLED:
        # Of a loop that it knows the length of, AMD's compiler makes straight code that spills.
        return tl.minimum(outer - outer_block * OUTER, OUTER).to(tl.int32) * INNER
    else:
        return OUTER * INNER


@triton.jit
def _load_g(
    g_ptr,
    index,
    inside,
    row,
    unit,
    column,
    g_outer,
    g_units,
    g_inner,
    SCALAR_G: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    # Zero outside of the map, so that nothing from there enters a sum.
    if SCALAR_G:
        return tl.where(inside, tl.load(g_ptr).to(COMPUTE), 0.0)
    else:
        # Strides are None where g lies in memory as x does.
        index_g = index if g_outer is None else row * g_outer + unit * g_units + column * g_inner
        return tl.load(g_ptr + index_g, mask=inside, other=0.0).to(COMPUTE)


@triton.jit
def _load_parameters(
    ptr, unit, units, HINGES: tl.constexpr, UNITS: tl.constexpr, COMPUTE: tl.constexpr
):
    values = ()
    exists = unit < units
    for _ in tl.static_range(HINGES):
        # A single unit always exists, and a mask would take longer than the load.
        if UNITS == 1:
            value = tl.load(ptr + unit)
        else:
            value = tl.load(ptr + unit, mask=exists, other=0.0)
        values = values + (value.to(COMPUTE),)
        unit += units
    return values


@triton.jit
def _store_sum(ptr, place, unit, units, value, UNITS: tl.constexpr):
    if UNITS == 1:
        tl.store(ptr + place, value)
    else:
        tl.store(ptr + place, value, mask=unit < units)


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


@triton.jit
def _own_sums(v, UNITS: tl.constexpr, THREADS: tl.constexpr):
    """Let each thread add up its elements of one unit, in two chains: a B200 adds pairs."""
    if UNITS == 1:
        PAIR: tl.constexpr = min(2, v.numel // THREADS)
        own = tl.reshape(v, (THREADS, v.numel // THREADS // PAIR, PAIR), can_reorder=True)
        return tl.sum(own, 1)
    else:
        return v


@triton.jit(do_not_specialize=["outer"])
def forward_few_kernel(
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
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    THREADS: tl.constexpr,
    ROLLED: tl.constexpr,
):
    """Evaluate the units on one tile, WIDE chunks of (UNITS, CHUNK) elements in each turn."""
    outer_block, unit, inner_block = _place(units, unit_blocks, inner_blocks, UNITS, HELD_UNITS)
    a = _load_parameters(a_ptr, unit, units, HINGES, UNITS, COMPUTE)
    b = _load_parameters(b_ptr, unit, units, HINGES, UNITS, COMPUTE)
    LENGTH: tl.constexpr = CHUNK * WIDE if UNITS == 1 else CHUNK
    length = _length(outer_block, outer, OUTER, INNER, ROLLED)
    for first in range(0, length, WIDE * CHUNK):
        for chunk in tl.static_range(WIDE * CHUNK // LENGTH):
            element = first + chunk * LENGTH + tl.arange(0, LENGTH)[None, :]
            index, inside, _, _ = _locate(
                element, outer_block, unit, inner_block, outer, units, inner, OUTER, UNITS, INNER
            )
            x = tl.load(x_ptr + index, mask=inside, other=0.0).to(COMPUTE)
            y = _relu(x)
            for s in tl.static_range(HINGES):
                y += a[s] * _relu(b[s] - x)
            tl.store(y_ptr + index, y, mask=inside)


@triton.jit
def _few_hinges(
    dx_ptr,
    g_ptr,
    x_ptr,
    a,
    b,
    centre,
    g_outer,
    g_units,
    g_inner,
    SCALAR_G: tl.constexpr,
    outer_block,
    unit,
    inner_block,
    outer,
    units,
    inner,
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    THREADS: tl.constexpr,
    ROLLED: tl.constexpr,
    FINITE: tl.constexpr,
    MOMENTS: tl.constexpr,
):
    """Store dx; return each thread's sums below each hinge: of g, and of g times the gate.

    With MOMENTS the second is g * (x - centre), a product that all hinges share.
    """
    if UNITS == 1:
        nothing = _own_sums(tl.zeros((1, CHUNK), COMPUTE), UNITS, THREADS)
    else:
        nothing = tl.zeros((UNITS, CHUNK), COMPUTE)
    sums = ()
    for _ in tl.static_range(2 * len(a)):
        sums = sums + (nothing,)
    length = _length(outer_block, outer, OUTER, INNER, ROLLED)
    for first in range(0, length, CHUNKS * CHUNK):
        for chunk in tl.static_range(CHUNKS):
            element = first + chunk * CHUNK + tl.arange(0, CHUNK)[None, :]
            index, inside, row, column = _locate(
                element, outer_block, unit, inner_block, outer, units, inner, OUTER, UNITS, INNER
            )
            x = tl.load(x_ptr + index, mask=inside, other=0.0).to(COMPUTE)
            g = _load_g(
                g_ptr,
                index,
                inside,
                row,
                unit,
                column,
                g_outer,
                g_units,
                g_inner,
                SCALAR_G,
                COMPUTE,
            )
            longer = ()
            if FINITE:
                steepness = tl.where(x <= 0, 0.0, 1.0)
                moment = g * (x - centre)
                for s in tl.static_range(len(a)):
                    gate = b[s] - x
                    below = tl.where(x >= b[s] if MOMENTS else gate <= 0, 0.0, 1.0)
                    steepness -= a[s] * below
                    passed = below * g
                    longer = longer + (
                        sums[2 * s] + _own_sums(passed, UNITS, THREADS),
                        sums[2 * s + 1]
                        + _own_sums(below * moment if MOMENTS else passed * gate, UNITS, THREADS),
                    )
                dx = g * steepness
            else:
                dx = tl.where(x <= 0, 0.0, g)
                for s in tl.static_range(len(a)):
                    gate = b[s] - x
                    passed = tl.where(gate <= 0, 0.0, g)
                    dx -= a[s] * passed
                    # relu(gate), because 0 * gate is NaN at the closed gate of an infinite x.
                    longer = longer + (
                        sums[2 * s] + _own_sums(passed, UNITS, THREADS),
                        sums[2 * s + 1] + _own_sums(passed * _relu(gate), UNITS, THREADS),
                    )
            sums = longer
            if dx_ptr is not None:
                tl.store(dx_ptr + index, dx, mask=inside)
    return sums


@triton.jit(do_not_specialize=["outer"])
def backward_few_kernel(
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
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    THREADS: tl.constexpr,
    ROLLED: tl.constexpr,
):
    """Compute dx and the partial sums of da and db, (blocks, hinges, units), on one tile.

    Memory delivers two elements of 16 bits in the time of one float32, so these must take half as
    many instructions: a mask of ones and zeros and three multiplications by it for each hinge.
    Zero times infinity would be NaN, which stays in every sum: if one is not finite, the tile is
    computed once more as the definition says.
    """
    outer_block, unit, inner_block = _place(units, unit_blocks, inner_blocks, UNITS, HELD_UNITS)
    a = _load_parameters(a_ptr, unit, units, HINGES, UNITS, COMPUTE)
    b = _load_parameters(b_ptr, unit, units, HINGES, UNITS, COMPUTE)
    partial = unit + (outer_block * inner_blocks + inner_block) * HINGES * units
    # The middle one if they are sorted; inputs far from 0 have hinges far from 0.
    centre = b[HINGES // 2]
    # A pointer is None where nobody asked for the gradient: its arithmetic is not compiled.
    MASKS: tl.constexpr = COMPUTE == tl.float32 and da_ptr is not None
    MOMENTS: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16
    TURN: tl.constexpr = WIDE if MOMENTS else max(1, WIDE // 2)
    if MASKS:
        sums = _few_hinges(
            dx_ptr,
            g_ptr,
            x_ptr,
            a,
            b,
            centre,
            g_outer,
            g_units,
            g_inner,
            SCALAR_G,
            outer_block,
            unit,
            inner_block,
            outer,
            units,
            inner,
            COMPUTE,
            OUTER,
            UNITS,
            INNER,
            CHUNK * TURN if UNITS == 1 else CHUNK,
            1 if UNITS == 1 else TURN,
            THREADS,
            ROLLED,
            True,
            MOMENTS,
        )
        zero = 0.0 * centre
        place = partial
        for s in tl.static_range(HINGES):
            passed = _sum(sums[2 * s], UNITS)
            da = _sum(sums[2 * s + 1], UNITS)
            if MOMENTS:
                da = (b[s] - centre) * passed - da
            zero += 0.0 * da
            _store_sum(da_ptr, place, unit, units, da, UNITS)
            if db_ptr is not None:
                _store_sum(db_ptr, place, unit, units, a[s] * passed, UNITS)
            place += units
        finite = (zero if UNITS == 1 else tl.sum(zero)) == 0
    else:
        finite = False
    if not finite:
        # Another thread may store an element of dx than before.
        tl.debug_barrier()
        own = _few_hinges(
            dx_ptr,
            g_ptr,
            x_ptr,
            a,
            b,
            centre,
            g_outer,
            g_units,
            g_inner,
            SCALAR_G,
            outer_block,
            unit,
            inner_block,
            outer,
            units,
            inner,
            COMPUTE,
            OUTER,
            UNITS,
            INNER,
            # As an afterthought this would spill where by itself it does not.
            max(THREADS, CHUNK // 2) if MASKS and UNITS == 1 else CHUNK,
            1,
            THREADS,
            ROLLED,
            False,
            False,
        )
        for s in tl.static_range(HINGES):
            if da_ptr is not None:
                _store_sum(da_ptr, partial, unit, units, _sum(own[2 * s + 1], UNITS), UNITS)
            if db_ptr is not None:
                _store_sum(db_ptr, partial, unit, units, a[s] * _sum(own[2 * s], UNITS), UNITS)
            partial += units


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
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
):
    """Evaluate the units on one tile."""
    outer_block, unit, inner_block = _place(units, unit_blocks, inner_blocks, UNITS, UNITS)
    element = tl.arange(0, OUTER * INNER)[None, :]
    index, inside, _, _ = _locate(
        element, outer_block, unit, inner_block, outer, units, inner, OUTER, UNITS, INNER
    )
    exists = unit < units

    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(COMPUTE)
    y = _relu(x)
    for _ in range(HINGES):
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
    COMPUTE: tl.constexpr,
    OUTER: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
):
    """Compute dx and the partial sums of da and db, (blocks, hinges, units), on one tile."""
    outer_block, unit, inner_block = _place(units, unit_blocks, inner_blocks, UNITS, HELD_UNITS)
    element = tl.arange(0, OUTER * INNER)[None, :]
    index, inside, row, column = _locate(
        element, outer_block, unit, inner_block, outer, units, inner, OUTER, UNITS, INNER
    )
    exists = unit < units
    partial = (outer_block * inner_blocks + inner_block) * HINGES * units

    x = tl.load(x_ptr + index, mask=inside, other=0.0).to(COMPUTE)
    g = _load_g(
        g_ptr, index, inside, row, unit, column, g_outer, g_units, g_inner, SCALAR_G, COMPUTE
    )
    dx = tl.where(x <= 0, 0.0, g)
    for _ in range(HINGES):
        a = tl.load(a_ptr + unit, mask=exists, other=0.0).to(COMPUTE)
        b = tl.load(b_ptr + unit, mask=exists, other=0.0).to(COMPUTE)
        gate = b - x
        passed = tl.where(gate <= 0, 0.0, g)
        if dx_ptr is not None:
            dx -= a * passed
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
