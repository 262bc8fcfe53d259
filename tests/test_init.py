from __future__ import annotations

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchapl
from torchapl import APL, LazyAPL, apl, init
from torchapl.form import has_equal_hinges
from torchapl.modules import AffineAPL


def started(
    start: object, hinges: int, *unit_shape: int, dtype: torch.dtype = torch.float32
) -> APL:
    return APL(unit_shape, hinges, init=start, dtype=dtype)


@pytest.mark.parametrize(("hinges", "bound"), [(1, 0.5), (2, 0.5), (5, 0.2), (10, 0.1)])
def test_authors_ranges(hinges: int, bound: float) -> None:
    unit = started(init.authors_, hinges, 20_000)
    assert unit.slope.abs().max() <= bound
    assert unit.slope.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert unit.offset.std().item() == pytest.approx(0.5, rel=0.02)
    assert abs(unit.offset.mean().item()) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_authors_options_and_generator(dtype: torch.dtype) -> None:
    units = []
    state = torch.get_rng_state()
    for _ in range(2):
        generator = torch.Generator().manual_seed(7)
        start = functools.partial(
            init.authors_, slope_bound=0.1, offset_std=2.0, generator=generator
        )
        unit = started(start, 5, 10_000, dtype=dtype)
        assert unit.slope.abs().max() <= torch.tensor(0.1, dtype=dtype)
        assert unit.offset.float().std().item() == pytest.approx(2.0, rel=0.02)
        units.append(unit)
    # In bfloat16 some offsets are drawn again, by the same generator.
    assert torch.equal(units[0].slope, units[1].slope)
    assert torch.equal(units[0].offset, units[1].offset)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "start", [init.authors_, init.relu_, init.leaky_], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("hinges", [1, 2, 3, 5, 10])
def test_no_start_has_equal_hinges(start: object, hinges: int, dtype: torch.dtype) -> None:
    unit = started(start, hinges, 5000, dtype=dtype)
    assert not has_equal_hinges(unit.offset).any()
    assert unit.offset.abs().max() < 4


@pytest.mark.parametrize("hinges", [1, 2, 5])
def test_relu_is_exactly_relu(hinges: int) -> None:
    x = torch.randn(100, 7)
    assert torch.equal(started(init.relu_, hinges, 7)(x), x.relu())


@pytest.mark.parametrize("slope", [0.25, 0.01, -0.05])
def test_leaky_is_exactly_leaky(slope: float) -> None:
    x = torch.randn(100, 7)
    unit = started(functools.partial(init.leaky_, negative_slope=slope), 3, 7)
    assert torch.equal(unit(x), F.leaky_relu(x, slope))


@pytest.mark.parametrize(("hinges", "error"), [(4, 0.07), (5, 0.05), (8, 0.035), (32, 0.035)])
def test_silu_start(hinges: int, error: float) -> None:
    x = torch.linspace(-6, 6, 1001)
    unit = APL(num_hinges=hinges, init=init.silu_)
    assert (unit(x) - F.silu(x)).abs().max() < error
    assert (unit.offset.diff() > 0).all()
    # Far out it stays near 0 on the left and is x on the right.
    far = unit(torch.tensor([-20.0, 20.0]))
    assert far[0].abs() < (0.4 if hinges > 4 else 1.6)
    assert far[1] == 20


@pytest.mark.parametrize("hinges", range(1, 20))
def test_silu_start_has_no_equal_hinges(hinges: int) -> None:
    unit = APL(num_hinges=hinges, init=init.silu_)
    assert not has_equal_hinges(unit.offset[:, None]).any()


def test_default_start_follows_the_axis_of_the_units() -> None:
    x = torch.randn(100, 7)
    assert torch.equal(APL(7)(x), APL(7, 8, init=init.leaky_silu_)(x))
    as_gelu = APL(7, 8, unit_dim=-1, init=init.gelu_)(x)
    assert torch.equal(APL(7, unit_dim=-1)(x), as_gelu)
    assert torch.equal(LazyAPL(unit_dim=-1)(x), as_gelu)
    assert torch.equal(AffineAPL(7, unit_dim=-1)(x), as_gelu)


@pytest.mark.parametrize("leak", [0.0, 0.1, 0.2, 0.5, -0.1])
def test_leaky_silu_start(leak: float) -> None:
    x = torch.linspace(-6, 6, 1001)
    unit = APL(num_hinges=8, init=functools.partial(init.leaky_silu_, negative_slope=leak))
    assert (unit(x) - (leak * x + (1 - leak) * F.silu(x))).abs().max() < 0.035 * (1 - leak)
    # The tails go on as lines: the leak on the left, x itself on the right.
    far = unit(torch.tensor([-200.0, -100.0, 200.0]))
    assert (far[1] - far[0]).item() / 100 == pytest.approx(leak, abs=0.03)
    assert far[2] == 200


@pytest.mark.parametrize(("name", "error"), [("silu", 0.037), ("gelu", 0.023), ("mish", 0.046)])
@pytest.mark.parametrize("hinges", [1, 6, 8, 20])
def test_smooth_starts_are_near_and_distinct(name: str, error: float, hinges: int) -> None:
    unit = started(name, hinges, 3)
    assert not has_equal_hinges(unit.offset).any()
    x = torch.linspace(-6, 6, 1001)[:, None].expand(-1, 3)
    difference = (unit(x) - getattr(F, name)(x)).abs().max().item()
    assert difference <= (error if hinges > 1 else 0.3)


@pytest.mark.parametrize("hinges", [1, 2, 3, 8, 20])
def test_a_start_near_relu_squared(hinges: int) -> None:
    unit = started("squared_relu", hinges, 3, dtype=torch.float64)
    assert not has_equal_hinges(unit.offset).any()
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)[:, None].expand(-1, 3)
    expected = torch.where(x < 1.4, x.clamp(min=0).square() / 1.4, x)
    # A chord of a parabola is off by a quarter of its squared length.
    length = 1.4 / max(1, hinges - 1)
    assert (unit(x) - expected).abs().max() <= length**2 / 4 / 1.4 + 1e-12
    outside = (x <= 0) | (x >= 1.4)
    torch.testing.assert_close(unit(x)[outside], expected[outside])


@pytest.mark.parametrize(
    ("name", "left", "right"), [("silu", -5.0, 5.0), ("gelu", -2.4, 2.4), ("mish", -5.0, 2.4)]
)
@pytest.mark.parametrize("hinges", [5, 6, 9])
def test_smooth_starts_are_best_for_their_hinges(
    name: str, left: float, right: float, hinges: int
) -> None:
    unit = started(name, hinges, dtype=torch.float64)
    offset = unit.offset.detach()
    # Into the tails, at 0, and the rest on both sides, one more on the right if they are odd.
    inner = offset[(offset != left) & (offset != right) & (offset != 0)]
    assert len(inner) == hinges - 3
    assert inner.min() > left
    assert inner.max() < right
    assert (inner > 0).sum() == (hinges - 2) // 2
    # No change of any slope brings it nearer, in squares over the range.
    x = torch.linspace(-6, 6, 2401, dtype=torch.float64)
    missing = getattr(F, name)(x) - unit(x)
    kinks = (offset - x[:, None]).clamp(min=0)
    cosines = kinks.T @ missing / kinks.norm(dim=0) / missing.norm()
    assert cosines.abs().max() < 1e-6


def test_smooth_starts_have_more_hinges_where_the_function_bends_more() -> None:
    unit = started("silu", 19, dtype=torch.float64)
    inner = unit.offset.detach()[1:-1]
    # SiLU bends alike on both sides and most at 0.
    torch.testing.assert_close(inner, -inner.flip(0), atol=0.02, rtol=0)
    gaps = inner[inner >= 0].diff()
    assert gaps[:3].max() < gaps[-2:].min()


def test_piecewise_linear_start() -> None:
    knots, slopes = [-2.0, -0.5, 1.5], [0.5, -1.0, 2.0, 1.0]
    unit = started(functools.partial(init.piecewise_linear_, knots=knots, slopes=slopes), 6, 2)

    def g(x: float) -> float:
        # From the right, where g is the identity, to the left.
        value, place = x if x > 1.5 else 1.5, 1.5
        for low, slope in zip([-0.5, -2.0, -1e9], [2.0, -1.0, 0.5], strict=True):
            if x < place:
                value -= slope * (place - max(x, low))
                place = low
        return value

    x = torch.linspace(-4, 4, 41)
    expected = torch.tensor([g(float(v)) for v in x])
    torch.testing.assert_close(unit(x[:, None].expand(-1, 2)), expected[:, None].expand(-1, 2))
    assert not has_equal_hinges(unit.offset).any()


def test_piecewise_linear_start_needs_enough_hinges() -> None:
    with pytest.raises(ValueError, match="needs 4 hinges, there are 2"):
        started(
            functools.partial(
                init.piecewise_linear_, knots=[-2.0, -0.5, 1.5], slopes=[0.5, -1.0, 2.0, 1.0]
            ),
            2,
            3,
        )


def test_authors_end_where_offsets_cannot_differ() -> None:
    with pytest.raises(ValueError, match="offset_std must be positive to tell 2 hinges apart"):
        init.authors_(torch.empty(2, 3), torch.empty(2, 3), offset_std=0.0)
    many = torch.empty(400, 3, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"400 hinges are too many .* in torch\.bfloat16"):
        init.authors_(many, many.clone())
    init.authors_(torch.empty(1, 3), torch.empty(1, 3), offset_std=0.0)


def test_starts_record_no_gradient() -> None:
    slope, offset = (torch.zeros(2, 3, requires_grad=True) for _ in range(2))
    for start in (init.authors_, init.relu_, init.leaky_, init.silu_, init.leaky_silu_):
        start(slope, offset)
    assert slope.grad_fn is None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.first = APL((4, 6, 6), 5, init="leaky")
        self.second = APL(4, 3, init="leaky")

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.first(self.drop(self.norm(self.conv(image))))
        return self.second(10 * hidden + 100)


@pytest.mark.parametrize("kind", ["tensor", "pair", "mapping"])
def test_align_moves_free_hinges_into_the_range_and_keeps_the_function(kind: str) -> None:
    net = Net()
    images = torch.randn(32, 3, 8, 8)
    batch = {"tensor": images, "pair": (images, torch.zeros(32)), "mapping": {"image": images}}[
        kind
    ]
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    net.norm.eval()
    outputs = copy.deepcopy(net).eval()(images)

    moved = init.align_(net, [batch, batch])

    assert moved == {"first": 4 * 144, "second": 2 * 4}
    # Hinges are put in order: the same terms are added in another one.
    torch.testing.assert_close(copy.deepcopy(net).eval()(images), outputs)
    assert torch.equal(torch.get_rng_state(), state)
    assert net.training
    assert not net.norm.training
    for name, value in net.state_dict().items():
        if not name.endswith(("slope", "offset")):
            assert torch.equal(value, before[name]), name
    assert all((unit.offset.diff(dim=0) > 0).all() for unit in (net.first, net.second))

    with torch.no_grad():
        hidden = net.eval().first(net.norm(net.conv(images)))
        inputs = (10 * hidden + 100).transpose(0, 1).flatten(1)
    low, high = inputs.min(1).values, inputs.max(1).values
    free = net.second.slope == 0
    assert free.sum() == 2 * 4
    inside = (net.second.offset > low) & (net.second.offset < high)
    assert inside[free].all()
    assert not has_equal_hinges(net.second.offset).any()
    assert not has_equal_hinges(net.first.offset).any()
    assert torch.equal(net.second.offset[~free], torch.zeros(4))


@pytest.mark.parametrize("center", [None, 3.0])
def test_align_spreads_evenly_over_two_deviations_within_the_extremes(
    center: float | None,
) -> None:
    # Two deviations reach beyond the extremes of the first column and not of the second.
    wide = torch.cat([torch.linspace(-1, 1, 99), torch.tensor([-50.0, 80.0])])
    x = torch.stack([torch.linspace(-1, 2, 101), wide], dim=1)
    unit = APL(2, 4, init="leaky")
    if center is not None:
        unit = AffineAPL(2, 4, init="leaky", center=center)
    assert init.align_(unit, [x[:30], x[30:]]) == {"": 6}
    mean, reach = x.mean(0), 2 * x.std(0, correction=0)
    low, high = torch.maximum(x.amin(0), mean - reach), torch.minimum(x.amax(0), mean + reach)
    assert low.tolist() == pytest.approx([-1.0, float((mean - reach)[1])])
    inner = unit if isinstance(unit, APL) else unit.unit
    placed = (inner.offset + (center or 0.0))[inner.slope == 0].reshape(3, 2)
    expected = torch.stack([low + (high - low) * share for share in (0.25, 0.5, 0.75)])
    torch.testing.assert_close(placed, expected)


def test_align_leaves_what_it_cannot_place() -> None:
    constant = APL(3, 3, init="leaky")
    before = constant.offset.clone()
    assert init.align_(constant, [torch.full((8, 3), 2.0)]) == {"": 0}
    assert init.align_(constant, [torch.full((8, 3), float("nan"))]) == {"": 0}
    assert init.align_(constant, [torch.empty(0, 3)]) == {"": 0}
    assert init.align_(constant, []) == {"": 0}
    assert torch.equal(constant.offset, before)

    authors = APL(3, 3, init=init.authors_)
    assert init.align_(authors, [torch.randn(8, 3)]) == {"": 0}


def test_align_restores_the_mode_when_the_model_fails() -> None:
    net = Net()
    with pytest.raises(RuntimeError):
        init.align_(net, [torch.randn(2, 5, 8, 8)])
    assert net.training
    assert not net.first._forward_hooks


def test_align_on_the_last_axis_and_lazy_units() -> None:
    net = nn.Sequential(nn.Linear(4, 6), torchapl.LazyAPL(3, unit_dim=-1, init="leaky"))
    assert init.align_(net, [torch.randn(2, 5, 4)]) == {"1": 12}
    assert apl(torch.randn(2, 6), net[1].slope, net[1].offset).shape == (2, 6)


def test_align_sees_every_way_of_calling_a_unit() -> None:
    assert init.align_(APL(4, 2, init="leaky"), [{"input": torch.randn(9, 4)}]) == {"": 4}
    assert init.align_(APL((), 2, init="leaky"), [torch.tensor(1.0), torch.tensor(2.0)]) == {"": 1}
    assert init.align_(APL(0), [torch.randn(9, 0)]) == {"": 0}


def test_align_refuses_what_does_not_fit() -> None:
    with pytest.raises(TypeError, match=r"batches must be an iterable .* got a Tensor"):
        init.align_(APL(4), torch.randn(9, 4))
    with pytest.raises(ValueError, match="unit_dim=2 is not an axis"):
        init.align_(APL(4, unit_dim=2), [torch.randn(9, 4)])
