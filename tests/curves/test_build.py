from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchapl import APL
from torchapl.curves import AffineAPL, from_piecewise_linear, to_piecewise_linear

deterministic = settings(derandomize=True, max_examples=150, deadline=None, database=None)
# Multiples of 1/64: exact in float64, often equal to 0, on both sides of it.
places = st.integers(-256, 256).map(lambda n: n / 64)
heights = st.integers(-192, 192).map(lambda n: n / 64)


@st.composite
def functions(draw: st.DrawFn, last: st.SearchStrategy[float]) -> tuple[list[float], list[float]]:
    knots = sorted(draw(st.sets(places, max_size=7)))
    slopes = draw(st.lists(heights, min_size=len(knots), max_size=len(knots)))
    return knots, [*slopes, draw(last)]


def evaluate(knots: list[float], slopes: list[float], intercept: float, x: Tensor) -> Tensor:
    """Integrate the slope from the right, as the definition has it."""
    y = slopes[-1] * x + intercept
    for knot, left, right in zip(knots, slopes, slopes[1:], strict=False):
        y = y + (right - left) * torch.where(x < knot, knot - x, 0.0)
    return y


def points(knots: list[float]) -> Tensor:
    x = torch.cat([torch.tensor(knots, dtype=torch.float64), torch.linspace(-9, 9, 61).double()])
    return torch.cat([x, x + 1e-9, x - 1e-9])


def bends(knots: list[float], slopes: list[float]) -> dict[float, float]:
    return {k: r - left for k, left, r in zip(knots, slopes, slopes[1:], strict=False) if r != left}


@deterministic
@given(functions(st.just(1.0)))
def test_theorem_is_exact_with_the_fewest_hinges(g: tuple[list[float], list[float]]) -> None:
    knots, slopes = g
    unit = from_piecewise_linear(knots, slopes, dtype=torch.float64)
    assert isinstance(unit, APL)
    x = points(knots)
    torch.testing.assert_close(unit(x), evaluate(knots, slopes, 0.0, x), rtol=0, atol=1e-12)
    found = bends(knots, slopes)
    needed = sum(knot != 0 for knot in found) + (found.get(0.0, 0.0) != 1)
    assert int((unit.slope != 0).sum()) == needed
    assert unit.num_hinges == max(needed, 1)


@deterministic
@given(functions(st.just(1.0)))
def test_way_back(g: tuple[list[float], list[float]]) -> None:
    knots, slopes = g
    back = to_piecewise_linear(from_piecewise_linear(knots, slopes, dtype=torch.float64))
    found = bends(knots, slopes)
    assert back.knots.tolist() == sorted(found)
    expected = [slopes[0]] + [s for s, left in zip(slopes[1:], slopes, strict=False) if s != left]
    torch.testing.assert_close(back.slopes, torch.tensor(expected, dtype=torch.float64))


@deterministic
@given(functions(heights), heights)
def test_affine_map_restores_any_function(
    g: tuple[list[float], list[float]], intercept: float
) -> None:
    knots, slopes = g
    unit = from_piecewise_linear(knots, slopes, intercept, affine=True, dtype=torch.float64)
    x = points(knots)
    expected = evaluate(knots, slopes, intercept, x)
    torch.testing.assert_close(unit(x), expected, rtol=0, atol=1e-9)
    if slopes[-1] == 1 and intercept == 0:
        assert isinstance(unit, APL)
    else:
        assert isinstance(unit, AffineAPL)
        # The paper's w*h(x) + z suffices unless g ends in a horizontal line.
        assert (unit.skip == 0 and unit.center == 0) == (slopes[-1] != 0)
    back = to_piecewise_linear(unit)
    again = evaluate(back.knots.tolist(), back.slopes.tolist(), float(back.intercept), x)
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("knots", "slopes", "intercept", "hinges", "function"),
    [
        ([0.0, 6.0], [0.0, 1.0, 0.0], 6.0, 1, torch.nn.functional.relu6),
        ([-1.0, 1.0], [0.0, 1.0, 0.0], 1.0, 1, torch.nn.functional.hardtanh),
        ([-3.0, 3.0], [0.0, 1 / 6, 0.0], 1.0, 1, torch.nn.functional.hardsigmoid),
        ([-0.5, 0.5], [1.0, 0.0, 1.0], -0.5, 3, torch.nn.functional.softshrink),
        ([], [0.0], 2.0, 1, lambda x: torch.full_like(x, 2.0)),
        ([], [-2.0], 1.0, 1, lambda x: 1 - 2 * x),
        ([0.0], [-1.0, 1.0], 0.0, 1, torch.abs),
        ([], [1.0], 0.0, 1, lambda x: x),
    ],
)
def test_known_functions(knots, slopes, intercept, hinges, function) -> None:
    unit = from_piecewise_linear(knots, slopes, intercept, affine=True)
    x = torch.linspace(-10, 10, 1001)
    torch.testing.assert_close(unit(x), function(x), rtol=1e-5, atol=1e-5)
    unit = unit if isinstance(unit, APL) else unit.unit
    assert unit.num_hinges == hinges


def test_all_units_of_a_layer_are_g() -> None:
    unit = from_piecewise_linear([-1.0], [0.5, 1.0], unit_shape=(3, 2), unit_dim=-2, num_hinges=4)
    x = torch.randn(5, 3, 2)
    assert unit.slope.shape == (4, 3, 2)
    torch.testing.assert_close(unit(x), x.clamp(min=-1) + 0.5 * (x + 1).clamp(max=0))
    assert unit.offset[:, 0, 0].unique().numel() == 4


def test_affine_unit_moves_and_saves_like_any_module() -> None:
    unit = from_piecewise_linear([0.0, 6.0], [0.0, 1.0, 0.0], 6.0, affine=True, unit_shape=4)
    other = AffineAPL(4, 1).double()
    other.load_state_dict(unit.state_dict())
    x = torch.randn(3, 4)
    torch.testing.assert_close(other(x.double()).float(), unit(x))
    assert unit(x.requires_grad_()).sum().backward() is None
    assert {name for name, _ in unit.named_parameters()} == {"unit.slope", "unit.offset"}


@pytest.mark.parametrize(
    ("knots", "slopes", "options", "message"),
    [
        ([1.0, 0.0], [0.0, 0.5, 1.0], {}, "ascend"),
        ([0.0, 0.0], [0.0, 0.5, 1.0], {}, "ascend"),
        ([float("nan")], [0.0, 1.0], {}, "condition 2.*knots must be finite"),
        ([float("-inf")], [0.0, 1.0], {}, "condition 2.*knots must be finite"),
        ([0.0], [float("nan"), 1.0], {}, "condition 2.*slopes must be finite"),
        ([0.0], [], {}, "one value more"),
        ([], [], {}, "one value more"),
        ([0.0], [0.0, 1.0, 2.0], {}, "one value more"),
        ([[0.0]], [0.0, 1.0], {}, "knots must be a sequence"),
        ([0.0], [0.0, 2.0], {}, r"condition 1.*2\*x \+ 0.*affine=True"),
        ([0.0], [0.0, 1.0], {"intercept": 0.5}, r"condition 1.*1\*x \+ 0.5"),
        (
            [0.0],
            [0.0, 0.5],
            {"intercept": float("nan"), "affine": True},
            "intercept must be finite",
        ),
        ([-1.0, 1.0], [0.0, 0.5, 1.0], {"num_hinges": 2}, "num_hinges=2 are too few.*needs 3"),
    ],
)
def test_bad_functions_are_named(knots, slopes, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        from_piecewise_linear(knots, slopes, **options)


def test_only_units_are_read() -> None:
    with pytest.raises(TypeError, match="must be an APL or AffineAPL module, got ReLU"):
        to_piecewise_linear(torch.nn.ReLU())


def test_units_stand_on_the_axis_asked_for() -> None:
    unit = from_piecewise_linear([-1.0, 0.0], [0.5, 0.0, 1.0], unit_shape=3, unit_dim=-1)
    assert unit(torch.randn(2, 5, 3)).shape == (2, 5, 3)
    with pytest.raises(ValueError, match="fit"):
        unit(torch.randn(2, 3, 5))


def test_another_default_device_makes_no_difference() -> None:
    x = torch.tensor([-3.0, 2.5, 8.0])
    with torch.device("meta"):
        relu6 = from_piecewise_linear(
            [0.0, 6.0], [0.0, 1.0, 0.0], 6.0, affine=True, device="cpu", num_hinges=3
        )
    assert relu6(x).tolist() == [0.0, 2.5, 6.0]
