from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

from torchapl import APL, curves, init
from torchapl.curves import AffineAPL, observe_ranges, simplify
from torchapl.curves.reduce import reduce_hinges

deterministic = settings(derandomize=True, max_examples=60, deadline=None, database=None)


def unit_of(slope: list[list[float]], offset: list[list[float]], **options: object) -> APL:
    unit = APL(len(slope[0]), len(slope), dtype=torch.float64, **options)
    with torch.no_grad():
        unit.slope.copy_(torch.tensor(slope))
        unit.offset.copy_(torch.tensor(offset))
    return unit


def random_layer(seed: int, hinges: int) -> APL:
    def start(slope: Tensor, offset: Tensor) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            # Many nearly equal offsets, small slopes and slopes of opposite sign.
            slope.copy_(torch.randn(slope.shape, generator=generator).round(decimals=1))
            slope.mul_(10.0 ** -torch.randint(0, 5, slope.shape, generator=generator))
            offset.copy_(torch.randn(offset.shape, generator=generator).round(decimals=1))
            offset.add_(1e-4 * torch.randn(offset.shape, generator=generator))

    return APL(40, hinges, init=start, dtype=torch.float64)


@deterministic
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.sampled_from([0.0, 1e-4, 0.01, 0.3]),
    st.sampled_from([None, (-1.0, 2.0), (0.5, 3.0), (-3.0, -0.5)]),
)
def test_curves_move_within_the_tolerance(
    seed: int, hinges: int, tolerance: float, bounds: tuple[float, float] | None
) -> None:
    unit = random_layer(seed, hinges)
    result = simplify(unit, tolerance, ranges=bounds)
    low, high = bounds or (-50.0, 50.0)
    x = torch.linspace(low, high, 2001, dtype=torch.float64)[:, None].expand(-1, 40)
    change = (result.model(x) - unit(x)).abs().max()
    assert change <= tolerance + 1e-12
    (layer,) = result.layers
    assert change <= layer.error + 1e-12 <= tolerance + 1e-9
    assert layer.parameters_after <= layer.parameters_before == 80 * hinges
    assert layer.parameters_after == sum(p.numel() for p in result.model.parameters())


def test_coincident_hinges_merge_and_useless_ones_go() -> None:
    unit = unit_of(
        [[0.5, 0.2], [0.25, 0.0], [0.0, -0.7], [0.125, 0.3]],
        [[-1.0, 0.3], [-1.0, 2.0], [4.0, 0.5], [-1.0, 0.5]],
    )
    result = simplify(unit, 0.0)
    assert isinstance(result.model, APL)
    assert result.model.num_hinges == 2
    assert curves.distance(unit, result.model).max() < 1e-12
    # The layer has the hinges that its most demanding unit needs; the other one is filled up.
    assert (result.model.slope != 0).sum(0).tolist() == [1, 2]


def test_hinges_that_no_input_reaches_go() -> None:
    unit = unit_of([[0.5], [-0.3], [0.7]], [[-4.0], [0.5], [-3.0]])
    result = simplify(unit, 1e-9, ranges=(-2.0, 5.0))
    assert isinstance(result.model, APL)
    assert result.model.num_hinges == 1
    assert curves.distance(unit, result.model, interval=(-2.0, 5.0)).max() < 1e-12
    assert simplify(unit, 1e-9).layers[0].hinges_after == 3
    # Right of all inputs two hinges are one straight line.
    beyond = unit_of([[0.5], [-0.2]], [[7.0], [6.0]])
    assert simplify(beyond, 1e-9, ranges=(-2.0, 5.0)).layers[0].hinges_after == 1


def test_plain_functions_are_recognised() -> None:
    relu, leaky = APL(8, 3, init=init.relu_), APL((8, 4, 4), 3, init=init.leaky_)
    assert isinstance(simplify(relu, 0.0).model, nn.ReLU)
    found = simplify(leaky, 0.0).model
    assert isinstance(found, nn.LeakyReLU)
    assert found.negative_slope == 0.25
    prelu = unit_of([[0.5, -0.25], [0.0, 0.0]], [[0.0, 1e-9], [1.0, 0.7]])
    found = simplify(prelu, 1e-6).model
    assert isinstance(found, nn.PReLU)
    assert found.weight.tolist() == [-0.5, 0.25]
    x = torch.randn(50, 2, dtype=torch.float64)
    torch.testing.assert_close(found(x), prelu(x), rtol=0, atol=1e-6)
    last_axis = unit_of([[0.5, -0.25]], [[0.0, 0.0]], unit_dim=-1)
    assert isinstance(simplify(last_axis, 0.0).model, APL)


def test_single_hinges_are_not_moved_to_zero_beyond_the_tolerance() -> None:
    unit = unit_of([[0.5, -0.25]], [[0.0, 0.1]])
    assert isinstance(simplify(unit, 1e-3).model, APL)
    assert isinstance(simplify(unit, 0.03).model, nn.PReLU)


def test_what_was_spent_counts_when_a_last_hinge_moves_to_zero() -> None:
    # 0.0425 for the hinge that goes leave too little for the other one, which is 0.09 at 0.
    unit = unit_of([[0.0085], [-0.25]], [[-5.0], [0.36]])
    simple = simplify(unit, 0.1, ranges=(-10.0, 10.0)).model
    assert isinstance(simple, APL)
    assert simple.num_hinges == 1
    x = torch.linspace(-10, 10, 1001, dtype=torch.float64)[:, None]
    assert (simple(x) - unit(x)).abs().max() <= 0.1


def test_hinges_right_of_all_inputs_merge_at_the_zero_of_their_line() -> None:
    # Left of 1 they are 0.5 (x - 0.8): one hinge at 0.8 is wrong by 0.1 at most, at 1.
    unit = unit_of([[-1.0], [0.5]], [[2.0], [3.2]])
    simple = simplify(unit, 0.11, ranges=(-3.0, 1.0)).model
    assert isinstance(simple, APL)
    assert simple.num_hinges == 1
    x = torch.linspace(-3, 1, 1001, dtype=torch.float64)[:, None]
    assert (simple(x) - unit(x)).abs().max() <= 0.11


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        APL(4, 3, init=init.relu_),
        nn.BatchNorm2d(4),
        nn.Sequential(nn.Conv2d(4, 4, 3), APL((4, 4, 4), 3, init=init.authors_)),
        nn.Flatten(),
        nn.Linear(64, 5),
        curves.fit(torch.tanh, 4, (-3.0, 3.0)).module(5),
    ).eval()


def test_a_model_is_copied_and_reported() -> None:
    net = network()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    batches = [torch.randn(16, 3, 8, 8) for _ in range(3)]
    ranges = observe_ranges(net, batches)
    result = simplify(net, 1e-3, ranges=ranges, example_inputs=batches[0])
    assert isinstance(result.model[1], nn.ReLU)
    assert isinstance(result.model[6], AffineAPL)
    for x in batches:
        torch.testing.assert_close(result.model(x), net(x), rtol=0, atol=0.05)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    counts = [sum(p.numel() for p in m.parameters()) for m in (net, result.model)]
    assert result.parameters_saved == counts[0] - counts[1] > 0
    assert [layer.name for layer in result.layers] == ["1", "3.1", "6"]
    text = str(result)
    assert f"{result.parameters_saved} parameters saved" in text
    assert "ReLU" in text
    assert "forward pass" in text
    assert result.seconds_before is not None
    assert result.output_error is not None
    with torch.no_grad():
        moved = (net.eval()(batches[0]) - result.model.eval()(batches[0])).abs().max().item()
    assert 0 < moved == pytest.approx(result.output_error, rel=1e-5)
    assert f"outputs moved by {moved:.2g}, the largest is " in str(result)


def test_ranges_are_the_extremes_of_each_unit() -> None:
    net = network()
    batches = [torch.randn(8, 3, 8, 8) for _ in range(2)]
    ranges = observe_ranges(net, batches)
    z = net[0](torch.cat(batches)).detach()
    torch.testing.assert_close(ranges["1"][0], z.amin((0, 2, 3)))
    torch.testing.assert_close(ranges["1"][1], z.amax((0, 2, 3)))
    assert ranges["3.1"][0].shape == (4, 4, 4)
    assert set(ranges) == {"1", "3.1", "6"}


def test_one_unit_under_two_names_stays_one() -> None:
    unit = APL(4, 3)
    result = simplify(nn.ModuleDict({"a": unit, "b": unit}), 0.0)
    assert isinstance(result.model, nn.ModuleDict)
    assert result.model["a"] is result.model["b"]
    assert len(result.layers) == 1


def test_affine_units_keep_within_the_tolerance() -> None:
    unit = curves.fit(torch.sigmoid, 9, (-8.0, 8.0)).module(dtype=torch.float64)
    result = simplify(unit, 0.05)
    assert isinstance(result.model, AffineAPL)
    assert result.model.unit.num_hinges < 9
    assert curves.distance(unit, result.model, interval=(-30.0, 30.0)) <= 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tolerance": -1.0}, "tolerance must be a number of at least 0, got -1"),
        ({"tolerance": float("nan")}, "tolerance must be a number"),
        ({"tolerance": 0.0, "ranges": {"x": (0.0, 1.0)}}, "ranges names .'x'."),
        ({"tolerance": 0.0, "ranges": (1.0, 0.0)}, "must ascend"),
        ({"tolerance": 0.0, "ranges": (float("nan"), 0.0)}, "must ascend and not be NaN"),
        ({"tolerance": 0.0, "ranges": (torch.zeros(3), 1.0)}, r"tensors of shape \(2,\)"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simplify(APL(2), **arguments)


def test_units_that_are_not_finite_are_named() -> None:
    net = network()
    net[3][1].slope.data[0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"layer '3.1' must be finite"):
        simplify(net, 0.0)


def test_inputs_by_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.act = nn.Linear(4, 8), APL(8, init=init.relu_)

        def forward(self, *, x: Tensor) -> Tensor:
            result: Tensor = self.act(self.linear(x))
            return result

    net, batch = Named(), {"x": torch.randn(16, 4)}
    ranges = observe_ranges(net, [batch])
    assert ranges["act"][0].shape == (8,)
    assert isinstance(simplify(net, 0.0, ranges=ranges, example_inputs=batch).model.act, nn.ReLU)
    assert isinstance(curves.to_relu_network(net, batch).act, nn.Sequential)


@pytest.mark.parametrize("unit_shape", [(), 1, 3], ids=str)
def test_a_leaky_layer_of_any_size_becomes_a_leaky_relu(unit_shape: int | tuple[int, ...]) -> None:
    found = simplify(APL(unit_shape, 4, init="leaky"), 1e-6).model
    assert isinstance(found, nn.LeakyReLU)
    assert found.negative_slope == 0.25


def reduced(
    slope: list[float], offset: list[float], tolerance: float, *, low: float, high: float
) -> tuple[list[float], list[float], float]:
    a, b, spent = reduce_hinges(
        *(torch.tensor(values, dtype=torch.float64)[:, None] for values in (slope, offset)),
        *(torch.tensor([value], dtype=torch.float64) for value in (low, high)),
        tolerance,
    )
    left = a[:, 0] != 0
    return a[left, 0].tolist(), b[left, 0].tolist(), float(spent)


def test_what_steps_cost_adds_up() -> None:
    # Two pairs join at a cost of 2/15 each; what they leave would cost more than is left.
    slopes, hinges, spent = reduced(
        [0.4, 0.2, 0.1, 0.05], [1.0, 2.0, 4.0, 8.0], 0.3, low=-torch.inf, high=torch.inf
    )
    assert slopes == pytest.approx([0.6, 0.15])
    assert hinges == pytest.approx([4 / 3, 16 / 3])
    assert spent == pytest.approx(4 / 15)


def test_a_hinge_one_above_the_inputs_is_worth_its_slope() -> None:
    assert reduced([0.5], [1.0], 0.4, low=0.0, high=2.0) == ([0.5], [1.0], 0.0)
    assert reduced([0.5], [1.0], 0.5, low=0.0, high=2.0) == ([], [], 0.5)


def test_hinges_at_the_last_input_join_where_their_line_is_zero() -> None:
    # -(1 - x) / 2 + (3 - x) = (5 - x) / 2 for all x <= 1.
    assert reduced([-0.5, 1.0], [1.0, 3.0], 0.0, low=-2.0, high=1.0) == ([0.5], [5.0], 0.0)


def test_opposite_slopes_join_between_their_hinges() -> None:
    slopes, hinges, _ = reduced([1.0, -0.5], [1.0, 3.0], 1.0, low=-torch.inf, high=torch.inf)
    assert (slopes, hinges) == ([0.5], [1.0])


def test_the_tolerance_is_that_of_the_scaled_curve() -> None:
    unit = AffineAPL(num_hinges=1, scale=4.0, dtype=torch.float64)
    with torch.no_grad():
        unit.unit.slope.fill_(0.2)
        unit.unit.offset.fill_(1.0)
    (kept,) = simplify(unit, tolerance=0.4).layers
    assert kept.error == 0
    (moved,) = simplify(unit, tolerance=0.9).layers
    assert moved.error == pytest.approx(0.8)


def test_the_table_is_aligned_without_spaces_at_its_ends() -> None:
    lines = str(simplify(APL(2, 3, init="leaky"), 1e-6)).splitlines()
    # A unit on its own has no name: its column is as wide as the title.
    assert lines == [
        "layer  became     hinges  parameters  error",
        "       LeakyReLU  3 -> 0  12 -> 0     0",
        "12 parameters saved",
    ]


def test_another_default_device_makes_no_difference() -> None:
    unit = random_layer(0, 4)
    ranges = (-2.0, torch.full((40,), 2.0))
    expected = simplify(unit, 0.1, ranges=ranges)
    with torch.device("meta"):
        found = simplify(unit, 0.1, ranges=ranges)
    assert found.layers == expected.layers
    assert torch.equal(found.model.slope, expected.model.slope)


@pytest.mark.parametrize("affine", [False, True])
def test_parametrised_units_become_plain_ones(affine: bool) -> None:
    unit = AffineAPL(4, 3, init="authors", scale=2.0) if affine else APL(4, 3, init="authors")
    inner = unit.unit if isinstance(unit, AffineAPL) else unit
    parametrize.register_parametrization(inner, "slope", nn.Tanh())
    simple = simplify(unit, 0.0).model
    x = torch.randn(50, 4)
    torch.testing.assert_close(simple(x), unit(x))
    assert not parametrize.is_parametrized(simple.unit if affine else simple)
    assert all(parameter.requires_grad for parameter in simple.parameters())
    assert parametrize.is_parametrized(inner)


def test_a_layer_without_units() -> None:
    result = simplify(nn.Sequential(APL(0), AffineAPL((2, 0), scale=2.0)), 0.1)
    assert [layer.became for layer in result.layers] == ["ReLU", "AffineAPL"]
    assert result.model[1](torch.zeros(5, 2, 0)).shape == (5, 2, 0)
