"""How a dense tensor collapses to (outer, units, inner) in memory order and is cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

# Neighbours in memory that a tile should at least hold: 32 floats are one cache line.
RUN = 32
# Below this length of a run, filling the last tile better no longer pays for shorter runs.
SHORTEST_CUT = 128


class Collapsed(NamedTuple):
    """A dense tensor as (outer, units, inner), and the order of the units' axes in its memory."""

    outer: int
    units: int
    inner: int
    unit_order: tuple[int, ...]


class Tile(NamedTuple):
    """The part of (outer, units, inner) that one program handles; powers of two."""

    outer: int
    units: int
    inner: int

    def blocks(self, geometry: Collapsed) -> tuple[int, int, int]:
        """Return the number of tiles along outer, units and inner."""
        sizes = zip(geometry[:3], self, strict=True)
        outer, units, inner = (-(-size // tile) for size, tile in sizes)
        return outer, units, inner


@lru_cache(maxsize=1024)
def collapse(
    shape: tuple[int, ...], strides: tuple[int, ...], unit_dim: int, unit_dims: int
) -> Collapsed | None:
    """Collapse a dense, non-empty tensor; None where its units' axes lie apart in memory."""
    parts = _parts(shape, strides, unit_dim, unit_dims)
    if parts is None:
        return None
    outer, units, inner = (math.prod(shape[d] for d in axes) for axes in parts)
    order = [d - unit_dim for d in parts[1]]
    # Axes of size one lie anywhere.
    order += [d for d in range(unit_dims) if d not in order]
    return Collapsed(outer, units, inner, tuple(order))


@lru_cache(maxsize=1024)
def strides_of_view(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    unit_dim: int,
    unit_dims: int,
    view: tuple[int, ...],
) -> tuple[int, int, int] | None:
    """Return the strides of a view along the (outer, units, inner) of a dense tensor of its shape.

    An expanded scalar has (0, 0, 0). None where the axes of one of the three have no common stride,
    or where neighbours of the dense tensor are not neighbours in the view: a kernel would read it
    slowly. One element for the whole of inner is fine.
    """
    parts = _parts(shape, strides, unit_dim, unit_dims)
    if parts is None:
        return None
    common = []
    for axes in parts:
        if any(view[d] != view[e] * shape[e] for d, e in pairwise(axes)):
            return None
        common.append(view[axes[-1]] if axes else 0)
    outer, units, inner = common
    nearest = inner if parts[2] else units
    if nearest == 1 or not any(common) or (parts[2] and inner == 0):
        return outer, units, inner
    return None


def _parts(
    shape: tuple[int, ...], strides: tuple[int, ...], unit_dim: int, unit_dims: int
) -> tuple[list[int], list[int], list[int]] | None:
    """Return the axes longer than one, in memory order: before, of and behind the units."""
    unit_axes = range(unit_dim, unit_dim + unit_dims)
    memory = sorted((d for d, size in enumerate(shape) if size > 1), key=lambda d: -strides[d])
    ranks = [rank for rank, d in enumerate(memory) if d in unit_axes]
    if not ranks:
        return [], [], memory
    first, last = ranks[0], ranks[-1]
    if last - first + 1 != len(ranks):
        return None
    return memory[:first], memory[first : last + 1], memory[last + 1 :]


@lru_cache(maxsize=1024)
def tile_of(geometry: Collapsed, elements: int, least: int) -> Tile:
    """Cut (outer, units, inner) into tiles of at most ``elements``, a power of two.

    Elements of one unit come first, so that few partial sums are left; but a tile holds runs of
    memory as long as a cache line, and where a unit has few elements it holds many units: as many
    as ``least`` elements are. A thread has parameters and sums of each of its units in registers.
    """
    inner = _cut(geometry.inner, elements)
    units = min(_power(geometry.units), max(1, RUN // inner))
    outer = min(_power(geometry.outer), elements // (inner * units))
    few = least // (inner * outer)
    return Tile(outer, min(_power(geometry.units), max(units, few)), inner)


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes ``order``."""
    return sorted(range(len(order)), key=order.__getitem__)


def _cut(size: int, most: int) -> int:
    """Return the power of two whose tiles overhang least (128 for 3136), of equals the larger."""
    tile = min(_power(size), most)
    candidates = [tile]
    while candidates[-1] > SHORTEST_CUT:
        candidates.append(candidates[-1] // 2)
    return min(candidates, key=lambda c: (-(-size // c) * c, -c))


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()
