from __future__ import annotations

import pytest
import torch
from torch import distributed

from torchapl.form import Hinges, build, has_equal_hinges, whole, with_spare_hinges, write_
from torchapl.modules import APL, AffineAPL
from torchapl.theorem import AffineForm


def form(slope: list[float], offset: list[float], *affine: float) -> AffineForm:
    return AffineForm(torch.tensor(slope).double(), torch.tensor(offset).double(), *affine)


@pytest.mark.parametrize(
    ("hinges", "offsets"),
    [
        (1, [7.0]),
        (2, [5.0, 7.0]),
        (3, [5.0, 7.0, 9.0]),
        # As many as there may be: the middle four fifths of the interval.
        (5, [3.0, 5.0, 7.0, 9.0, 11.0]),
        (9, [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]),
    ],
)
def test_spare_hinges_begin_in_the_middle_of_the_interval(
    hinges: int, offsets: list[float]
) -> None:
    filled = with_spare_hinges(form([], []), hinges, (2.0, 12.0))
    assert filled.offset.tolist() == offsets
    assert filled.slope.tolist() == [0.0] * hinges


def test_spare_hinges_stand_among_the_inputs_of_a_moved_unit() -> None:
    # The unit sees x - 4.
    filled = with_spare_hinges(form([], [], 2.0, 0.5, 0.25, 4.0), 3, (2.0, 12.0))
    assert filled.offset.tolist() == [1.0, 3.0, 5.0]
    assert filled[2:] == (2.0, 0.5, 0.25, 4.0)


def test_spare_hinges_leave_places_in_use_and_the_function_alone() -> None:
    used = form([-0.5, 0.125], [7.0, 100.0])
    filled = with_spare_hinges(used, 4, (2.0, 12.0))
    assert filled.offset.tolist() == [5.0, 7.0, 9.0, 100.0]
    assert filled.slope.tolist() == [0.0, -0.5, 0.0, 0.125]
    assert with_spare_hinges(used, 2).offset.tolist() == [7.0, 100.0]
    channels = AffineForm(torch.ones(1, 3), torch.zeros(1))
    assert with_spare_hinges(channels, 2).slope.tolist() == [[0.0] * 3, [1.0] * 3]


def test_spare_hinges_have_values_whatever_device_is_the_default() -> None:
    used = form([-0.5], [1.0])
    with torch.device("meta"):
        filled = with_spare_hinges(used, 2)
    assert filled.offset.tolist() == [0.0, 1.0]


def test_units_are_built_as_asked() -> None:
    plain = build(form([-0.5], [1.0]), 3, -1, dtype=torch.float64)
    assert type(plain) is APL
    assert (plain.unit_dim, plain.slope.shape, plain.slope.dtype) == (-1, (1, 3), torch.float64)
    affine = build(form([-0.5], [1.0], 2.0, 0.5, 0.25, 4.0), 3, -1, dtype=torch.float64)
    assert type(affine) is AffineAPL
    assert (affine.unit.unit_dim, affine.unit.slope.shape) == (-1, (1, 3))
    assert affine.scale.dtype == affine.unit.slope.dtype == torch.float64
    # 2 h(x - 4) + x / 4 + 1/2 at 0 and at 8.
    x = torch.tensor([[0.0] * 3, [8.0] * 3], dtype=torch.float64)
    assert affine(x)[:, 0].tolist() == [2 * -0.5 * 5 + 0.5, 2 * 4 + 2 + 0.5]
    assert "scale=2, shift=0.5, skip=0.25, center=4" in repr(affine)
    meta = build(form([-0.5], [1.0], 2.0), 3, device="meta")
    assert isinstance(meta, AffineAPL)
    assert meta.unit.unit_dim == 1
    assert meta.scale.is_meta
    assert meta.unit.slope.is_meta


def test_values_are_repeated_along_the_axes_they_lack() -> None:
    parameter = torch.nn.Parameter(torch.empty(2, 3, 4))
    write_(parameter, torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert torch.equal(parameter, torch.tensor([1.0, 2.0])[:, None, None].expand(2, 3, 4))
    channels = torch.arange(6.0).reshape(2, 3)
    slope, offset = torch.empty(2, 3, 4), torch.empty(2, 3, 4)
    Hinges(channels, -channels)(slope, offset)
    assert torch.equal(slope, channels[:, :, None].expand(2, 3, 4))
    assert torch.equal(offset, -slope)
    assert whole(slope) is slope


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs gloo")
def test_sharded_parameters_are_written_and_read_whole() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        parameter = distribute_tensor(torch.zeros(2, 3), mesh, [Shard(1)])
        write_(parameter, torch.tensor([1.0, 2.0], dtype=torch.float64))
        assert parameter.placements == (Shard(1),)
        assert whole(parameter).tolist() == [[1.0] * 3, [2.0] * 3]
        assert type(whole(parameter)) is torch.Tensor
    finally:
        distributed.destroy_process_group()


def test_equal_hinges_are_found_wherever_they_stand() -> None:
    offset = torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 0.5], [1.0, 3.0, 7.0]])
    assert has_equal_hinges(offset).tolist() == [True, False, False]
