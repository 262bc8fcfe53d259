from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchapl
from surgery import zoo
from torchapl import APL, curves, describe, rebuild_swapped, restore_activations, swap_activations
from torchapl.surgery.swap import can_rebuild
from torchapl.watch import call

every_model = pytest.mark.parametrize("model", zoo.MODELS, ids=str)


def outputs(model: nn.Module, example: Any) -> Tensor:
    training = model.training
    model.eval()
    with torch.no_grad():
        result: Tensor = call(model, example)
    model.train(training)
    return result


def swapped(model: zoo.Model, **options: Any) -> tuple[nn.Module, nn.Module, Any]:
    """Return a model, the same with units, and its example."""
    torch.manual_seed(0)
    original, example = model.build(), model.example()
    return original, swap_activations(copy.deepcopy(original), example, **options), example


@every_model
def test_every_call_site_gets_its_units(model: zoo.Model) -> None:
    _, result, _ = swapped(model)
    report = describe(result)
    assert {swap.name: swap.unit_shape for swap in report.swaps} == model.units
    assert not report.left
    for swap in report.swaps:
        unit = result.get_submodule(swap.name)
        curve = unit if isinstance(unit, APL) else unit.unit
        assert (curve.unit_shape, curve.num_hinges) == (swap.unit_shape, swap.num_hinges)
        assert swap.num_hinges == 8 or not model.exact
        for alias in swap.aliases:
            assert result.get_submodule(alias) is unit


@pytest.mark.parametrize(
    ("layers", "input_shape", "start"),
    [
        ((nn.Conv2d(3, 4, 3), nn.ReLU()), (2, 3, 8, 8), "leaky_silu"),
        ((nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 8, 8), "silu"),
        ((nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Tanh()), (2, 3, 8, 8), "silu"),
        ((nn.Linear(3, 4), nn.ReLU()), (5, 3), "leaky_silu"),
        ((nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU()), (5, 3), "silu"),
        ((nn.LayerNorm(3), nn.Linear(3, 4), nn.GELU()), (2, 5, 3), "gelu"),
    ],
)
def test_a_new_model_starts_with_the_curves_that_learn_best(
    layers: tuple[nn.Module, ...], input_shape: tuple[int, ...], start: str
) -> None:
    model = swap_activations(nn.Sequential(*layers), torch.randn(input_shape), init="default")
    unit, expected = model[-1], APL(4, init=start)
    assert isinstance(unit, APL)
    assert torch.equal(unit.slope, expected.slope)
    assert torch.equal(unit.offset, expected.offset)
    (swap,) = describe(model).swaps
    assert swap.error > 0.01


@every_model
def test_any_new_model_starts_with_curves_that_learn(model: zoo.Model) -> None:
    original, result, example = swapped(model, init="default", per="channel")
    assert {swap.name: swap.unit_shape for swap in describe(result).swaps} == model.units
    assert outputs(result, example).isfinite().all()
    assert torch.equal(outputs(restore_activations(result), example), outputs(original, example))


def test_a_new_model_starts_with_a_curve_of_ones_choice() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    model = swap_activations(build(), torch.randn(5, 3), init="mish", num_hinges=7)
    assert torch.equal(model[1].slope, APL(4, 7, init="mish").slope)
    again = rebuild_swapped(build(), describe(model).to_json())
    again.load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match="init must be one of 'default', 'leaky_silu'"):
        swap_activations(build(), torch.randn(5, 3), init="misch")


@every_model
def test_outputs_stay(model: zoo.Model) -> None:
    original, result, example = swapped(model)
    before, after = outputs(original, example), outputs(result, example)
    if model.exact:
        assert torch.equal(before, after)
    else:
        assert (before - after).abs().max() <= 0.005 * before.abs().max()
        assert all(swap.error <= 3e-4 for swap in describe(result).swaps)
    assert float((before - after).abs().max()) == pytest.approx(
        describe(result).output_error, abs=1e-6
    )


@every_model
@pytest.mark.parametrize("per", ["unit", "channel", "layer"])
def test_gradients_flow_and_a_step_changes_the_curves(model: zoo.Model, per: Any) -> None:
    if model.name == "piecewise linear" and per == "layer":
        with pytest.raises(ValueError, match="slopes for 5 channels"):
            swapped(model, per=per)
        return
    _, result, example = swapped(model, per=per)
    optimizer = torch.optim.SGD(torchapl.curve_parameters(result), lr=0.1)
    before = [parameter.detach().clone() for parameter in torchapl.curve_parameters(result)]
    (call(result, example) - 1).square().mean().backward()
    optimizer.step()
    slopes = [p for name, p in result.named_parameters() if name.endswith("slope")]
    assert slopes
    assert all(bool((slope.grad != 0).any()) for slope in slopes)
    after = list(torchapl.curve_parameters(result))
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@every_model
def test_training_mode_computes_the_same(model: zoo.Model) -> None:
    if not model.exact:
        pytest.skip("only exact units give the same statistics and gradients")
    original, result, example = swapped(model)
    losses = []
    for net in (original, result):
        net.train()
        torch.manual_seed(3)
        loss = call(net, example).square().mean()
        loss.backward()
        losses.append(loss)
    assert torch.equal(*losses)
    grads = dict(result.named_parameters())
    for name, parameter in original.named_parameters():
        if name in grads:
            torch.testing.assert_close(grads[name].grad, parameter.grad)
    buffers = dict(result.named_buffers())
    for name, buffer in original.named_buffers():
        torch.testing.assert_close(buffers[name], buffer)


@every_model
def test_rebuilt_from_constructor_and_description(model: zoo.Model) -> None:
    _, result, example = swapped(model)
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.add_(0.01)
    text = describe(result).to_json()
    stream = io.BytesIO()
    torch.save(result.state_dict(), stream)
    stream.seek(0)

    rebuilt = rebuild_swapped(model.build(), text)
    rebuilt.load_state_dict(torch.load(stream), strict=True)
    assert torch.equal(outputs(rebuilt, example), outputs(result, example))
    assert describe(rebuilt) == describe(result)


@every_model
def test_safetensors(model: zoo.Model, tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    _, result, example = swapped(model)
    safetensors.save_model(result, tmp_path / "model.safetensors")
    rebuilt = rebuild_swapped(model.build(), describe(result))
    safetensors.load_model(rebuilt, tmp_path / "model.safetensors")
    assert torch.equal(outputs(rebuilt, example), outputs(result, example))


@every_model
def test_copied_and_pickled(model: zoo.Model) -> None:
    _, result, example = swapped(model)
    expected = outputs(result, example)
    for twin in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert torch.equal(outputs(twin, example), expected)
        assert describe(twin) == describe(result)
        own = {id(parameter) for parameter in result.parameters()}
        assert not own & {id(parameter) for parameter in twin.parameters()}


@every_model
def test_the_way_back(model: zoo.Model) -> None:
    original, result, example = swapped(model)
    restored = restore_activations(result)
    assert restored is result
    assert torch.equal(outputs(restored, example), outputs(original, example))
    assert not list(torchapl.curve_parameters(result))
    assert not describe(result).swaps
    # What it was, in every part.
    parts = [
        [(n, type(m), set(vars(m))) for n, m in net.named_modules()] for net in (result, original)
    ]
    assert parts[0] == parts[1]
    assert repr(result) == repr(original)
    again = swap_activations(restored, example)
    assert describe(again).swaps == describe(swapped(model)[1]).swaps


def test_the_way_back_keeps_what_happened_in_between() -> None:
    net = swap_activations(zoo.Functional(), torch.randn(4, 6))
    twin = pickle.loads(pickle.dumps(copy.deepcopy(net)))
    for model in (net, twin):
        model.train(False).to(torch.float64)
        model.added = 3
        restore_activations(model)
        assert type(model) is zoo.Functional
        assert not any(module.training for module in model.modules())
        assert model(torch.randn(4, 6, dtype=torch.float64)).dtype == torch.float64
        assert model.added == 3


@every_model
def test_relu_in_place_of_the_units(model: zoo.Model) -> None:
    _, result, example = swapped(model)
    names = [swap.name for swap in describe(result).swaps]
    restored = restore_activations(result, to="relu")
    assert all(isinstance(restored.get_submodule(name), nn.ReLU) for name in names)
    assert outputs(restored, example).isfinite().all()


@pytest.mark.filterwarnings("ignore:the outputs differ")
@every_model
def test_simplified_curves_in_place_of_the_units(model: zoo.Model) -> None:
    _, result, example = swapped(model, num_hinges=4)
    before, parameters = outputs(result, example), len(list(result.parameters()))
    restored = restore_activations(result, to="simplified", tolerance=1e-6)
    torch.testing.assert_close(outputs(restored, example), before, atol=1e-4, rtol=1e-4)
    assert not any(p.requires_grad for p in torchapl.curve_parameters(restored))
    if model.exact:
        assert len(list(restored.parameters())) < parameters


@every_model
def test_dry_run_leaves_no_trace(model: zoo.Model) -> None:
    torch.manual_seed(0)
    net, example = model.build(), model.example()
    net.train()
    next(net.children()).eval()
    modes = {name: module.training for name, module in net.named_modules()}
    parameters = dict(net.named_parameters())
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    random = torch.get_rng_state()
    result = swap_activations(net, example)
    assert torch.equal(torch.get_rng_state(), random)
    kept = dict(result.named_parameters())
    for name, parameter in parameters.items():
        if "act.weight" not in name and "relu.weight" not in name:  # PReLU became units
            assert kept[name] is parameter
    assert all(parameter.grad is None for parameter in result.parameters())
    for name, buffer in buffers.items():
        assert torch.equal(result.get_buffer(name), buffer)
    for name, module in result.named_modules():
        if name in modes:
            assert module.training == modes[name], name


def test_buffers_that_forward_writes_are_put_back() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.act = nn.Linear(3, 3), nn.ReLU()
            self.register_buffer("filled", torch.zeros(()))
            self.register_buffer("replaced", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.filled += 1
            self.replaced = self.replaced + 1
            return self.act(self.linear(x))

    net = Counter()
    buffers = dict(net.named_buffers())
    swap_activations(net, torch.randn(2, 3))
    assert dict(net.named_buffers()) == buffers
    assert all(net.get_buffer(name) is buffer for name, buffer in buffers.items())
    assert not any(buffers.values())


@every_model
def test_in_place_or_a_graph_module(model: zoo.Model) -> None:
    torch.manual_seed(0)
    net = model.build()
    result = swap_activations(net, model.example())
    assert (result is net) == model.in_place
    assert isinstance(result, torch.fx.GraphModule) == (not model.in_place)


def test_what_the_modes_do_stays_with_the_mode() -> None:
    net = swap_activations(zoo.Modes(), torch.randn(64, 5))
    x = torch.randn(64, 5)
    net.train()
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_arguments_built_into_a_graph_are_refused_with_other_values() -> None:
    net = swap_activations(zoo.Optional(), torch.randn(3, 5))
    x = torch.randn(3, 5)
    assert torch.equal(net(x, scale=3.0) * 2, net(x) * 3)
    with pytest.raises(ValueError, match=r"mask=Tensor does not fit: .* mask=None"):
        net(x, torch.rand(3, 7))
    with pytest.raises(ValueError, match="flag=False does not fit"):
        net(x, flag=False)


def test_second_swap_adds_to_the_first() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 5)

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            return torch.tanh(self.linear(F.relu(self.linear(x))))

    net, x = Two(), torch.randn(64, 5)
    before = net(x)
    net = swap_activations(
        net, x, num_hinges=2, match=lambda name, module: isinstance(module, nn.ReLU)
    )
    assert [left.kind for left in describe(net).left] == ["Tanh"]
    net = swap_activations(net, x, num_hinges=8)
    assert [(s.kind, s.num_hinges) for s in describe(net).swaps] == [("ReLU", 2), ("Tanh", 8)]
    assert not describe(net).left
    torch.testing.assert_close(net(x), before, atol=0.05, rtol=0)
    rebuilt = rebuild_swapped(Two(), describe(net))
    rebuilt.load_state_dict(net.state_dict())
    assert torch.equal(rebuilt(x), net(x))


def test_match_sees_name_and_module() -> None:
    seen = {}

    def match(name: str, module: nn.Module) -> bool:
        seen[name] = type(module)
        return name == "0.act"

    net = swap_activations(zoo.smooth(), torch.randn(64, 5), match=match)
    assert [swap.name for swap in describe(net).swaps] == ["0.act"]
    assert seen == {"0.act": nn.GELU, "1.act": nn.Tanh, "2.act": zoo.Swish}
    assert {left.reason for left in describe(net).left} == {"not selected by match"}


@pytest.mark.filterwarnings("ignore:swap_activations found no activation")
def test_gates_are_left_unless_asked_for() -> None:
    net = nn.Sequential(
        nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.Softmax(-1), nn.Dropout()
    )
    report = describe(swap_activations(net, torch.randn(64, 3)))
    assert not report.swaps
    assert [left.kind for left in report.left] == ["Sigmoid"]
    report = describe(
        swap_activations(net, torch.randn(64, 3), num_hinges=8, match=lambda name, module: True)
    )
    assert [swap.kind for swap in report.swaps] == ["Sigmoid"]
    assert report.swaps[0].error < 0.02


def test_hooks_keep_working() -> None:
    net = zoo.BasicBlock()
    calls = []
    handles = [
        module.register_forward_hook(lambda module, args, output: calls.append(module))
        for module in (net, net.relu, net.conv1)
    ]
    x = torch.randn(2, 6, 6, 6)
    result = swap_activations(net, x)
    calls.clear()
    result(x)
    assert calls == [result.conv1, result.relu_1, result.relu_2, result]
    for handle in handles:
        handle.remove()
    calls.clear()
    result(x)
    assert calls == []


def test_attributes_and_methods_of_a_rewritten_module() -> None:
    class Named(zoo.Stranger):
        title = "a title"

        @property
        def width(self) -> int:
            return self.linear.out_features

        def twice(self, x: Tensor) -> Tensor:
            return 2 * self(x)

    net = Named()
    net.config = {"a": 1}
    result = swap_activations(net, torch.randn(3, 5))
    x = torch.randn(3, 5)
    assert (result.title, result.width, result.config) == ("a title", 7, {"a": 1})
    assert torch.equal(result.twice(x), 2 * net(x))
    assert type(result).__name__ == "Named"
    with pytest.raises(AttributeError):
        _ = result.nothing


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.GELU()).to(dtype)
    x = torch.randn(2, 3, 8, 8, dtype=dtype)
    before = net(x)
    result = swap_activations(net, x)
    assert {parameter.dtype for parameter in result.parameters()} == {dtype}
    assert result(x).dtype == dtype
    torch.testing.assert_close(result(x), before, atol=0.02, rtol=0)


def test_memory_format() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    result = swap_activations(net, x)
    assert result(x).is_contiguous(memory_format=torch.channels_last)
    assert describe(result).swaps[0].unit_shape == (4,)


def test_frozen_weights_stay_frozen() -> None:
    net = zoo.Functional().requires_grad_(False)
    result = swap_activations(net, torch.randn(4, 6))
    trainable = {name for name, p in result.named_parameters() if p.requires_grad}
    assert trainable == {name for name, _ in result.named_parameters() if "relu" in name}


def test_fused_encoder_kernel_is_left() -> None:
    net = zoo.encoder().eval()
    x = torch.randn(4, 3, 8)
    result = swap_activations(net, x).eval()
    with torch.no_grad():
        before = result(x)
        for parameter in torchapl.curve_parameters(result):
            parameter.add_(1.0)
        padding = torch.zeros(4, 3, dtype=torch.bool)
        padding[0, 2] = True
        assert not torch.allclose(result(x), before)
        assert result(x, src_key_padding_mask=padding).isfinite().all()


def test_untraceable_calls_are_named() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 5)
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = -x
            return torch.tanh(self.act(self.linear(x)))

    net = Branching()
    result = swap_activations(net, torch.randn(4, 5))
    report = describe(result)
    assert result is net
    assert [swap.name for swap in report.swaps] == ["act"]
    (left,) = report.left
    assert (left.name, left.kind) == ("tanh", "Tanh")
    assert left.place.startswith("test_swap.py:")
    assert "control flow" in left.reason
    assert "control flow" in str(report)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda self, x: F.relu(self.l(x)) if self.training else 2 * F.relu(self.l(x)), "training"),
        (lambda self, x: (setattr(self, "n", self.n + 1), F.relu(self.l(x)))[1], "sets attributes"),
        (lambda self, x, **more: F.relu(self.l(x)) * len(more), "further arguments"),
        (lambda self, x, size=(1, 2): F.relu(self.l(x)), "size is a tuple"),
    ],
)
@pytest.mark.filterwarnings("ignore:swap_activations found no activation")
def test_reasons_for_leaving_a_call(forward: Any, reason: str) -> None:
    kind = type("Net", (nn.Module,), {"forward": forward})
    net = kind()
    net.l, net.n = nn.Linear(3, 3), 0
    example = {"x": torch.randn(4, 3)}
    if "further" in reason:
        example["other"] = 3
    report = describe(swap_activations(net, example))
    assert not report.swaps
    assert reason in report.left[0].reason


def test_wrong_arguments() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    with pytest.raises(ValueError, match="per must be 'unit', 'channel' or 'layer', got 'neuron'"):
        swap_activations(net, x, per="neuron")
    with pytest.raises(ValueError, match="num_hinges must be at least 1, got 0"):
        swap_activations(net, x, num_hinges=0)
    with pytest.raises(TypeError, match=r"example_inputs must be a tensor, .* got str"):
        swap_activations(net, "x")
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got function"):
        swap_activations(lambda x: x, x)
    with pytest.raises(ValueError, match="swap the plain model first"):
        swap_activations(nn.DataParallel(net), x)
    with pytest.raises(
        ValueError, match="to must be 'original', 'relu' or 'simplified', got 'gelu'"
    ):
        restore_activations(net, to="gelu")
    assert isinstance(net[1], nn.ReLU)


def test_rebuild_refuses_another_model() -> None:
    text = describe(swap_activations(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)))
    with pytest.raises(ValueError, match="has no '1'"):
        rebuild_swapped(nn.Sequential(nn.Linear(3, 3)), text)
    text = describe(swap_activations(zoo.Stranger(), torch.randn(2, 5)))
    with pytest.raises(ValueError, match="not the code that was swapped"):
        rebuild_swapped(nn.Linear(3, 3), text)


def test_a_failed_swap_puts_the_model_back() -> None:
    class View(nn.Module):
        """Reads, through a view, what a module overwrote: no rewiring can follow that."""

        def __init__(self) -> None:
            super().__init__()
            self.linear, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            self.relu(y.view(-1, 2))
            return y

    net, x = View(), torch.randn(3, 4)
    before = net(x)
    with pytest.raises(RuntimeError, match="outputs changed"):
        swap_activations(net, x)
    assert isinstance(net.relu, nn.ReLU)
    assert torch.equal(net(x), before)


def test_descriptions_of_parts_carry_their_prefix() -> None:
    part = swap_activations(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3))
    whole = nn.ModuleDict({"head": part})
    assert [swap.name for swap in describe(whole).swaps] == ["head.1"]
    restore_activations(whole)
    assert isinstance(part[1], nn.ReLU)


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.linear(x))


@pytest.mark.parametrize(
    "build", [Calls, lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU())], ids=["call", "module"]
)
def test_names_that_a_part_gets_later_are_aliases(build: Any) -> None:
    class Twice(nn.Module):
        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.first, self.again, self.inner = part, part, nn.ModuleList([part])

        def forward(self, x: Tensor) -> Tensor:
            return self.again(self.first(x))

    torch.manual_seed(0)
    x = torch.randn(64, 4)
    net = Twice(swap_activations(build(), x))
    (swap,) = describe(net).swaps
    unit = net.get_submodule(swap.name)
    assert len(swap.aliases) == 2
    assert all(net.get_submodule(name) is unit for name in swap.aliases)
    rebuilt = rebuild_swapped(Twice(build()), describe(net).to_json())
    rebuilt.load_state_dict(net.state_dict())
    assert rebuilt.first is rebuilt.again is rebuilt.inner[0]
    assert torch.equal(rebuilt(x), net(x))
    assert describe(rebuilt) == describe(net)
    # A description of the whole names them once, and its way back reaches all.
    restore_activations(rebuilt)
    assert not any(isinstance(module, APL) for module in rebuilt.modules())


def test_whether_another_model_has_what_is_described() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(2 * self.relu(x) - 1)

    class Function(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(2 * F.relu(x) - 1)

    report = describe(
        swap_activations(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(64, 3))
    )
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    assert can_rebuild(net, report)
    assert isinstance(net[1], nn.Tanh)
    assert not can_rebuild(nn.Sequential(nn.Linear(3, 3), nn.Sigmoid()), report)
    assert not can_rebuild(nn.Sequential(nn.Linear(3, 3)), report)
    report = describe(swap_activations(Module(), torch.randn(64, 3), per="layer"))
    assert can_rebuild(Module(), report)
    assert not can_rebuild(Function(), report)


def test_simplified_units_are_described_as_they_are() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)

    def fresh() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh())

    model = swap_activations(fresh(), inputs)
    simple = curves.simplify(model, 0.05).model
    assert describe(simple).swaps[0].num_hinges < describe(model).swaps[0].num_hinges
    rebuilt = rebuild_swapped(fresh(), describe(simple).to_json())
    rebuilt.load_state_dict(simple.state_dict())
    assert torch.equal(rebuilt(inputs), simple(inputs))
