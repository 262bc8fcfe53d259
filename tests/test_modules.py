from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import torchapl
from torchapl import APL, LazyAPL, apl
from torchapl.modules import AffineAPL


@pytest.mark.parametrize(
    ("unit_shape", "shape", "unit_dim"),
    [
        (3, (2, 3, 4), 1),
        ((3,), (2, 3), 1),
        ((3, 4), (2, 3, 4), 1),
        ((), (2, 5), 1),
        (7, (2, 3, 7), -1),
    ],
)
def test_module_is_the_function(unit_shape: object, shape: tuple[int, ...], unit_dim: int) -> None:
    unit = APL(unit_shape, 3, unit_dim=unit_dim, init=torchapl.init.authors_)
    x = torch.randn(shape)
    assert torch.equal(unit(x), apl(x, unit.slope, unit.offset, unit_dim=unit_dim))
    assert unit.num_hinges == 3
    assert unit.unit_shape == ((unit_shape,) if isinstance(unit_shape, int) else unit_shape)


def test_repr_shows_what_matters() -> None:
    assert repr(APL((3, 4), 5, unit_dim=2)) == "APL((3, 4), num_hinges=5, unit_dim=2)"
    assert repr(LazyAPL(5, "unit")) == "LazyAPL(num_hinges=5, per='unit', unit_dim=1)"


def test_repr_of_an_affine_unit_also_without_values() -> None:
    numbers = "scale=2, shift=0, skip=-0.5, center=0"
    assert numbers in repr(AffineAPL(8, scale=2.0, skip=-0.5))
    assert "scale=?, shift=?, skip=?, center=?" in repr(AffineAPL(8, device="meta"))


def test_device_and_dtype() -> None:
    unit = APL(4, device="meta", dtype=torch.bfloat16)
    assert unit.slope.is_meta
    assert unit.offset.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "start",
    [
        torchapl.init.authors_,
        torchapl.init.relu_,
        torchapl.init.leaky_,
        functools.partial(torchapl.init.piecewise_linear_, knots=[0.0], slopes=[0.1, 1.0]),
    ],
)
def test_every_start_works_without_memory(start: object) -> None:
    with torch.device("meta"):
        unit = APL(4, 3, init=start)
    assert unit.offset.is_meta
    unit.to_empty(device="cpu").reset_parameters()
    assert unit(torch.zeros(2, 4)).isfinite().all()


def test_takes_integers_of_numpy() -> None:
    np = pytest.importorskip("numpy")
    unit = APL(np.int64(3), np.int32(2), unit_dim=np.int64(-1))
    assert repr(unit) == "APL((3,), num_hinges=2, unit_dim=-1)"
    assert repr(APL(np.array([3, 4]))) == "APL((3, 4), num_hinges=8, unit_dim=1)"
    x = torch.randn(2, 3)
    assert torch.equal(apl(x, unit.slope, unit.offset, unit_dim=np.int64(1)), unit(x))


def test_is_one_call_of_a_symbolic_trace() -> None:
    net = nn.Sequential(nn.Linear(3, 4), APL(4))
    traced = torch.fx.symbolic_trace(net)
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [apl]
    x = torch.randn(2, 3)
    assert torch.equal(traced(x), net(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_hinges": 0}, "num_hinges must be at least 1, got 0"),
        ({"num_hinges": -2}, "num_hinges must be at least 1, got -2"),
        ({"unit_shape": (3, -1)}, r"unit_shape must not be negative, got \(3, -1\)"),
        ({"num_hinges": 2.0}, "num_hinges must be an int, got float"),
        ({"unit_shape": (3.5,)}, "unit_shape must be an int or a sequence of ints"),
        ({"unit_shape": 3.5}, "unit_shape must be an int or a sequence of ints, got 3.5"),
        ({"unit_dim": 1.0}, "unit_dim must be an int, got float"),
    ],
)
def test_refuses_bad_sizes(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        APL(**arguments)


def test_reset_parameters_puts_the_start_back() -> None:
    unit = APL(3)
    start = copy.deepcopy(unit.state_dict())
    with torch.no_grad():
        unit.slope.add_(1)
        unit.offset.add_(1)
    unit.reset_parameters()
    assert torch.equal(unit.slope, start["slope"])
    assert torch.equal(unit.offset, start["offset"])


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda unit: pickle.loads(pickle.dumps(unit))]
)
def test_copies_are_equal_and_apart(duplicate: object) -> None:
    unit = APL(3, init=functools.partial(torchapl.init.leaky_, negative_slope=0.1))
    twin = duplicate(unit)
    x = torch.randn(5, 3)
    assert torch.equal(twin(x), unit(x))
    assert twin.slope is not unit.slope


def test_state_dict_round_trip() -> None:
    source, target = (APL((2, 3), 4, init=torchapl.init.authors_) for _ in range(2))
    target.load_state_dict(source.state_dict(), strict=True)
    x = torch.randn(5, 2, 3)
    assert torch.equal(source(x), target(x))


class Double(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return 2 * value


def test_parametrised_and_pruned_slopes_are_used() -> None:
    x = torch.randn(3, 4)
    unit = torchapl.APL(4)
    doubled = torchapl.apl(x, 2 * unit.slope, unit.offset)
    parametrize.register_parametrization(unit, "slope", Double())
    assert torch.equal(unit(x), doubled)
    unit = torchapl.APL(4)
    prune.l1_unstructured(unit, "slope", 1.0)
    assert torch.equal(unit(x), torch.relu(x))


def test_frozen_curves_get_no_gradient_and_pass_the_inputs() -> None:
    unit = APL(3).requires_grad_(False)
    x = torch.randn(5, 3, requires_grad=True)
    unit(x).sum().backward()
    assert unit.slope.grad is None
    assert x.grad is not None


def test_channels_last_stays() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), APL(4), nn.Conv2d(4, 2, 3))
    net = net.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    hidden = net[:2](x)
    assert hidden.is_contiguous(memory_format=torch.channels_last)
    assert APL((4, 6, 6)).to(memory_format=torch.channels_last)(hidden).stride() == hidden.stride()


@pytest.mark.parametrize("per", ["unit", "channel", "layer"])
def test_lazy_takes_the_shape_of_its_first_input(per: str) -> None:
    unit = LazyAPL(3, per, unit_dim=1)
    x = torch.randn(2, 4, 5)
    y = unit(x)
    assert type(unit) is APL
    assert unit.unit_shape == {"unit": (4, 5), "channel": (4,), "layer": ()}[per]
    assert torch.equal(y, apl(x, unit.slope, unit.offset))


@pytest.mark.parametrize("shape", [(), (5,)])
def test_lazy_unit_of_a_layer_takes_any_shape(shape: tuple[int, ...]) -> None:
    assert LazyAPL(per="layer")(torch.randn(shape)).shape == shape


def test_lazy_on_the_last_axis() -> None:
    unit = LazyAPL(2, "channel", unit_dim=-1)
    unit(torch.randn(2, 4, 5))
    assert unit.unit_shape == (5,)


def test_lazy_as_a_factory_without_arguments() -> None:
    def block(act_layer: type[nn.Module]) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), act_layer(), nn.Flatten(), nn.Linear(16, 5), act_layer()
        )

    net = block(functools.partial(LazyAPL, 2))
    net(torch.randn(2, 3, 4, 4)).sum().backward()
    assert [net[1].unit_shape, net[4].unit_shape] == [(4,), (5,)]
    assert net[1].slope.grad is not None


def test_lazy_uses_its_start_once() -> None:
    calls = []

    def start(slope: torch.Tensor, offset: torch.Tensor) -> None:
        calls.append(tuple(slope.shape))
        torchapl.init.relu_(slope, offset)

    unit = LazyAPL(2, init=start)
    unit.reset_parameters()
    unit(torch.randn(2, 3))
    unit(torch.randn(2, 3))
    assert calls == [(2, 3)]


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda unit: pickle.loads(pickle.dumps(unit))]
)
@pytest.mark.parametrize("initialized", [False, True])
def test_lazy_copies(duplicate: object, initialized: bool) -> None:
    unit = LazyAPL(2)
    if initialized:
        unit(torch.randn(2, 3))
    twin = duplicate(unit)
    x = torch.randn(4, 3)
    assert torch.equal(twin(x), unit(x))


def test_lazy_state_dicts_load_both_ways() -> None:
    learned = LazyAPL(2, "unit", unit_dim=1, init=torchapl.init.authors_)
    x = torch.randn(2, 3, 4)
    y = learned(x)

    fresh = LazyAPL(2, "unit", unit_dim=1)
    fresh.load_state_dict(learned.state_dict(), strict=True)
    assert torch.equal(fresh(x), y)
    assert type(fresh) is APL

    still_lazy = LazyAPL(2)
    another = LazyAPL(2)
    another.load_state_dict(still_lazy.state_dict(), strict=True)
    assert another.has_uninitialized_params()


def test_lazy_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="per must be 'unit', 'channel' or 'layer', got 'pixel'"):
        LazyAPL(per="pixel")
    with pytest.raises(ValueError, match="num_hinges must be at least 1"):
        LazyAPL(0)
    with pytest.raises(
        ValueError, match=r"unit_dim=3 is not an axis of an input of shape \(2, 3\)"
    ):
        LazyAPL(unit_dim=3)(torch.randn(2, 3))


def test_autocast_keeps_low_precision_and_float32_parameters() -> None:
    net = nn.Sequential(nn.Linear(4, 8), APL(8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(torch.randn(16, 4))
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert net[1].slope.grad is not None
    assert net[1].slope.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "start",
    [torchapl.init.authors_, torchapl.init.relu_, torchapl.init.leaky_],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hinges_differ_after_training(start: object, dtype: torch.dtype) -> None:
    unit = APL(64, 5, init=start, dtype=dtype)
    optimizer = torch.optim.SGD(unit.parameters(), lr=0.01)
    for _ in range(20):
        x = torch.randn(256, 64, dtype=dtype)
        loss = (unit(x) - torch.sin(2 * x)).square().mean(0).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hinges = torch.stack([unit.slope, unit.offset], -1).detach()
    for s in range(5):
        for t in range(s):
            assert (hinges[s] != hinges[t]).any(-1).all(), f"hinges {t} and {s} coincide"


def test_the_wrong_axis_is_hard_to_take() -> None:
    x = torch.randn(2, 5, 5)
    with pytest.warns(UserWarning, match="fit two axes"):
        APL(5)(x)
    for unit_dim in (1, -1):
        APL(5, unit_dim=unit_dim)(x)
    with pytest.raises(ValueError, match=r"\(2, 5, 5\) does not tell which axis .* unit_dim=-1"):
        LazyAPL()(x)
    assert LazyAPL(unit_dim=-1)(x).shape == x.shape
    assert LazyAPL(per="layer")(x).shape == x.shape


def test_a_start_has_a_name() -> None:
    x = torch.randn(100, 7)
    assert torch.equal(APL(7, init="relu")(x), x.relu())
    assert torch.equal(APL(7, init="leaky_silu")(x), APL(7)(x))
    lazy = LazyAPL(init="relu")
    assert torch.equal(lazy(x), x.relu())
    with pytest.raises(ValueError, match=r"init must be one of .*'silu', 'gelu', .* got 'rleu'"):
        APL(7, init="rleu")
    with pytest.raises(TypeError, match=r"init must be one of .*'silu', .* or a function .* got 3"):
        APL(7, init=3)


def test_the_slope_of_the_curve_has_the_other_sign() -> None:
    unit = APL(3, 4, init="authors")
    x = torch.tensor([[-1001.0], [-1000.0]]).expand(-1, 3)
    torch.testing.assert_close(unit.left_slope, unit(x).diff(dim=0)[0].detach(), atol=1e-3, rtol=0)
    torch.testing.assert_close(unit.left_slope, torchapl.curves.left_slope(unit))


@pytest.mark.slow
def test_the_doubtful_axis_is_compiled_without_a_break() -> None:
    unit = APL(5)
    compiled = torch.compile(unit, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (7, 5):
        x = torch.randn(2, 5, length)
        expected = torchapl.apl(x, unit.slope, unit.offset, unit_dim=1)
        torch.testing.assert_close(compiled(x), expected)
