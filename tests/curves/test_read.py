from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchapl import APL, curves, init
from torchapl.curves import AffineAPL

deterministic = settings(derandomize=True, max_examples=60, deadline=None, database=None)
GRID = torch.linspace(-6, 6, 4801, dtype=torch.float64)


def layer(
    seed: int, hinges: int, shape: tuple[int, ...], *, affine: bool = False
) -> APL | AffineAPL:
    """Return units with offsets on a coarse grid: hinges coincide with each other and with 0."""
    generator = torch.Generator().manual_seed(seed)

    def start(slope: Tensor, offset: Tensor) -> None:
        with torch.no_grad():
            slope.copy_(torch.randint(-8, 9, slope.shape, generator=generator) / 4)
            offset.copy_(torch.randint(-8, 9, slope.shape, generator=generator) / 4)

    options = {"init": start, "dtype": torch.float64}
    if affine:
        numbers = {"scale": -1.5, "shift": 0.75, "skip": 0.5, "center": 0.25}
        return AffineAPL(shape, hinges, **options, **numbers)
    return APL(shape, hinges, **options)


layers = st.builds(
    layer,
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.sampled_from([(), (3,), (2, 2)]),
    affine=st.booleans(),
)


@deterministic
@given(layers)
def test_sample_is_the_forward_pass(unit: APL | AffineAPL) -> None:
    inner = unit.unit if isinstance(unit, AffineAPL) else unit
    wide = GRID.reshape(-1, *(1,) * len(inner.unit_shape)).expand(-1, *inner.unit_shape)
    torch.testing.assert_close(curves.sample(unit, GRID), unit(wide).detach().movedim(0, -1))


@deterministic
@given(layers)
def test_readings_agree_with_samples(unit: APL | AffineAPL) -> None:
    y = curves.sample(unit, GRID)
    steps = y.diff(dim=-1) / GRID.diff()
    close = {"rtol": 0.0, "atol": 1e-7}
    torch.testing.assert_close(curves.left_slope(unit), steps[..., 0], **close)
    line = curves.left_asymptote(unit)
    torch.testing.assert_close(line.slope * GRID[0] + line.intercept, y[..., 0], **close)
    torch.testing.assert_close(curves.value_at_zero(unit), y[..., len(GRID) // 2], **close)
    # Kinks lie on the grid, so that differences of samples are slopes of segments.
    torch.testing.assert_close(curves.lipschitz(unit), steps.abs().amax(-1), **close)
    variation = steps.diff(dim=-1).abs().sum(-1)
    torch.testing.assert_close(curves.slope_variation(unit), variation, **close)
    shape = curves.classify(unit)
    assert torch.equal(shape.convex, (steps.diff(dim=-1) >= -1e-6).all(-1))
    assert torch.equal(shape.concave, (steps.diff(dim=-1) <= 1e-6).all(-1))
    assert torch.equal(shape.increasing, (steps >= -1e-6).all(-1))
    assert torch.equal(shape.decreasing, (steps <= 1e-6).all(-1))
    assert torch.equal(shape.monotone, shape.increasing | shape.decreasing)
    assert torch.equal(shape.non_convex, ~(shape.convex | shape.concave))


@deterministic
@given(layers)
def test_knots_and_slopes_make_the_curve(unit: APL | AffineAPL) -> None:
    knots, slopes = curves.knots(unit), curves.segment_slopes(unit)
    assert (knots.diff(dim=-1) >= 0).all()
    line = curves.left_asymptote(unit)
    x = GRID.expand(*knots.shape[:-1], -1)
    y = line.slope[..., None] * x + line.intercept[..., None]
    for s in range(knots.shape[-1]):
        y = y + slopes[..., s : s + 2].diff(dim=-1) * (x - knots[..., s : s + 1]).clamp(min=0)
    torch.testing.assert_close(y, curves.sample(unit, GRID))


@deterministic
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_distance_agrees_with_samples(seed: int, first: int, second: int, affine: bool) -> None:
    one, other = layer(seed, first, (3,)), layer(seed + 1, second, (3,), affine=affine)
    difference = curves.sample(one, GRID) - curves.sample(other, GRID)
    exact = curves.distance(one, other, interval=(-6.0, 6.0))
    torch.testing.assert_close(exact, difference.abs().amax(-1), rtol=0, atol=1e-9)
    inner = (GRID >= -1) & (GRID <= 1.25)
    part = curves.distance(one, other, interval=(-1.0, 1.25))
    torch.testing.assert_close(part, difference[:, inner].abs().amax(-1), rtol=0, atol=1e-9)
    rms = curves.distance(one, other, interval=(-6.0, 6.0), norm="squares")
    mean = torch.trapezoid(difference.square(), GRID, dim=-1) / 12
    torch.testing.assert_close(rms, mean.sqrt(), rtol=1e-3, atol=1e-6)
    whole = curves.distance(one, other)
    parallel = difference[:, [0, 1, -2, -1]].diff(dim=-1)[:, [0, 2]].abs().amax(-1) < 1e-9
    assert torch.equal(whole.isinf(), ~parallel)
    torch.testing.assert_close(whole[parallel], exact[parallel], rtol=0, atol=1e-9)


def test_distance_of_a_layer_from_itself_is_zero() -> None:
    unit = APL(50, 5, init=init.authors_)
    assert curves.distance(unit, unit).abs().max() == 0
    single = APL(num_hinges=2, init=init.relu_)
    assert curves.distance(unit, single, interval=(-2.0, 2.0)).shape == (50,)


def test_coincident_hinges_cancel() -> None:
    unit = APL(num_hinges=2)
    with torch.no_grad():
        unit.slope.copy_(torch.tensor([3.0, -3.0]))
        unit.offset.fill_(-1.0)
    shape = curves.classify(unit)
    assert shape.convex
    assert shape.increasing
    assert curves.lipschitz(unit) == 1
    assert curves.slope_variation(unit) == 1


def test_a_hundred_thousand_units_are_read_quickly() -> None:
    unit, other = (APL(100_000, 5, init=init.authors_) for _ in range(2))
    begin = time.process_time()
    for read in (
        curves.knots,
        curves.segment_slopes,
        curves.left_asymptote,
        curves.value_at_zero,
        curves.classify,
        curves.lipschitz,
        curves.slope_variation,
    ):
        read(unit)
    curves.distance(unit, other, interval=(-3.0, 3.0))
    # CPU time of eight readings: other work on the machine is not ours.
    assert time.process_time() - begin < 8


def test_low_precision_is_read_in_float32() -> None:
    unit = APL(4, 2, dtype=torch.bfloat16)
    for value in (curves.knots(unit), curves.lipschitz(unit), curves.left_slope(unit)):
        assert value.dtype == torch.float32


@pytest.mark.parametrize("x", [torch.zeros(2, 2), torch.arange(3), 1.0])
def test_sample_names_bad_points(x: object) -> None:
    with pytest.raises(ValueError, match="x must be a floating-point tensor of shape"):
        curves.sample(APL(), x)


def test_distance_names_bad_arguments() -> None:
    with pytest.raises(ValueError, match="norm='squares' needs an interval"):
        curves.distance(APL(), APL(), norm="squares")
    with pytest.raises(ValueError, match="needs a finite interval"):
        curves.distance(APL(), APL(), norm="squares", interval=(-torch.inf, 0.0))
    with pytest.raises(ValueError, match="interval must ascend"):
        curves.distance(APL(), APL(), interval=(1.0, 0.0))
    with pytest.raises(ValueError, match="norm must be"):
        curves.distance(APL(), APL(), norm="l1")


@pytest.mark.parametrize("norm", ["uniform", "squares"])
def test_another_default_device_makes_no_difference(norm: str) -> None:
    first, second = APL(5, 3, init="authors"), APL(5, 3, init="leaky")
    expected = curves.distance(first, second, interval=(-2.0, 2.0), norm=norm)
    with torch.device("meta"):
        found = curves.distance(first, second, interval=(-2.0, 2.0), norm=norm)
    assert torch.equal(found, expected)
