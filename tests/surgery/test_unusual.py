"""Models and habits that are rarer than those of the zoo."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl import APL, describe, restore_activations, swap_activations


class Net(nn.Module):
    """Two layers, and a forward that is given."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.run = [run]
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.run[0](self, x)


def residual(activation: Callable[[Tensor], Tensor]) -> Callable[[Net, Tensor], Tensor]:
    def run(net: Net, x: Tensor) -> Tensor:
        y = net.first(x)
        return y + activation(y)

    return run


@pytest.mark.parametrize(
    ("activation", "kind"),
    [
        (lambda y: F.softplus(y, 1), "Softplus"),  # 1 == True, but it is no inplace=True
        (lambda y: torch.celu(y, 1.0), "CELU"),
        (lambda y: torch.relu(input=y), "ReLU"),
        (lambda y: F.gelu(input=y, approximate="tanh"), "GELU"),
    ],
)
def test_arguments_in_any_form(activation: Callable[[Tensor], Tensor], kind: str) -> None:
    net, x = Net(residual(activation)), torch.randn(64, 6)
    before = net(x)
    result = swap_activations(net, x, num_hinges=6)
    assert [swap.kind for swap in describe(result).swaps] == [kind]
    torch.testing.assert_close(result(x), before, atol=0.05, rtol=0)


def test_module_called_with_its_input_by_name() -> None:
    net = Net(lambda net, x: net.act(input=net.first(x)), act=nn.ReLU())
    assert isinstance(swap_activations(net, torch.randn(4, 6)).act, APL)


def test_keywords_that_must_be_given_behind_ones_with_defaults() -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor, scale: float = 2.0, *, bias: Tensor) -> Tensor:
            return F.relu(self.linear(x)) * scale + bias

    example = {"x": torch.randn(8, 4), "bias": torch.randn(4)}
    net = Keywords()
    assert torch.equal(swap_activations(net, example)(**example), net(**example))


def test_integers_are_no_input_of_units() -> None:
    net = Net(lambda net, x: F.relu(net.first(x)) * F.relu(x.long()))
    report = describe(swap_activations(net, torch.randn(4, 6)))
    assert [swap.name for swap in report.swaps] == ["relu_1"]
    assert [left.reason for left in report.left] == ["its input is torch.int64"]


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


@pytest.mark.parametrize("activation", [nn.Tanh(), Swish()])
def test_an_example_of_one_value(activation: nn.Module) -> None:
    with pytest.warns(UserWarning, match=r"too little of the inputs of 1 \((Tanh|Swish)\) from"):
        net = swap_activations(nn.Sequential(nn.Linear(4, 1), activation), torch.randn(1, 4))
    assert [swap.name for swap in describe(net).swaps] == ["1"]


def test_the_test_of_a_module_is_made_on_a_part_of_a_large_input() -> None:
    sizes = []

    class Watched(Swish):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(x.numel())
            return super().forward(x)

    net = nn.Sequential(nn.Linear(64, 64), Watched())
    assert len(describe(swap_activations(net, torch.randn(20_000, 64))).swaps) == 1
    assert sizes[0] <= 65_536


def test_random_numbers_in_evaluation_do_not_disturb() -> None:
    class Sampler(nn.Module):
        """To find that dropout is no activation it is tried, which takes random numbers."""

        def __init__(self) -> None:
            super().__init__()
            self.linear, self.drop, self.act = nn.Linear(4, 4), nn.Dropout(0.3), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.drop(self.linear(x)))
            return x + torch.randn_like(x)

    assert describe(swap_activations(Sampler(), torch.randn(8, 4))).output_error == 0


def test_maps_are_not_kept_during_the_dry_run() -> None:
    maps: list[weakref.ref[Tensor]] = []

    class Track(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert sum(reference() is not None for reference in maps) <= 1
            y = 2 * x
            maps.append(weakref.ref(y))
            return y

    layers = [nn.Sequential(nn.Linear(4, 4), Track(), nn.ReLU(inplace=True)) for _ in range(5)]
    assert len(describe(swap_activations(nn.Sequential(*layers), torch.randn(8, 4))).swaps) == 5


class Skip(nn.Module):
    """The U-net of pix2pix: its first ReLU overwrites what the skip connection then carries on."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.LeakyReLU(0.2, True), nn.Linear(6, 6), nn.ReLU(True))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.branch(x)], 1)


def test_an_input_overwritten_for_another_module_is_left_so() -> None:
    net, x = nn.Sequential(nn.Linear(6, 6), Skip()), torch.randn(8, 6)
    before = net(x)
    report = describe(swap_activations(net, x))
    assert [swap.name for swap in report.swaps] == ["1.branch.2"]
    assert [left.name for left in report.left] == ["1.branch.0"]
    assert "another module reads" in report.left[0].reason
    assert torch.equal(net(x), before)


def test_an_overwritten_input_goes_on_to_a_module() -> None:
    def run(net: Net, x: Tensor) -> Tensor:
        y = net.first(x)
        net.relu(y)
        return net.tanh(y) + net.second(y)

    net = Net(run, relu=nn.ReLU(inplace=True), tanh=nn.Tanh())
    result = swap_activations(net, torch.randn(64, 6))
    assert [swap.name for swap in describe(result).swaps] == ["relu_1", "tanh"]


class Frozen(nn.Module):
    """Methods that replace those of nn.Module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.linear(x)))

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self

    def __len__(self) -> int:
        return 7


def test_a_rewritten_module_is_of_its_class() -> None:
    net = swap_activations(Frozen(), torch.randn(8, 4))
    x = torch.randn(3, 4)
    for twin in (net, copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(twin, Frozen)
        assert len(twin) == 7
        assert not twin.train().norm.training
        assert torch.equal(twin(x), net(x))


def test_hooks_of_load_state_dict_outlive_the_original() -> None:
    original = Frozen()
    seen = []
    original.register_load_state_dict_pre_hook(lambda module, *_: seen.append(id(module)))
    net = swap_activations(original, torch.randn(8, 4))
    del original
    gc.collect()
    net.load_state_dict(net.state_dict())
    assert seen == [id(net)]


def dropping_layers(net: Net, x: Tensor) -> Tensor:
    x = F.relu(net.first(x))
    return x if net.training and random.random() < 0.5 else net.second(x)


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (Net(dropping_layers), "random numbers"),
        (Net(lambda net, x: F.relu(net.first(x)) + torch.arange(6)), "makes a tensor"),
        (Net(lambda net, x: F.relu(net.code(x)), code=nn.Linear(6, 6)), "'code' would be hidden"),
    ],
)
@pytest.mark.filterwarnings("ignore:swap_activations found no activation")
def test_a_graph_that_would_be_wrong_is_not_made(net: Net, reason: str) -> None:
    attributes = set(vars(net))
    states = random.getstate(), torch.get_rng_state()
    result = swap_activations(net, torch.randn(4, 6, generator=torch.Generator()))
    (left,) = describe(result).left
    assert result is net
    assert reason in left.reason
    assert set(vars(net)) - attributes == {"_swap_report"}
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


def test_a_sparse_buffer() -> None:
    net = Net(lambda net, x: net.act(torch.sparse.mm(net.adjacency, net.first(x))), act=nn.ReLU())
    net.register_buffer("adjacency", torch.eye(8).to_sparse())
    assert isinstance(swap_activations(net, torch.randn(8, 6)).act, APL)


def test_lazy_modules() -> None:
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU())
    swap_activations(net, torch.randn(2, 3, 6, 6))
    assert net[2].unit_shape == (4,)
    assert net[1].num_batches_tracked == 0


def test_parts_that_are_compiled_or_without_values_are_refused() -> None:
    x = torch.randn(2, 6)
    parts = (nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(2))
    in_place = next(parts)
    in_place.compile(backend="eager")
    for part in (in_place, torch.compile(next(parts), backend="eager")):
        with pytest.raises(ValueError, match=r"its part '1' is a .* swap the plain model first"):
            swap_activations(nn.Sequential(nn.Linear(6, 6), part), x)
    with pytest.raises(ValueError, match="meta device"):
        swap_activations(nn.Linear(6, 6, device="meta"), x)


@dataclass
class Output:
    value: Tensor


@pytest.mark.parametrize(
    "wrap", [Output, lambda y: torch.distributions.Normal(y, 1.0), lambda y: torch.complex(y, y)]
)
def test_outputs_of_any_kind_are_compared(wrap: Callable[[Tensor], Any]) -> None:
    net = Net(lambda net, x: wrap(net.act(net.first(x))), act=nn.Tanh())
    report = describe(swap_activations(net, torch.randn(64, 6)))
    assert 0 < report.output_error <= report.swaps[0].error


@pytest.mark.parametrize(
    ("example", "what"),
    [
        (torch.empty(0, 4), "empty"),
        (torch.full((8, 4), float("nan")), "NaN or infinite"),
        (torch.full((8, 4), float("inf")), "NaN or infinite"),
    ],
)
def test_refuses_an_example_that_shows_nothing(example: Tensor, what: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match=f"all outputs of the model are {what}"):
        swap_activations(model, example)
    assert isinstance(model[1], nn.GELU)


def test_refuses_a_call_that_the_example_does_not_reach_with_numbers() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.GELU(), nn.GELU()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.first(x), self.second(x[:0])

    with pytest.raises(
        ValueError, match=r"no finite number to second \(GELU, .*leave the call out"
    ):
        swap_activations(TwoHeads(), torch.randn(8, 4))
    swapped = swap_activations(TwoHeads(), torch.randn(8, 4), match=lambda name, _: name == "first")
    assert [swap.name for swap in describe(swapped).swaps] == ["first"]


def test_tells_how_far_outputs_are_off() -> None:
    model, example = nn.Sequential(nn.Linear(4, 8), nn.GELU()), torch.randn(64, 4)
    with pytest.warns(
        UserWarning, match=r"outputs differ by .* smaller tolerance or more num_hinges"
    ):
        swap_activations(copy.deepcopy(model), example, num_hinges=1)
    swap_activations(copy.deepcopy(model), example, num_hinges=16)


def test_tells_that_there_was_nothing_to_swap() -> None:
    with pytest.warns(UserWarning, match="no activation to swap, the model is as it was$"):
        swap_activations(nn.Linear(4, 8), torch.randn(64, 4))
    with pytest.warns(UserWarning, match="as it was; describe.model. says why 1 were left"):
        swap_activations(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid()), torch.randn(64, 4))


@pytest.mark.filterwarnings("ignore:the outputs differ")
@pytest.mark.parametrize("function", [nn.GELU(), nn.Tanh(), nn.Hardswish(), Swish()])
def test_the_tolerance_decides_the_hinges_once_for_all_calls(function: nn.Module) -> None:
    layers = [nn.Linear(8, 8) for _ in range(3)]
    for factor, layer in enumerate(layers):
        layer.weight.data *= 2**factor
    hinges = []
    for tolerance in (1e-2, 1e-3):
        model = nn.Sequential(*(part for layer in layers for part in (layer, function)))
        net = swap_activations(model, torch.randn(256, 8), tolerance=tolerance)
        swaps = describe(net).swaps
        assert all(0 < swap.error <= tolerance for swap in swaps)
        assert len({swap.num_hinges for swap in swaps}) == 1
        # Beyond the example, by a quarter of its range.
        low, high = swaps[-1].interval
        x = torch.linspace(low - (high - low) / 4, high + (high - low) / 4, 1001)[:, None]
        assert (net[-1](x.expand(-1, 8)) - function(x)).abs().max() <= tolerance
        hinges.append(swaps[0].num_hinges)
    assert hinges[0] < hinges[1]


def test_the_tolerance_has_an_end() -> None:
    class Wave(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(20 * x)

    with pytest.warns(UserWarning, match="the outputs differ"):
        net = swap_activations(nn.Sequential(nn.Identity(), Wave()), 10 * torch.randn(512, 1))
    assert describe(net).swaps[0].num_hinges == 128
    with pytest.raises(ValueError, match="tolerance must be above 0, got 0"):
        swap_activations(nn.ReLU(), torch.randn(4), tolerance=0)


def test_beyond_the_example_a_function_may_have_no_values() -> None:
    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x + 20).log()

    net = swap_activations(nn.Sequential(nn.Identity(), Log()), 20 * torch.rand(64, 4) - 19.9)
    assert describe(net).swaps[0].error <= 3e-4


def test_labels_of_a_loader_stay_out_of_the_example() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    swap_activations(model, [torch.randn(8, 4), torch.zeros(8)])
    assert isinstance(model[1], APL)


def test_outputs_that_became_nan_count() -> None:
    # 0 * max(0, b - x) is no number at -inf.
    net = Net(lambda net, x: net.act(net.first(x).where(x > 0, -torch.inf)), act=nn.ReLU())
    with pytest.warns(UserWarning, match="the outputs differ by inf on the example"):
        net = swap_activations(net, torch.randn(4, 6))
    assert describe(net).output_error == torch.inf


def test_a_weight_on_the_left_makes_rows() -> None:
    net = Net(lambda net, x: net.act(net.weight @ x), act=nn.ReLU())
    net.weight = nn.Parameter(torch.randn(5, 6))
    assert swap_activations(net, torch.randn(6, 3)).act.unit_shape == (5,)


def test_what_comes_back_fits_the_model_as_it_is_now() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.Linear(4, 4), nn.GELU())
    calls: list[str] = []
    net[3].register_forward_hook(lambda *_: calls.append("hook"))
    swapped = swap_activations(net, torch.randn(8, 4)).double().eval()
    relu = restore_activations(copy.deepcopy(swapped), to="relu")
    original = restore_activations(swapped)
    assert original[1].weight.dtype == torch.float64
    assert not any(module.training for module in (*original, *relu))
    for restored in (original, relu):
        calls.clear()
        restored(torch.randn(2, 4, dtype=torch.float64))
        assert calls == ["hook"]


def test_the_fused_encoder_kernel_comes_back() -> None:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    flags = (net.layers[0].activation_relu_or_gelu, net.use_nested_tensor)
    restore_activations(swap_activations(net, torch.randn(2, 3, 8)))
    assert (net.layers[0].activation_relu_or_gelu, net.use_nested_tensor) == flags


def test_relu_in_an_encoder_of_gelus_is_relu_in_its_kernel_too() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
    restored = restore_activations(swap_activations(layer, torch.randn(2, 3, 8)), to="relu")
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        fused = restored.eval()(x)
    torch.testing.assert_close(fused, restored(x))
