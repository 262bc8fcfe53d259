from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchapl import APL, LazyAPL, curves, init
from torchapl.curves import AffineAPL, observe_ranges, to_relu_network
from torchapl.runs.curves import inputs_of
from torchapl.watch import call, hooked, named_units, watch


class Net(nn.Module):
    """All that a look must not change: statistics, a counter that is replaced, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4, momentum=None)
        self.unit = APL(4)
        self.affine = AffineAPL(4, scale=2.0, center=0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, noise: float = 1.0) -> Tensor:
        self.calls = self.calls + 1
        self.norm.train()
        hidden = self.norm(self.linear(x) + noise * torch.rand(()))
        return self.affine(input=self.unit(input=hidden))


BATCH = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
LOOKS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "align_": lambda net, x: init.align_(net, [(x, torch.zeros(16)), {"x": x, "label": x}]),
    "observe_ranges": lambda net, x: observe_ranges(net, [(x, torch.zeros(16)), x]),
    "to_relu_network": lambda net, x: to_relu_network(net, (x, 0.5)),
    "inputs_of": inputs_of,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_look_changes_nothing_and_sees_inputs_given_by_name(look: Any) -> None:
    net = Net()
    net.linear.eval()
    modes = {name: module.training for name, module in net.named_modules()}
    before, counter = copy.deepcopy(net.state_dict()), net.calls
    x, random = BATCH.clone(), torch.get_rng_state()
    assert look(net, x)
    assert {name: module.training for name, module in net.named_modules()} == modes
    assert net.calls is counter
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) or (look is LOOKS["align_"] and "offset" in name)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, BATCH)
    assert not any(module._forward_hooks for module in net.modules())
    assert torch.is_grad_enabled()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_look_puts_sparse_buffers_back(layout: torch.layout) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unit = APL(3)
            self.register_buffer("adjacency", torch.eye(16).to_sparse(layout=layout))

        def forward(self, x: Tensor) -> Tensor:
            self.adjacency.mul_(2)
            return self.unit(self.adjacency @ x)

    net = Graph()
    adjacency = net.adjacency
    assert observe_ranges(net, [BATCH]).keys() == {"unit"}
    assert net.adjacency is adjacency
    assert torch.equal(adjacency.to_dense(), torch.eye(16))


def test_a_look_that_fails_changes_nothing_either() -> None:
    net = Net()
    before, random = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with pytest.raises(RuntimeError):
        observe_ranges(net, [BATCH, torch.zeros(2, 5)])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert net.training
    assert not net.unit._forward_hooks


def test_ranges_are_those_of_evaluation() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), APL(4))
    low, high = observe_ranges(net, [BATCH])["3"]
    with torch.no_grad():
        hidden = net.eval()[:3](BATCH)
    assert torch.equal(low, hidden.amin(0))
    assert torch.equal(high, hidden.amax(0))


def test_ranges_of_every_shape_of_units() -> None:
    x = torch.randn(5, 4, 6)
    for unit, axes in ((APL(4), (0, 2)), (APL(6, unit_dim=-1), (0, 1)), (APL((4, 6)), (0,))):
        low, high = observe_ranges(unit, [x])[""]
        assert torch.equal(low, x.amin(axes))
        assert torch.equal(high, x.amax(axes))
    assert observe_ranges(APL(), [x])[""] == (x.min(), x.max())
    assert observe_ranges(APL(), [torch.tensor(2.0)])[""] == (2.0, 2.0)
    assert observe_ranges(APL(4), [torch.empty(0, 4)]) == {}


def test_units_are_listed_once_or_under_every_name() -> None:
    shared, tanh = APL(3), curves.fit(torch.tanh, 3, (-3.0, 3.0)).module(3)
    net = nn.ModuleDict({"a": shared, "b": nn.Sequential(tanh, shared), "c": LazyAPL()})
    assert [name for name, _ in named_units(net)] == ["a", "b.0", "c"]
    assert [name for name, _ in named_units(net, remove_duplicate=False)] == [
        "a",
        "b.0",
        "b.1",
        "c",
    ]
    assert dict(named_units(net))["b.0"] is tanh


class Arguments(nn.Module):
    """Returns what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = APL(init="relu")

    def forward(self, x: Tensor, scale: Tensor, mask: Tensor | None = None) -> tuple[Any, ...]:
        return self.unit(x), scale, mask


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((1.0, 2.0), (1.0, 2.0, None)),
        ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),
        ([1.0, 2.0, 3.0, 4.0], (1.0, 2.0, None)),
        ({"x": 1.0, "scale": 2.0, "mask": 3.0}, (1.0, 2.0, 3.0)),
    ],
    ids=["required", "all", "with labels", "by name"],
)
def test_example_inputs(inputs: Any, expected: tuple[float | None, ...]) -> None:
    tensors = torch.utils._pytree.tree_map(torch.tensor, inputs)
    assert call(Arguments(), tensors) == expected


def test_batches_of_a_loader_bring_what_forward_requires() -> None:
    x, scale, label = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(7.0)
    net, outputs = Arguments(), []
    with hooked({"net": net}, lambda name, input, output: outputs.append(output)):
        watch(net, [(x, scale, label), {"x": x, "scale": scale, "label": label}], lambda *_: None)
    assert outputs == [(1.0, 2.0, None)] * 2
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(8, 3), torch.zeros(8)), batch_size=4
    )
    seen: list[torch.Size] = []
    watch(nn.Sequential(nn.Linear(3, 2), APL(2)), loader, lambda _, input: seen.append(input.shape))
    assert seen == [(4, 2), (4, 2)]


def test_refuses_what_is_no_batch() -> None:
    with pytest.raises(TypeError, match=r"batches must be an iterable of batches.* got a Tensor"):
        observe_ranges(APL(), torch.zeros(3))
    with pytest.raises(TypeError, match=r"example_inputs must be a tensor, a tuple .* got int"):
        call(APL(), 3)


@pytest.mark.slow
def test_compiled_models_are_seen() -> None:
    net = nn.Sequential(nn.Linear(3, 4), APL(4))
    compiled = torch.compile(net, backend="eager")
    compiled(BATCH)
    assert observe_ranges(compiled, [BATCH]).keys() == {"_orig_mod.1"}
