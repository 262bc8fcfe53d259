from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from torchapl import APL, curves, init
from torchapl.curves import (
    LinearSpline,
    from_prelu,
    from_spline,
    to_maxout,
    to_mlpconv,
    to_prelu,
    to_relu_network,
    to_spline,
)
from torchapl.curves.layers import Hidden, combined, expanded


def tanh_units(*shape: int) -> nn.Module:
    return curves.fit(torch.tanh, 3, (-3.0, 3.0)).module(shape)


def unit(shape: int | tuple[int, ...] = (), hinges: int = 3, unit_dim: int = 1) -> APL:
    return APL(shape, hinges, unit_dim=unit_dim, init=init.authors_)


class Residual(nn.Module):
    """Calls its layers outside of a Sequential, and one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.act = unit(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.conv(self.act(x)))


NETWORKS = {
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), unit(8), nn.Linear(8, 7, bias=False), unit(7, 1), nn.Linear(7, 3)
        ),
        (5, 6),
    ),
    "mlp per layer": (
        lambda: nn.Sequential(nn.Linear(6, 8), unit(), nn.Linear(8, 3), unit(), nn.Dropout()),
        (5, 6),
    ),
    "mlp with dropout": (
        lambda: nn.Sequential(nn.Linear(6, 8), unit(8), nn.Dropout(), nn.Linear(8, 3)),
        (5, 6),
    ),
    "units alone": (lambda: nn.Sequential(unit(6)), (5, 6)),
    "affine units": (
        lambda: nn.Sequential(nn.Linear(6, 8), tanh_units(8), nn.Linear(8, 2), tanh_units()),
        (5, 6),
    ),
    "conv per channel": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, groups=3, bias=False),
            unit(6),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 4, 3, stride=2, padding=1, padding_mode="reflect"),
            tanh_units(4),
            nn.BatchNorm2d(4),
            nn.Flatten(),
            nn.Linear(16, 5),
            unit(5),
            nn.Linear(5, 2),
        ),
        (2, 3, 10, 10),
    ),
    "conv per position": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), unit((4, 5, 6)), nn.Conv2d(4, 2, 3), unit()),
        (2, 3, 7, 8),
    ),
    "residual": (Residual, (2, 4, 5, 5)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), unit(4), unit((4, 7))), (2, 3, 9)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), unit(3), unit()), (2, 2, 4, 4, 3)),
    "rows of maps": (lambda: nn.Sequential(unit((3, 4))), (2, 3, 4, 5)),
    "tokens": (
        lambda: nn.Sequential(nn.Linear(6, 8), unit(8, unit_dim=-1), nn.Linear(8, 6), unit()),
        (2, 5, 6),
    ),
    "heads": (lambda: nn.Sequential(unit((3, 4), unit_dim=-2)), (2, 5, 3, 4)),
    "a unit": (lambda: unit(6), (5, 6)),
}
networks = pytest.mark.parametrize("name", NETWORKS)


def build(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(1)
    make, shape = NETWORKS[name]
    net = make().eval()
    return net.double(), 2 * torch.randn(shape, dtype=torch.float64)


@networks
def test_maxout_is_the_same_network(name: str) -> None:
    net, x = build(name)
    converted = to_maxout(net)
    torch.testing.assert_close(converted(x), net(x))
    assert not has_units(converted)
    assert has_units(net)


@networks
@pytest.mark.parametrize("convert", [to_relu_network, to_mlpconv])
def test_relu_network_is_the_same_network(name: str, convert) -> None:
    net, x = build(name)
    converted = convert(net, x)
    torch.testing.assert_close(converted(x), net(x))
    # Another batch size, and single precision.
    other = torch.cat([x, x + 1])
    torch.testing.assert_close(converted(other), net(other))
    torch.testing.assert_close(
        converted.float()(other.float()), net.float()(other.float()), rtol=1e-4, atol=1e-4
    )
    assert not has_units(converted)
    before = {type(m) for m in net.modules()} - {APL, curves.AffineAPL}
    new = {type(m) for m in converted.modules()} - before
    assert new <= {nn.Linear, nn.Conv2d, nn.ReLU, nn.Sequential, nn.Flatten, nn.Unflatten}


def has_units(net: nn.Module) -> bool:
    return any(isinstance(m, APL) for m in net.modules())


def test_neighbours_in_a_sequential_absorb_the_units() -> None:
    net, x = build("mlp")
    layers = [type(layer) for layer in to_relu_network(net, x)]
    assert layers == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    net, x = build("mlp with dropout")
    assert isinstance(to_relu_network(net, x)[1], nn.ReLU)


def test_mlpconv_ties_its_weights_as_the_paper_does() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 5), unit(4, 2))
    block = to_mlpconv(net, torch.randn(1, 3, 9, 9))
    weight = block[0].weight.detach().unflatten(0, (4, 3))
    for k, sign in enumerate((1, -1, -1)):
        assert torch.equal(weight[:, k], sign * net[0].weight)
    combine = block[1][1].weight.detach()[..., 0, 0]
    assert torch.equal(combine[:, 0], torch.ones(4))
    assert torch.equal(combine[:, 1:].T, net[1].slope)


@pytest.mark.parametrize("name", ["conv per channel", "conv per position", "tokens"])
def test_layers_say_what_they_have(name: str) -> None:
    for module in to_relu_network(*build(name)).modules():
        if isinstance(module, nn.Linear):
            assert (module.out_features, module.in_features) == module.weight.shape
        elif isinstance(module, nn.Conv2d):
            inputs = module.in_channels // module.groups
            assert (module.out_channels, inputs) == module.weight.shape[:2]


def test_conversion_leaves_the_model_alone() -> None:
    net, x = build("conv per channel")
    net.train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    converted = to_relu_network(net, x)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert net.training
    assert converted.training
    net[5].eval()
    assert not to_relu_network(net, x)[5].training
    assert not any(
        m._forward_pre_hooks for m in itertools.chain(net.modules(), converted.modules())
    )


def test_large_matrices_are_refused_with_their_cost() -> None:
    last = unit(100, 2, unit_dim=-1)
    with pytest.raises(ValueError, match=r"has 30,000 weights.*max_parameters=20,000"):
        to_relu_network(last, torch.randn(1, 5, 100), max_parameters=20_000)
    # At axis 1 there is a form whose cost grows with the number of units alone.
    first, x = unit(100, 2), torch.randn(3, 100)
    converted = to_relu_network(first, x, max_parameters=20_000)
    assert sum(p.numel() for p in converted.parameters()) == 100 * (3 + 3 + 3 + 1)
    torch.testing.assert_close(converted(x), first(x))


class Detour(nn.Module):
    """Uses the layers of its Sequential one by one, and the first of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), unit(6), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.body[2](self.body[0](x))


def test_layers_that_are_called_from_elsewhere_stay() -> None:
    net, x = Detour(), torch.randn(5, 6)
    torch.testing.assert_close(to_relu_network(net, x)(x), net(x))


def test_units_in_the_middle_are_refused() -> None:
    net = unit(3, unit_dim=2)
    with pytest.raises(ValueError, match="must start at axis 1 or end at the last one"):
        to_relu_network(net, torch.randn(2, 2, 3, 4))


def test_units_that_are_not_reached_are_named() -> None:
    net = nn.ModuleDict({"used": unit(3)})
    net.forward = lambda x: x
    with pytest.raises(ValueError, match="do not reach the units of 'used'"):
        to_relu_network(net, torch.randn(2, 3))


def test_units_with_two_shapes_are_refused() -> None:
    shared = unit()
    net = nn.Sequential(shared, nn.Linear(6, 4), shared)
    with pytest.raises(ValueError, match="give each call a layer of its own"):
        to_relu_network(net, torch.randn(2, 6))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("hinges", [1, 3])
def test_splines_there_and_back(shape: tuple[int, ...], hinges: int) -> None:
    first = unit(shape, hinges).double()
    spline = to_spline(first)
    x = 5 * torch.randn(200, *shape, dtype=torch.float64)
    torch.testing.assert_close(spline(x), first(x), rtol=1e-7, atol=1e-9)
    back = from_spline(spline)
    assert isinstance(back, APL)
    torch.testing.assert_close(back(x), first(x), rtol=1e-7, atol=1e-7)


def test_spline_on_a_given_grid() -> None:
    grid = torch.linspace(-2, 2, 17)
    first = APL((3,), 2, init=init.relu_)
    with torch.no_grad():
        first.slope.copy_(torch.randn(2, 3))
        first.offset.copy_(grid[torch.randint(1, 16, (2, 3))])
    spline = to_spline(first, grid)
    assert spline.values.shape == (3, 17)
    x = 4 * torch.randn(100, 3, 5, 5)
    torch.testing.assert_close(spline(x), first(x), rtol=1e-5, atol=1e-5)
    back = from_spline(spline)
    torch.testing.assert_close(back(x), first(x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        first.offset[0, 1] = 0.3
    with pytest.raises(ValueError, match=r"0.3 is none of its inner points"):
        to_spline(first, grid)


def test_splines_that_end_otherwise_need_the_affine_unit() -> None:
    grid = torch.linspace(-3, 3, 13)
    spline = LinearSpline(grid, torch.tanh(grid))
    with pytest.raises(ValueError, match=r"condition 1.*0 of 1 units"):
        from_spline(spline)
    affine = from_spline(spline, affine=True)
    x = torch.linspace(-5, 5, 301)
    torch.testing.assert_close(affine(x), spline(x), rtol=1e-4, atol=1e-5)
    values = torch.stack([grid, torch.tanh(grid)])
    with pytest.raises(ValueError, match=r"condition 1.*1 of 2 units"):
        from_spline(LinearSpline(grid, values), affine=True)


@pytest.mark.parametrize(
    ("grid", "values", "message"),
    [
        ([0.0], [1.0], "at least 2 points"),
        ([], [], "at least 2 points"),
        ([0.0, 1.0], [1.0, 2.0, 3.0], "shape of values"),
        ([1.0, 0.0], [1.0, 2.0], "ascend"),
        ([0.0, float("nan")], [1.0, 2.0], "finite"),
    ],
)
def test_bad_splines_are_named(grid: list[float], values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearSpline(torch.tensor(grid), torch.tensor(values))


@pytest.mark.parametrize("count", [1, 6])
def test_prelu_there_and_back(count: int) -> None:
    prelu = nn.PReLU(count)
    nn.init.normal_(prelu.weight)
    first = from_prelu(prelu, num_hinges=2)
    x = torch.randn(20, 6, 3)
    assert torch.equal(first(x), prelu(x))
    back = to_prelu(first)
    assert torch.equal(back.weight, prelu.weight)
    assert torch.equal(back(x), prelu(x))


def test_a_prelu_keeps_its_precision() -> None:
    unit = from_prelu(nn.PReLU(3, dtype=torch.float64))
    assert unit.slope.dtype == unit.offset.dtype == to_prelu(unit).weight.dtype == torch.float64


def test_what_is_no_prelu_is_named() -> None:
    first = APL(3, 2, init="leaky")
    with torch.no_grad():
        first.offset[1, 2] = 0.5
    with pytest.raises(ValueError, match=r"unit \[2\] bends elsewhere"):
        to_prelu(first)
    with pytest.raises(ValueError, match=r"units of shape \(3, 4, 4\)"):
        to_prelu(APL((3, 4, 4), init="leaky"))


def test_models_in_half_precision_stay_so() -> None:
    net = nn.Sequential(nn.Linear(4, 8), APL(8, init=init.authors_), nn.Linear(8, 2)).bfloat16()
    x = torch.randn(16, 4, dtype=torch.bfloat16)
    torch.testing.assert_close(to_maxout(net)(x), net(x), atol=0.05, rtol=0.05)
    spline = to_spline(net[1])
    torch.testing.assert_close(spline(net[0](x)), net[1](net[0](x)), atol=0.05, rtol=0.05)


def test_splines_of_kinks_far_from_zero() -> None:
    unit = APL(1, 3)
    with torch.no_grad():
        unit.offset.copy_(torch.tensor([[3e7], [3e7], [0.0]]))
    x = torch.tensor([[-1e3], [1e7], [5e7]])
    torch.testing.assert_close(to_spline(unit)(x), unit(x), rtol=1e-5, atol=0)


def test_layers_with_hooks_are_not_absorbed() -> None:
    net = nn.Sequential(nn.Linear(4, 8), APL(8, init=init.authors_), nn.Linear(8, 2))
    net[0].register_forward_hook(lambda module, args, output: 2 * output)
    x = torch.randn(16, 4)
    torch.testing.assert_close(to_relu_network(net, x)(x), net(x))


class Doubled(APL):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def leaky(kind: type[APL] = APL) -> APL:
    return kind(8, 3, init="leaky")


CONVERSIONS = {
    "simplify": lambda net, x: curves.simplify(net, 0.0).model,
    "to_maxout": lambda net, x: to_maxout(net),
    "to_relu_network": to_relu_network,
    "to_mlpconv": to_mlpconv,
}
conversions = pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)


@conversions
@pytest.mark.parametrize("dense", [False, True])
def test_hooks_of_units_stay(convert, dense: bool) -> None:
    if dense:
        net, x = nn.Sequential(nn.Linear(4, 8), leaky(), nn.Linear(8, 2)), torch.randn(16, 4)
    else:
        net, x = nn.Sequential(nn.Conv2d(4, 8, 3), leaky()), torch.randn(16, 4, 5, 5)
    seen: list[nn.Module] = []
    net[1].register_forward_pre_hook(lambda module, args: (args[0] - 1,))
    net[1].register_forward_hook(lambda module, args, output: seen.append(module) or 2 * output)
    converted = convert(net, x)
    seen.clear()
    torch.testing.assert_close(converted(x), net(x))
    assert seen == [converted[1], net[1]]


@conversions
def test_units_that_compute_something_else_are_left(convert) -> None:
    affine, replaced = tanh_units(8), leaky()
    affine.unit = leaky(Doubled)
    hooked = tanh_units(8)
    hooked.unit.register_forward_hook(lambda module, args, output: output + 1)
    replaced.forward = lambda input: input
    for left in (leaky(Doubled), affine, hooked, replaced):
        net, x = nn.Sequential(nn.Linear(4, 8), left, nn.Linear(8, 2)), torch.randn(16, 4)
        converted = convert(net, x)
        torch.testing.assert_close(converted(x), net(x))
        assert type(converted[1]) is type(left)
        # Alone, too.
        x = torch.randn(16, 8)
        torch.testing.assert_close(convert(left, x)(x), left(x))


def test_only_plain_units_are_a_prelu() -> None:
    with pytest.raises(TypeError, match="must be an APL module, got AffineAPL"):
        to_prelu(curves.AffineAPL())


def test_one_curve_as_maxout_takes_a_single_number() -> None:
    unit = APL((), 3, init="authors")
    x = torch.tensor(-0.75)
    torch.testing.assert_close(to_maxout(unit)(x), unit(x))


def test_layers_around_the_relus_are_copies() -> None:
    first, last = nn.Linear(3, 2), nn.Linear(2, 3)
    weights = [p.clone() for layer in (first, last) for p in layer.parameters()]
    hidden = Hidden.of(APL(2, 3))
    assert expanded(first, hidden).out_features == 2 * 4
    assert combined(last, hidden).in_features == 2 * 4
    now = [p for layer in (first, last) for p in layer.parameters()]
    assert all(map(torch.equal, weights, now))
    assert (first.out_features, last.in_features) == (2, 2)
