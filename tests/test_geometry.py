"""How tensors collapse to (outer, units, inner), are cut into tiles and handed to GPU kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cases import lay_out
from torchapl.ops import geometry, layout


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((128, 96, 1024), (4, 1, 1024)),
        ((128, 98304, 1), (128, 32, 1)),
        ((4096, 300, 1), (128, 32, 1)),
        ((100, 274, 1), (128, 32, 1)),
        ((6304, 768, 1), (128, 32, 1)),
        ((64, 8, 50176), (4, 1, 1024)),
        ((64, 64, 3136), (32, 1, 128)),
        ((1, 1, 2**33), (1, 1, 4096)),
        ((3, 1027, 1), (4, 256, 1)),
        ((3, 999, 7), (4, 32, 8)),
        ((1024, 512, 4), (128, 8, 4)),
    ],
    ids=str,
)
def test_tiles_by_rule(sizes: tuple[int, int, int], tile: tuple[int, int, int]):
    shape = geometry.Collapsed(*sizes, (0,))
    assert geometry.tile_of(shape, 4096, 1024) == tile
    covered = [
        blocks * t for blocks, t in zip(geometry.Tile(*tile).blocks(shape), tile, strict=True)
    ]
    assert all(c >= size for c, size in zip(covered, sizes, strict=True))


@pytest.mark.parametrize(
    ("order", "unit_shape", "expected"),
    [
        ("contiguous", (3,), (4, 3, 30, (0,))),
        ("contiguous", (3, 5, 6), (4, 90, 1, (0, 1, 2))),
        ("channels_last", (3,), (120, 3, 1, (0,))),
        ("channels_last", (3, 5, 6), (4, 90, 1, (1, 2, 0))),
        ("channels_last", (), (1, 1, 360, ())),
        ("channels_last", (3, 5), None),
        ("transposed", (3,), (6, 3, 20, (0,))),
    ],
)
def test_collapse(order: str, unit_shape: tuple[int, ...], expected):
    x = lay_out(torch.zeros(4, 3, 5, 6), order)
    found = geometry.collapse(tuple(x.shape), x.stride(), 1, len(unit_shape))
    assert found == expected


@pytest.mark.parametrize("unit_shape", [(3,), (3, 5, 6), ()], ids=str)
def test_gradient_of_a_sum_is_not_copied(unit_shape: tuple[int, ...]):
    x, slope = torch.zeros(4, 3, 5, 6), torch.zeros(2, *unit_shape)
    grad = torch.ones(()).expand_as(x)
    found, strides = layout.readable(grad, x, slope, 1)
    assert found is grad
    assert strides == (0, 0, 0)


@pytest.mark.parametrize(
    ("order", "grad", "expected"),
    [
        ("contiguous", torch.randn(4, 7, 1, 1)[:, :3].expand(4, 3, 5, 6), (7, 1, 0)),
        ("contiguous", torch.randn(4, 7, 5, 6)[:, 2:5], (210, 30, 1)),
        ("channels_last", lay_out(torch.randn(4, 7, 5, 6), "channels_last")[:, 2:5], (7, 1, 0)),
    ],
    ids=["average over the map", "slice", "slice channels last"],
)
def test_gradients_read_in_place(order: str, grad: Tensor, expected: tuple[int, int, int]):
    x = lay_out(torch.zeros(4, 3, 5, 6), order)
    found, strides = layout.readable(grad, x, torch.zeros(2, 3), 1)
    assert found is grad
    assert strides == expected


@pytest.mark.parametrize("order", ["contiguous", "transposed", "strided", "channels_last"])
def test_gradients_with_the_strides_of_the_input(order: str):
    # Read across memory, most of each cache line would be fetched in vain: a copy is cheaper.
    x = torch.zeros(4, 3, 5, 6)
    grad = lay_out(torch.randn_like(x), order)
    found, strides = layout.readable(grad, x, torch.zeros(2, 3), 1)
    assert (found is grad) == (order == "contiguous")
    assert found.stride() == x.stride()
    assert torch.equal(found, grad)
    assert strides == (None, None, None)


def test_parameters_in_the_order_of_memory_and_back():
    # Units (3, 4, 2) of an input in whose memory the last axis comes first.
    parameter = torch.randn(5, 3, 4, 2, dtype=torch.float64)
    collapsed = geometry.Collapsed(outer=7, units=24, inner=1, unit_order=(2, 0, 1))
    flat = layout.flatten(parameter, collapsed)
    assert flat.is_contiguous()
    for first in range(3):
        for second in range(4):
            for third in range(2):
                place = (third * 3 + first) * 4 + second
                assert torch.equal(flat[:, place], parameter[:, first, second, third])
    assert torch.equal(layout.unflatten(flat[None], parameter, collapsed), parameter)
    sums = layout.unflatten(torch.stack([flat, 2 * flat]), parameter.float(), collapsed)
    assert torch.equal(sums, (3 * parameter).float())
    assert sums.is_contiguous()
    nothing = layout.unflatten(None, parameter, collapsed)
    assert (nothing.shape, nothing.dtype) == ((0,), torch.float64)


def test_copies_stay_on_their_device():
    like = torch.empty(4, 3, device="meta").t()
    copy = layout.laid_out_like(like, torch.empty(3, 4, device="meta", dtype=torch.float64))
    assert (copy.device.type, copy.dtype, copy.stride()) == ("meta", torch.float64, like.stride())


def test_strides_of_a_single_row_do_not_matter_those_of_two_do():
    like = torch.empty(2, 3)
    two = torch.arange(12.0).view(4, 3)[::2]
    copy = layout.laid_out_like(like, two)
    assert copy.stride() == like.stride()
    assert torch.equal(copy, two)
    one = torch.arange(12.0).view(4, 3)[::5]
    assert one.stride() != like[:1].stride()
    assert layout.laid_out_like(like[:1], one) is one
