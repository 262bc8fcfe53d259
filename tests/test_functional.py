from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from torchapl import apl


def parameters(
    *shape: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_refuses_inputs_that_are_not_floating(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"input must be float64, .* got torch\."):
        apl(torch.zeros(2, 3, dtype=dtype), *parameters(1, 3))


@pytest.mark.parametrize("name", ["slope", "offset"])
def test_refuses_parameters_that_are_not_floating(name: str) -> None:
    slope, offset = parameters(1, 3)
    if name == "slope":
        slope = slope.to(torch.int32)
    else:
        offset = offset.to(torch.complex64)
    with pytest.raises(TypeError, match=f"{name} must be float64"):
        apl(torch.zeros(2, 3), slope, offset)


def test_refuses_what_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="slope must be a tensor, got float"):
        apl(torch.zeros(2, 3), 0.25, torch.zeros(1, 3))


def test_refuses_parameters_that_disagree() -> None:
    slope, offset = parameters(2, 3)
    with pytest.raises(ValueError, match=r"slope and offset must agree, got \(2, 3\).*\(1, 3\)"):
        apl(torch.zeros(2, 3), slope, offset[:1])
    with pytest.raises(ValueError, match=r"slope and offset must agree.*float64"):
        apl(torch.zeros(2, 3), slope, offset.double())


def test_refuses_several_devices() -> None:
    slope, offset = parameters(2, 3)
    with pytest.raises(ValueError, match="must be on one device, got meta, cpu and cpu"):
        apl(torch.zeros(2, 3, device="meta"), slope, offset)


def test_refuses_no_hinges() -> None:
    with pytest.raises(ValueError, match=r"at least one hinge, got \(0, 3\)"):
        apl(torch.zeros(2, 3), *parameters(0, 3))
    with pytest.raises(ValueError, match=r"at least one hinge, got \(\)"):
        apl(torch.zeros(2, 3), torch.zeros(()), torch.zeros(()))


@pytest.mark.parametrize("unit_dim", [2, -3, 17])
def test_refuses_an_axis_the_input_lacks(unit_dim: int) -> None:
    with pytest.raises(ValueError, match=rf"unit_dim={unit_dim} is not an axis .* \(2, 3\)"):
        apl(torch.zeros(2, 3), *parameters(1, 3), unit_dim=unit_dim)


@pytest.mark.parametrize("unit_dim", [True, 1.0, "1"])
def test_refuses_an_axis_that_is_no_int(unit_dim: object) -> None:
    with pytest.raises(TypeError, match="unit_dim must be an int"):
        apl(torch.zeros(2, 3), *parameters(1, 3), unit_dim=unit_dim)


@pytest.mark.parametrize(
    ("shape", "unit_shape", "unit_dim", "found"),
    [
        ((2, 3), (4,), 1, r"\(3,\)"),
        ((2, 3, 5), (3,), -1, r"\(5,\)"),
        ((2, 3, 5), (3, 5, 7), 1, r"\(3, 5\)"),
        ((2, 3, 1), (3, 5), 1, r"\(3, 1\)"),
    ],
)
def test_refuses_units_that_do_not_fit(
    shape: tuple[int, ...], unit_shape: tuple[int, ...], unit_dim: int, found: str
) -> None:
    with pytest.raises(ValueError, match=rf"do not fit input .* where it has {found}"):
        apl(torch.zeros(shape), *parameters(1, *unit_shape), unit_dim=unit_dim)


@pytest.mark.parametrize(
    ("shape", "unit_shape", "hint"),
    [
        ((8, 10, 64), (64,), "; they fit at unit_dim=-1$"),
        ((8, 7, 7, 64), (64,), "; they fit at unit_dim=-1$"),
        ((8, 5, 6, 64), (6, 64), "; they fit at unit_dim=-2$"),
        ((64, 10, 64), (64,), "; they fit at unit_dim=-3 or unit_dim=-1$"),
        ((8, 10, 32), (64,), r"where it has \(10,\)$"),
    ],
)
def test_says_where_units_would_fit(
    shape: tuple[int, ...], unit_shape: tuple[int, ...], hint: str
) -> None:
    with pytest.raises(ValueError, match=hint):
        apl(torch.zeros(shape), *parameters(1, *unit_shape))


def test_names_the_axis_of_channels_as_everybody_does() -> None:
    with pytest.raises(ValueError, match=r"they fit at unit_dim=1$"):
        apl(torch.zeros(8, 64, 5, 5), *parameters(1, 64), unit_dim=-1)


def test_warns_where_two_axes_fit() -> None:
    x, (a, b) = torch.randn(2, 5, 5), parameters(1, 5)
    with pytest.warns(UserWarning, match=r"fit two axes .* give unit_dim=1 if it is \(N, C, L\)"):
        assert torch.equal(apl(x, a, b), apl(x, a, b, unit_dim=1))
    apl(x, a, b, unit_dim=-1)
    apl(torch.randn(2, 5, 6), a, b)
    apl(torch.randn(2, 5, 5, 5), a, b)


def test_one_unit_for_the_layer_takes_any_axis() -> None:
    x = torch.randn(3, 4)
    for unit_dim in (1, -1, 5):
        assert torch.equal(apl(x, torch.zeros(1), torch.zeros(1), unit_dim=unit_dim), x.relu())


class Watched(torch.Tensor):
    """Keeps the functions of torch that are called with it."""

    calls: ClassVar[list[object]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs)


@pytest.mark.parametrize("watched", [0, 1, 2])
def test_is_one_call_of_a_function_for_subclasses_wherever_they_come(watched: int) -> None:
    arguments = [torch.randn(4, 3, 3), torch.randn(2, 3), torch.randn(2, 3)]
    expected = apl(*arguments, unit_dim=2)
    arguments[watched] = arguments[watched].as_subclass(Watched)
    Watched.calls.clear()
    result = apl(*arguments, unit_dim=2)
    assert Watched.calls[0] is apl
    assert torch.equal(torch.Tensor(result), expected)
