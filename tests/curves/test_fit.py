from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl import APL
from torchapl.curves import AffineAPL, fit
from torchapl.curves.squares import _apart, best_knots, starts
from torchapl.curves.tube import Line, fewest_links

Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, tuple[Function, tuple[float, float]]] = {
    "gelu": (F.gelu, (-4.0, 4.0)),
    "silu": (F.silu, (-8.0, 8.0)),
    "softplus": (F.softplus, (-6.0, 6.0)),
    "tanh": (torch.tanh, (-4.0, 4.0)),
    "sigmoid": (torch.sigmoid, (-8.0, 8.0)),
    "erf": (torch.erf, (-3.0, 3.0)),
    "sin": (torch.sin, (-math.pi, math.pi)),
}


def best_heights(columns: Tensor, y: Tensor) -> float:
    """Return the smallest uniform error of a linear combination, by linear programming."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    ones = torch.ones(len(y), 1, dtype=torch.float64)
    upper = torch.cat([torch.cat([columns, -ones], 1), torch.cat([-columns, -ones], 1)])
    cost = [0.0] * columns.shape[1] + [1.0]
    bounds = [(None, None)] * columns.shape[1] + [(0, None)]
    result = linprog(cost, A_ub=upper.numpy(), b_ub=torch.cat([y, -y]).numpy(), bounds=bounds)
    return float(result.fun)


def columns_of(x: Tensor, knots: Tensor, plain: bool) -> Tensor:
    hinges = (knots - x[:, None]).clamp(min=0)
    if plain:
        return hinges
    return torch.cat([torch.ones_like(x)[:, None], x[:, None], hinges], 1)


@pytest.mark.parametrize(
    ("name", "hinges", "interval"),
    [
        ("gelu", 1, None),
        ("gelu", 2, None),
        ("tanh", 1, None),
        ("sin", 1, None),
        ("gelu", 2, (-1.0, 1.5)),
        ("silu", 2, (1.0, 5.0)),
        ("tanh", 1, (0.5, 3.0)),
    ],
)
def test_uniform_fit_beats_every_grid_of_knots(
    name: str, hinges: int, interval: tuple[float, float] | None
) -> None:
    function, usual = FUNCTIONS[name]
    low, high = interval or usual
    plain = name in ("gelu", "silu")
    found = fit(function, hinges, (low, high))
    own = found.offset + found.center
    if not plain:
        own = torch.cat([own, torch.tensor([found.center], dtype=torch.float64)])
    top = high + (high - low) if plain else high
    places = torch.linspace(low, top, 20, dtype=torch.float64)[1:-1]
    # Errors are largest at 0 and at knots, so these are among the samples.
    x = torch.cat([torch.linspace(low, high, 97, dtype=torch.float64), places, own, torch.zeros(1)])
    x = x[(x >= low) & (x <= high)].sort().values
    y = function(x) - x.clamp(min=0) if plain else function(x)
    brute = min(
        best_heights(columns_of(x, torch.stack(knots), plain), y)
        for knots in itertools.combinations(places, hinges if plain else hinges + 1)
    )
    missed = 1e-3  # what the samples may miss of the curvature between them
    assert found.max_error <= brute + missed
    # And at its own knots no other heights are better.
    assert found.max_error <= best_heights(columns_of(x, own, plain), y) + missed


@pytest.mark.parametrize("hinges", [1, 2, 3, 5, 8])
def test_known_optimum_of_the_parabola(hinges: int) -> None:
    # On n equal segments of [0, 1] the best lines err by 1 / (8 n^2) and meet.
    found = fit(torch.square, hinges, (0.0, 1.0))
    assert found.max_error == pytest.approx(1 / (8 * (hinges + 2) ** 2), rel=1e-4)
    knots = torch.cat([found.offset, found.offset.new_zeros(1)]).add(found.center).sort().values
    even = torch.arange(1, hinges + 2, dtype=torch.float64) / (hinges + 2)
    torch.testing.assert_close(knots, even, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_fall_with_more_hinges(name: str) -> None:
    function, interval = FUNCTIONS[name]
    fits = [fit(function, hinges, interval) for hinges in (1, 3, 8)]
    assert all(b.max_error <= a.max_error * 1.0001 for a, b in itertools.pairwise(fits))
    assert fits[-1].max_error < 0.3 * fits[0].max_error
    squares = [fit(function, hinges, interval, norm="squares") for hinges in (1, 3, 8)]
    assert all(b.rms_error <= a.rms_error * 1.0001 for a, b in itertools.pairwise(squares))
    # Each norm is best at what it minimises.
    for uniform, square in zip(fits, squares, strict=True):
        assert uniform.max_error <= square.max_error * 1.0001
        assert square.rms_error <= uniform.rms_error * 1.0001


def test_error_falls_with_the_square_of_the_number_of_segments() -> None:
    errors = [fit(torch.exp, hinges, (-1.0, 1.0)).max_error for hinges in (8, 18)]
    assert errors[0] / errors[1] == pytest.approx((20 / 10) ** 2, rel=0.02)


@pytest.mark.parametrize("plain", [True, False])
def test_least_squares_beats_every_grid_of_knots(plain: bool) -> None:
    function, (low, high) = FUNCTIONS["gelu" if plain else "tanh"]
    found = fit(function, 2 if plain else 1, (low, high), norm="squares")
    x = torch.linspace(low, high, 501, dtype=torch.float64)
    y = function(x) - x.clamp(min=0) if plain else function(x)
    places = torch.linspace(low, high, 32, dtype=torch.float64)[1:-1]
    brute = min(
        float((y - c @ torch.linalg.lstsq(c, y[:, None]).solution[:, 0]).square().mean().sqrt())
        for c in (
            columns_of(x, torch.stack(knots), plain) for knots in itertools.combinations(places, 2)
        )
    )
    assert found.rms_error <= brute * 1.001


@pytest.mark.parametrize("norm", ["uniform", "squares"])
@pytest.mark.parametrize(
    "function",
    [F.relu, F.leaky_relu, F.hardtanh, F.relu6, torch.abs, lambda x: 3 * x - 1, torch.zeros_like],
)
def test_piecewise_linear_functions_are_found_exactly(function: Function, norm: str) -> None:
    found = fit(function, 3, (-3.3, 8.1), norm=norm)
    assert found.max_error < 1e-9
    assert found.slope.shape == found.offset.shape == (3,)
    x = torch.linspace(-3.3, 8.1, 999)
    torch.testing.assert_close(found.module()(x).detach(), function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_module_has_the_stated_errors(name: str) -> None:
    function, interval = FUNCTIONS[name]
    found = fit(function, 5, interval)
    unit = found.module((2, 3), unit_dim=-2, dtype=torch.float64)
    assert isinstance(unit, APL if name in ("gelu", "silu", "softplus") else AffineAPL)
    x = torch.linspace(*interval, 5001, dtype=torch.float64)
    error = unit(x[:, None, None].expand(-1, 2, 3)).detach() - function(x)[:, None, None]
    assert float(error.abs().max()) == pytest.approx(found.max_error, rel=5e-3)
    assert float(error.square().mean().sqrt()) == pytest.approx(found.rms_error, rel=1e-3)
    far = torch.tensor([interval[1] + 1e3], dtype=torch.float64)
    if isinstance(unit, APL):
        assert torch.equal(unit(far.expand(1, 2, 3)), far.expand(1, 2, 3))


def test_affine_may_be_asked_for_or_refused() -> None:
    plain, affine = (fit(F.gelu, 2, (-1.0, 1.0), affine=choice) for choice in (False, True))
    assert isinstance(plain.module(), APL)
    assert isinstance(affine.module(), AffineAPL)
    assert affine.max_error < plain.max_error


def test_fit_is_deterministic_and_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    first, second = (fit(torch.sin, 4, (-2.0, 3.0), norm="squares") for _ in range(2))
    assert torch.equal(first.slope, second.slope)
    assert torch.equal(first.offset, second.offset)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (torch.sqrt, {}, "function must be finite on the interval, it is not at -1"),
        (lambda x: x.sum(), {}, "same shape"),
        (lambda x: 1.0, {}, "gave float"),
        (torch.sin, {"num_hinges": 0}, "num_hinges must be at least 1, got 0"),
        (torch.sin, {"interval": (1.0, 1.0)}, "interval must be finite and ascending"),
        (torch.sin, {"interval": (0.0, math.inf)}, "interval must be finite and ascending"),
        (torch.sin, {"interval": (math.nan, 1.0)}, "interval must be finite and ascending"),
        (torch.sin, {"norm": "l1"}, "norm must be"),
        (torch.sin, {"tolerance": -1.0}, "tolerance must not be negative"),
        (torch.sin, {"tolerance": 1e-4}, "num_hinges=2 are too few for tolerance=0.0001"),
    ],
)
def test_bad_arguments_are_named(function, options, message) -> None:
    arguments = {"num_hinges": 2, "interval": (-1.0, 3.0), **options}
    with pytest.raises(ValueError, match=message):
        fit(function, **arguments)


def test_fewest_links_pass_all_gates_in_order() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        n = int(torch.randint(2, 40, (), generator=generator))
        x = torch.rand(n, generator=generator).double().sort().values.add(torch.arange(n)).tolist()
        y = torch.randn(n, generator=generator).double().tolist()
        lower, upper = [v - 0.4 for v in y], [v + 0.4 for v in y]
        lines = fewest_links(x, lower, upper, limit=n)
        assert lines is not None
        crossings = [(f[1] - g[1]) / (g[0] - f[0]) for f, g in itertools.pairwise(lines)]
        assert crossings == sorted(crossings)
        for position, low, high in zip(x, lower, upper, strict=True):
            line = lines[sum(crossing < position for crossing in crossings)]
            assert low - 1e-9 <= line.slope * position + line.intercept <= high + 1e-9
        assert fewest_links(x, lower, upper, limit=len(lines) - 1) is None


def test_links_cross_inside_the_tube_also_where_they_touch_its_corners() -> None:
    numbers = random.Random(0)
    for _ in range(500):
        n = numbers.randint(3, 14)
        width = numbers.choice((0.25, 0.5, 1.0, 1.5, 2.0))
        y = [numbers.randint(-6, 6) / 2 for _ in range(n)]
        lower = [v - width * numbers.choice((0.5, 1.0)) for v in y]
        upper = [v + width for v in y]
        lines = fewest_links(range(n), lower, upper, limit=n)
        assert lines is not None
        for f, g in itertools.pairwise(lines):
            crossing = (f.intercept - g.intercept) / (g.slope - f.slope)
            gate = min(int(crossing), n - 2)
            low, high = (
                ends[gate] + (crossing - gate) * (ends[gate + 1] - ends[gate])
                for ends in (lower, upper)
            )
            value = f.slope * crossing + f.intercept
            assert low - 1e-6 <= value <= high + 1e-6


def test_fewest_links_begin_with_a_given_line() -> None:
    lines = fewest_links(
        [0.0, 1.0, 2.0], [-1.0, -1.0, 4.0], [1.0, 1.0, 5.0], limit=3, start=Line(0.0, 0.0)
    )
    assert lines is not None
    assert len(lines) == 2
    assert lines[0] == Line(0.0, 0.0)


def test_functions_may_work_in_place() -> None:
    found = fit(lambda x: x.tanh_(), 4, (-3.0, 3.0))
    assert found.max_error == fit(torch.tanh, 4, (-3.0, 3.0)).max_error


@pytest.mark.parametrize(
    "function", [F.gelu, F.silu, torch.tanh, F.hardswish, torch.sin, torch.abs]
)
@pytest.mark.parametrize("interval", [(-1.0, 0.5), (-23.0, 16.0)])
def test_as_few_hinges_as_the_tolerance_allows(
    function: Function, interval: tuple[float, float]
) -> None:
    tolerance = 0.02
    result = fit(function, None, interval, tolerance=tolerance)
    assert result.max_error <= tolerance
    # The value at 0 is kept.
    zero = torch.zeros(1, dtype=torch.float64)
    assert float((result.form.evaluate(zero) - function(zero)).abs()) < 1e-5 * tolerance
    hinges = result.slope.numel()
    # The samples take a twentieth of the tolerance.
    assert hinges == 1 or fit(function, hinges - 1, interval).max_error > 0.93 * tolerance


def test_a_tolerance_in_place_of_hinges_is_checked() -> None:
    with pytest.raises(ValueError, match=r"needs a tolerance above 0 .* got tolerance=None"):
        fit(F.gelu, None, (-1.0, 1.0))
    with pytest.raises(
        ValueError, match=r"needs a tolerance above 0 and norm='uniform', got .*squares"
    ):
        fit(F.gelu, None, (-1.0, 1.0), tolerance=0.1, norm="squares")
    with pytest.raises(ValueError, match="tolerance=1e-05 takes more than 128 hinges on"):
        fit(torch.sin, None, (-9.0, 9.0), tolerance=1e-5)


def test_a_coarser_fit_is_nearly_as_good() -> None:
    best = fit(F.silu, 8, (-5.0, 5.0))
    coarse = fit(F.silu, 8, (-5.0, 5.0), accuracy=0.01)
    assert best.max_error < coarse.max_error < 1.015 * best.max_error
    with pytest.raises(ValueError, match="accuracy must be between 0 and 1, got 0"):
        fit(torch.tanh, 2, (-1.0, 1.0), accuracy=0)


@pytest.mark.parametrize("bounds", [(0.0, 2.0), (-3.0, -1.0), (-1.5, 0.5)])
@pytest.mark.parametrize("place", [-5.0, 0.5, 5.0])
def test_knots_stay_inside_and_apart(place: float, bounds: tuple[float, float]) -> None:
    knots = _apart(torch.full((4,), place, dtype=torch.float64), bounds)
    assert knots[0] > bounds[0]
    assert knots[-1] < bounds[1]
    # A thousandth of an even share, but for rounding.
    assert (knots.diff() >= 0.999e-3 * 2 / 4).all()


def test_knots_start_evenly_and_where_the_function_bends() -> None:
    x = torch.linspace(-3.0, 1.0, 401, dtype=torch.float64)
    *by_curvature, even = starts(x, torch.tanh(10 * (x - 0.5)), 4)
    assert torch.allclose(even, torch.tensor([-2.5, -1.5, -0.5, 0.5], dtype=torch.float64))
    assert len(by_curvature) == 4
    for knots in by_curvature:
        # It bends around 0.5; of the rest of the interval one knot is enough.
        assert (abs(knots - 0.5) < 0.4).sum() >= 3
        assert (knots.diff() >= 0).all()
    assert not torch.equal(by_curvature[1], by_curvature[2])


def test_knots_start_as_dense_as_the_curvature_demands() -> None:
    # Curvature x, to the power 0.4: the share of the density left of x is x^1.4.
    x = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64)
    by_curvature, *irregular = starts(x, x**3, 4)[:-1]
    even = (torch.arange(4, dtype=torch.float64) + 0.5) / 4
    torch.testing.assert_close(by_curvature, even ** (1 / 1.4), rtol=0, atol=0.005)
    for shift, knots in enumerate(irregular):
        golden = (torch.arange(1, 5, dtype=torch.float64) + shift) * (math.sqrt(5) - 1) / 2
        torch.testing.assert_close(knots**1.4, golden.frac().sort().values, rtol=0, atol=0.005)


@pytest.mark.parametrize("size", [2.0**-30, 2.0**30])
def test_knots_do_not_depend_on_the_size_of_the_function(size: float) -> None:
    x = torch.linspace(-4.0, 4.0, 401, dtype=torch.float64)

    def basis(knots: Tensor) -> tuple[Tensor, Tensor]:
        return columns_of(x, knots, plain=False), (knots > x[:, None]).double()

    def found(y: Tensor) -> Tensor:
        start = torch.tensor([-3.5, 3.5], dtype=torch.float64)
        return best_knots(x, y, [start], basis, (-4.0, 4.0))

    # Powers of two change no rounding.
    assert torch.equal(found(torch.tanh(x)), found(size * torch.tanh(x)))
    # They have moved to where a symmetric curve wants them.
    assert found(torch.tanh(x)).tolist() == pytest.approx([-1.1, 1.1], abs=0.3)


JUMPS: list[tuple[Function, tuple[float, float], float]] = [
    (F.hardshrink, (-2.0, 2.0), 0.5),
    (torch.sign, (-2.0, 2.0), 0.0),
    (torch.round, (0.3, 1.2), 0.5),
    (lambda x: torch.where(x < 0.7, 0.0, x), (-3.3, 8.1), 0.7),
    # Far smaller than what the function does elsewhere between two samples.
    (lambda x: torch.exp(x) + (x > -1) * 30, (-2.0, 10.0), -1.0),
    (torch.tan, (1.0, 2.0), math.pi / 2),
]


@pytest.mark.parametrize(("function", "interval", "place"), JUMPS)
@pytest.mark.parametrize(
    "options",
    [
        {"num_hinges": None, "tolerance": 0.01},
        {"num_hinges": 8},
        {"num_hinges": 8, "tolerance": 0.01},
        {"num_hinges": 3, "norm": "squares"},
    ],
    ids=str,
)
def test_functions_that_jump_are_refused(
    function: Function, interval: tuple[float, float], place: float, options
) -> None:
    with pytest.raises(ValueError, match=r"function is not continuous near x = \S+: ") as error:
        fit(function, interval=interval, **options)
    stated = float(str(error.value).split("x = ")[1].split(":")[0])
    # At a jump from 0 to 0 both sides are near enough.
    assert abs(stated) == pytest.approx(abs(place), abs=1e-5)


STEEP: list[Function] = [
    lambda x: 1e3 * F.hardsigmoid(x),
    lambda x: F.hardsigmoid(1e3 * x),
    lambda x: torch.tanh(50 * x),
    lambda x: torch.tanh(1e6 * (x - 0.123)),
    lambda x: x.abs().sqrt(),
    # In steps that are rounding.
    lambda x: torch.tanh(50 * x.float()),
    lambda x: F.silu(x.float()).to(x.dtype),
]


@pytest.mark.parametrize("function", STEEP)
@pytest.mark.parametrize("tolerance", [None, 0.01])
def test_steep_functions_are_no_jumps(function: Function, tolerance: float | None) -> None:
    found = fit(function, None if tolerance else 12, (-2.0, 3.0), tolerance=tolerance)
    assert found.max_error < (tolerance or 0.1 * 1e3)


def test_the_steps_of_half_precision_are_no_jumps() -> None:
    rounded, exact = (
        fit(function, 8, (-2.0, 3.0)) for function in (lambda x: F.gelu(x.half()).to(x), F.gelu)
    )
    assert rounded.max_error == pytest.approx(exact.max_error, abs=2e-3)


def test_a_jump_within_the_tolerance_is_none() -> None:
    def stairs(x: Tensor) -> Tensor:
        return (x * 30).round() / 30

    assert fit(stairs, None, (-1.0, 1.0), tolerance=0.03).max_error <= 0.03
    with pytest.raises(ValueError, match="not continuous"):
        fit(stairs, None, (-1.0, 1.0), tolerance=0.003)


@pytest.mark.parametrize(
    "options",
    [
        {"num_hinges": None, "tolerance": 0.01},
        {"num_hinges": 3},
        {"num_hinges": 3, "norm": "squares"},
    ],
    ids=str,
)
@pytest.mark.parametrize("function", [F.gelu, torch.tanh])
def test_another_default_device_makes_no_difference(function: Function, options) -> None:
    expected = fit(function, interval=(-3.0, 3.0), **options)
    with torch.device("meta"):
        found = fit(function, interval=(-3.0, 3.0), **options)
    assert found.max_error == expected.max_error
    assert torch.equal(found.slope, expected.slope)
