"""What a forward does beside computing: it stays in force after a swap, or the call is left."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from torchapl import describe, restore_activations, swap_activations
from torchapl.surgery.trace import NotTraceableError, trace

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Has everything that a forward may write to; what it does is given."""

    shared: ClassVar[list[Any]] = []

    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.child = nn.Linear(4, 8), nn.Linear(8, 2), nn.BatchNorm1d(8)
        self.register_buffer("mean", torch.ones(8))
        self.plain = torch.ones(8)
        self.log: list[Any] = []
        self.few: deque[Any] = deque(maxlen=3)
        self.seen: set[Any] = {1, 2, 3}
        self.cache: dict[str, Any] = {"old": 0, "nested": [{}]}
        self.pair: tuple[list[Any], ...] = ([], [])
        self.state = SimpleNamespace(hidden=None, all=[])
        self.generator = torch.Generator()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)

    def outputs(self, hidden: Tensor) -> Tensor:
        return self.second(F.relu(hidden))


def reason_for_leaving(net: nn.Module) -> str:
    """Return why the only call is left, and see that it is."""
    with pytest.warns(UserWarning, match="found no activation to swap"):
        assert swap_activations(net, X) is net
    (left,) = describe(net).left
    return left.reason


def within(context: Callable[[], Any]) -> Callable[[Net, Tensor], Tensor]:
    def run(net: Net, x: Tensor) -> Tensor:
        with context():
            hidden = net.first(x)
        return net.outputs(hidden.float())

    return run


def left_on(net: Net, x: Tensor) -> Tensor:
    hidden = net.first(x)
    torch.set_grad_enabled(not torch.is_grad_enabled())
    return net.outputs(hidden)


@pytest.mark.parametrize(
    "run",
    [
        within(torch.no_grad),
        within(torch.enable_grad),
        within(torch.inference_mode),
        torch.no_grad()(lambda net, x: net.outputs(net.first(x))),
        left_on,
        within(lambda: torch.autocast("cpu", enabled=True)),
        within(lambda: torch.autocast("cpu", enabled=False)),
        within(lambda: torch.autocast("cpu", dtype=torch.float16)),
        within(lambda: torch.autocast("cuda", enabled=False)),
    ],
)
@pytest.mark.parametrize("around", [nullcontext, torch.no_grad, lambda: torch.autocast("cpu")])
def test_changes_of_the_modes_of_torch_are_noticed(run: Any, around: Any) -> None:
    with around():
        before = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        with pytest.raises(NotTraceableError, match="forward changes the mode of gradients or aut"):
            trace(Net(run), {})
        assert (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")) == before


def test_a_part_in_half_precision_stays_so() -> None:
    net = Net(within(lambda: torch.autocast("cpu", enabled=True)))
    before = net(X)
    assert "forward changes the mode of gradients or autocast" in reason_for_leaving(net)
    assert torch.equal(net(X), before)


def test_what_was_frozen_stays_frozen() -> None:
    net = Net(within(torch.no_grad))
    reason_for_leaving(net)
    net(X).sum().backward()
    assert net.first.weight.grad is None
    assert net.second.weight.grad is not None


def test_a_flag_that_follows_the_gradients_is_not_that_of_training() -> None:
    def run(net: Net, x: Tensor) -> Tensor:
        return F.dropout(net.outputs(net.first(x)), training=torch.is_grad_enabled())

    with torch.no_grad():
        reason = reason_for_leaving(Net(run))
    assert "forward computes with the mode of gradients or autocast" in reason


def running_mean(net: Net, x: Tensor) -> Tensor:
    hidden = net.first(x)
    net.mean.mul_(0.5).add_(hidden.detach().mean(0))
    net.child.running_var.data.mul_(0.9)
    return net.outputs(hidden - net.mean)


def test_buffers_are_read_and_written_as_before() -> None:
    original = Net(running_mean)
    net = swap_activations(copy.deepcopy(original), X)
    assert [swap.kind for swap in describe(net).swaps] == ["ReLU"]
    for step in range(3):
        for name, buffer in original.named_buffers():
            assert torch.equal(net.get_buffer(name), buffer), (name, step)
        assert torch.equal(net(X), original(X))


def test_parts_of_a_buffer_as_long_as_the_input() -> None:
    def run(net: Net, x: Tensor) -> Tensor:
        return net.outputs(net.first(x) + net.mean[: x.size(0)].sum())

    net = Net(run)
    swapped = swap_activations(copy.deepcopy(net), X)
    assert [swap.kind for swap in describe(swapped).swaps] == ["ReLU"]
    assert torch.equal(swapped(X[:3]), net(X[:3]))


def doing(act: Callable[[Net, Tensor], object]) -> Callable[[Net, Tensor], Tensor]:
    def run(net: Net, x: Tensor) -> Tensor:
        hidden = net.first(x)
        act(net, hidden)
        return net.outputs(hidden)

    return run


def branch_on_buffer(net: Net, x: Tensor) -> Tensor:
    hidden = net.first(x)
    return net.outputs(10 * hidden if net.mean[0] > 5 else hidden)


def branch_on_tensor(net: Net, x: Tensor) -> Tensor:
    hidden = net.first(x)
    return net.outputs(10 * hidden if net.plain[0] > 5 else hidden)


@torch.no_grad()
def clamp(net: Net, hidden: Tensor) -> None:
    for parameter in net.parameters():
        parameter.clamp_(-0.01, 0.01)


HOLDS = "forward sets attributes or changes what they hold"
DRAWS = "forward draws random numbers"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (doing(lambda net, hidden: net.log.append(hidden)), HOLDS),
        (doing(lambda net, hidden: net.few.append(hidden)), HOLDS),
        (doing(lambda net, hidden: net.seen.add(hidden)), HOLDS),
        (doing(lambda net, hidden: net.seen.remove(2)), HOLDS),
        (doing(lambda net, hidden: net.cache.pop("old")), HOLDS),
        (doing(lambda net, hidden: net.shared.append(hidden)), HOLDS),
        (doing(lambda net, hidden: net.pair[1].append(hidden)), HOLDS),
        (doing(lambda net, hidden: net.cache.update(h=hidden)), HOLDS),
        (doing(lambda net, hidden: net.cache.update(old=net.cache["old"] + 1)), HOLDS),
        (doing(lambda net, hidden: net.cache["nested"][0].update(h=hidden)), HOLDS),
        (doing(lambda net, hidden: setattr(net.child, "mask", hidden)), HOLDS),
        (doing(lambda net, hidden: setattr(net.child, "momentum", 0.5)), HOLDS),
        (doing(lambda net, hidden: setattr(net.child, "running_var", hidden[0])), HOLDS),
        (doing(lambda net, hidden: setattr(net, "mean", net.mean + 1)), HOLDS),
        (doing(lambda net, hidden: setattr(net.state, "hidden", hidden)), HOLDS),
        (doing(lambda net, hidden: net.state.all.append(hidden)), HOLDS),
        (
            doing(lambda net, hidden: setattr(net.mean, "data", hidden[0])),
            "sets 'data' of a tensor",
        ),
        (doing(lambda net, hidden: net.plain.mul_(2)), "writes into a tensor"),
        (doing(lambda net, hidden: net.plain.data.mul_(2)), "writes into a tensor"),
        (doing(lambda net, hidden: next(net.buffers()).mul_(2)), "writes into a tensor"),
        (doing(clamp), "writes into a tensor"),
        (branch_on_buffer, "control flow"),
        (branch_on_tensor, "reads a number from a tensor"),
        (doing(lambda net, hidden: random.random()), DRAWS),
        (doing(lambda net, hidden: np.random.rand()), DRAWS),  # noqa: NPY002
        (doing(lambda net, hidden: torch.rand(1)), DRAWS),
        (doing(lambda net, hidden: torch.rand(1, generator=net.generator)), DRAWS),
        (doing(lambda net, hidden: torch.manual_seed(7)), DRAWS),
    ],
)
def test_tracing_leaves_no_trace(run: Any, reason: str) -> None:
    net = Net(run)
    before, states = everything(net), random_states(net)
    with pytest.raises(NotTraceableError, match=reason):
        trace(net, {})
    assert everything(net) == before
    assert random_states(net) == states


def test_a_model_that_remembers_goes_on_doing_so() -> None:
    def remember(net: Net, hidden: Tensor) -> None:
        net.log.append(hidden)
        net.cache["hidden"] = net.child.mask = hidden

    net = Net(doing(remember))
    assert HOLDS in reason_for_leaving(net)
    assert all(type(tensor) is Tensor for tensor in (*net.log, net.cache["hidden"], net.child.mask))
    length = len(net.log)
    net(X)
    assert len(net.log) == length + 1
    assert net.cache["hidden"] is net.child.mask is net.log[-1]


def everything(net: Net) -> str:
    """Return all that a net holds as text."""
    parts = {name: {**vars(part), "training": 0} for name, part in net.named_modules()}
    return repr((parts, net.shared, {name: vars(part) for name, part in net.named_children()}))


def random_states(net: Net) -> list[Any]:
    torch_states = torch.get_rng_state(), net.generator.get_state()
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    return [random.getstate(), str(numpy_state), *(state.tolist() for state in torch_states)]


@pytest.fixture(autouse=True)
def _nothing_shared() -> Iterator[None]:
    Net.shared.clear()
    yield
    Net.shared.clear()


def graph_module() -> fx.GraphModule:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.act = nn.Linear(4, 8), nn.Linear(8, 2), nn.GELU()

        def forward(self, x: Tensor) -> Tensor:
            return self.second(F.relu(self.first(x))) + self.act(x)[:, :2]

    return fx.symbolic_trace(Plain())


def test_a_graph_module_is_swapped_copied_pickled_and_restored() -> None:
    original = graph_module()
    code, before = original.code, original(X)
    net = swap_activations(copy.deepcopy(original), X)
    assert [swap.name for swap in describe(net).swaps] == ["relu_1", "act"]
    torch.testing.assert_close(net(X), before, atol=1e-3, rtol=0)
    for twin in (net, copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(X), net(X))
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), net):
        restored = restore_activations(twin)
        assert type(restored).__name__ == "GraphModule"
        assert restored.code == code
        assert torch.equal(restored(X), before)
        assert restored.graph.owning_module is restored
        assert torch.equal(copy.deepcopy(restored)(X), before)


def test_a_graph_module_is_swapped_twice() -> None:
    original = graph_module()
    before = original(X)
    once = swap_activations(original, X, match=lambda name, module: isinstance(module, nn.ReLU))
    twice = swap_activations(once, X, match=lambda name, module: isinstance(module, nn.GELU))
    assert [swap.name for swap in describe(twice).swaps] == ["relu_1", "act"]
    assert torch.equal(restore_activations(twice)(X), before)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.shift = nn.Linear(4, 8), nn.ReLU6(), nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.act(self.first(x)) - self.shift)


def test_swaps_in_threads() -> None:
    own, interval = (nn.Module.__call__, nn.Module.__getattr__), sys.getswitchinterval()
    swapped: list[int] = []
    stop = threading.Event()
    bystander = Functional()
    expected, outputs = bystander(X), list[bool]()

    def swap() -> None:
        for _ in range(10):
            net = swap_activations(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Functional()), X)
            swapped.append(len(describe(net).swaps))

    def stand_by() -> None:
        while not stop.is_set():
            outputs.append(torch.equal(bystander(X), expected))

    threads = [threading.Thread(target=swap) for _ in range(4)]
    other = threading.Thread(target=stand_by)
    sys.setswitchinterval(1e-5)  # many changes of threads within one swap
    try:
        for thread in (*threads, other):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        other.join()
    finally:
        sys.setswitchinterval(interval)
    assert swapped == [3] * 40
    assert outputs
    assert all(outputs)
    assert (nn.Module.__call__, nn.Module.__getattr__) == own
