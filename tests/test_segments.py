"""Steps by the slopes of segments: what an optimiser does to them, and that nobody else notices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from torchapl import APL, apl, parameter_groups
from torchapl.ops import extension
from torchapl.ops.schema import segment_gradients_operator, segment_step_operator
from torchapl.segments import UNIT, segment_settings

Maker = Callable[[Any], torch.optim.Optimizer]
OPTIMISERS: dict[str, Maker] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.02),
    "adamw, fused": lambda groups: torch.optim.AdamW(groups, lr=0.02, fused=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.02),
}
X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))


def to_segments(slope: Tensor) -> Tensor:
    """Return the slopes of the segments left of each hinge."""
    return -slope.flip(0).cumsum(0).flip(0)


def to_hinges(segments: Tensor) -> Tensor:
    return segments.diff(dim=0, append=torch.zeros_like(segments[:1]))


def start() -> APL:
    torch.manual_seed(1)
    unit = APL(3, num_hinges=5)
    with torch.no_grad():
        unit.slope.normal_(0, 0.2)
        unit.offset.copy_(torch.linspace(-2, 2, 5)[:, None])
    return unit


def loss(output: Tensor) -> Tensor:
    return (output - X.sin()).square().mean()


def train(unit: APL, optimizer: torch.optim.Optimizer, steps: int = 20) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(unit(X)).backward()
        optimizer.step()


def test_segments_are_the_slopes_between_hinges() -> None:
    slope, offset = torch.tensor([0.3, -0.5, 0.1])[:, None], torch.tensor([-2.0, 0.5, 1.0])[:, None]
    # Left of every hinge but right of the next one on the left; max(0, x) adds 1 right of 0.
    x = torch.tensor([[-3.0], [-1.0], [0.75]], requires_grad=True)
    apl(x, slope, offset).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad - (x > 0).float(), to_segments(slope))
    torch.testing.assert_close(to_hinges(to_segments(slope)), slope)


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_a_step_is_one_of_segment_slopes(make: Maker) -> None:
    unit = start()
    segments = nn.Parameter(to_segments(unit.slope.detach()) / UNIT)
    offset = nn.Parameter(unit.offset.detach().clone())
    by_hand = make([{"params": [segments, offset], "weight_decay": 0.0}])
    train(unit, make(parameter_groups(unit)))
    for _ in range(20):
        by_hand.zero_grad()
        loss(apl(X, to_hinges(segments) * UNIT, offset)).backward()
        by_hand.step()
    torch.testing.assert_close(unit.slope, to_hinges(segments) * UNIT)
    torch.testing.assert_close(unit.offset, offset)


@pytest.mark.parametrize("named", [False, True])
def test_a_closure_gives_the_same_step(named: bool) -> None:
    plain, closed = start(), start()
    train(plain, torch.optim.Adam(parameter_groups(plain), lr=0.02))
    optimizer = torch.optim.Adam(parameter_groups(closed), lr=0.02)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(closed(X))
        value.backward()
        return value

    for _ in range(20):
        value = optimizer.step(closure=closure) if named else optimizer.step(closure)
        assert isinstance(value, Tensor)
    assert torch.equal(plain.slope, closed.slope)


def test_the_gradient_is_the_slope_s_own_after_the_step() -> None:
    unit = start()
    optimizer = torch.optim.SGD(parameter_groups(unit), lr=0.1)
    loss(unit(X)).backward()
    before = unit.slope.grad
    assert before is not None
    values = before.clone()
    optimizer.step()
    assert unit.slope.grad is before
    assert torch.equal(before, values)


def test_an_optimiser_that_calls_another_steps_once() -> None:
    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    unit, twin = start(), start()
    train(unit, torch.optim.SGD(parameter_groups(unit), lr=0.1))
    train(twin, Outer(parameter_groups(twin), lr=0.1))
    assert torch.equal(unit.slope, twin.slope)


def test_without_marked_groups_nothing_changes() -> None:
    unit = start()
    loss(unit(X)).backward()
    assert unit.slope.grad is not None
    # Rounded once, as in the optimiser.
    expected = unit.slope.detach().add(unit.slope.grad, alpha=-0.1)
    torch.optim.SGD(parameter_groups(unit, steps="slopes"), lr=0.1).step()
    assert torch.equal(unit.slope, expected)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_order_of_groups_makes_no_difference(frozen: bool) -> None:
    net, twin = (nn.ModuleList([start(), nn.Linear(3, 3), start()]) for _ in range(2))
    twin.load_state_dict(net.state_dict())
    results = []
    for model, slopes_first in ((net, False), (twin, True)):
        groups = parameter_groups(model)
        # Slopes without gradients are of no account.
        groups.insert(0, {"params": [nn.Parameter(torch.ones(2, 3))], **segment_settings(0.0)})
        groups.sort(key=lambda group: ("segment_unit" in group) != slopes_first)
        optimizer = torch.optim.SGD(groups, lr=0.1)
        model[0].requires_grad_(not frozen)
        loss(model[2](model[1](model[0](X)))).backward()
        optimizer.step()
        results.append([parameter.detach() for parameter in model.parameters()])
    assert all(map(torch.equal, *results))
    before = start().slope
    assert torch.equal(results[0][0], before) == frozen
    assert not torch.equal(results[0][4], before)


def test_a_step_keeps_its_other_arguments() -> None:
    class Scaled(torch.optim.SGD):
        def step(self, closure: Any, factor: float) -> float:
            super().step(closure)
            return factor

    unit = start()

    def closure() -> Tensor:
        value = loss(unit(X))
        value.backward()
        return value

    assert Scaled(parameter_groups(unit), lr=0.1).step(closure, 0.5) == 0.5


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs gloo")
def test_sharded_slopes_take_the_same_step() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    slope, grad = torch.randn(4, 3), torch.randn(4, 3)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        plain = nn.Parameter(slope.clone())
        sharded = nn.Parameter(distribute_tensor(slope.clone(), mesh, [Shard(0)]))
        plain.grad, sharded.grad = grad.clone(), distribute_tensor(grad.clone(), mesh, [Shard(0)])
        for parameter in (plain, sharded):
            group = {"params": [parameter], **segment_settings(0.01)}
            torch.optim.SGD([group], lr=0.1, momentum=0.9).step()
        assert sharded.placements == (Shard(0),)
        assert torch.equal(sharded.full_tensor(), plain)
        assert torch.equal(sharded.grad.full_tensor(), grad)
    finally:
        distributed.destroy_process_group()


def test_decay_is_a_penalty_on_slopes() -> None:
    decayed, penalised = start(), start()
    train(decayed, torch.optim.SGD(parameter_groups(decayed, curve_decay=0.1), lr=0.1), 1)
    optimizer = torch.optim.SGD(parameter_groups(penalised), lr=0.1)
    penalty = 0.05 * (penalised.slope.square().sum() + penalised.offset.square().sum())
    (loss(penalised(X)) + penalty).backward()
    optimizer.step()
    torch.testing.assert_close(decayed.slope, penalised.slope)
    torch.testing.assert_close(decayed.offset, penalised.offset)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kernels", [False, True])
def test_decay_alone_is_that_of_the_optimiser(
    kind: Any,
    maximize: bool,
    fused: bool,
    scaled: bool,
    kernels: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit, plain = (APL(3, num_hinges=1, init="leaky") for _ in range(2))
    # A single hinge is a segment but for the unit, which counts twice in SGD and once in Adam.
    rate = 0.1 * UNIT**2 if kind is torch.optim.SGD else 0.1 * UNIT
    groups = parameter_groups(unit, curve_decay=0.5)[:1]
    by_segments = kind(groups, lr=0.1, maximize=maximize, fused=fused)
    by_torch = kind([plain.slope], lr=rate, weight_decay=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    if not kernels:
        monkeypatch.setattr(extension, "has_kernels", lambda: False)
    for _ in range(5):
        by_segments.zero_grad()
        scaler.scale(0 * unit(X).sum()).backward()
        scaler.step(by_segments)
        scaler.update()
        plain.slope.grad = torch.zeros_like(plain.slope)
        by_torch.step()
    assert plain.slope.abs().max() < 0.25
    torch.testing.assert_close(unit.slope, plain.slope)


def test_training_resumes_from_a_checkpoint() -> None:
    straight = start()
    optimizer = torch.optim.Adam(parameter_groups(straight), lr=0.02)
    train(straight, optimizer, 10)
    resumed = copy.deepcopy(straight)
    second = torch.optim.Adam(parameter_groups(resumed), lr=0.02)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(straight, optimizer, 10)
    train(resumed, second, 10)
    assert torch.equal(straight.slope, resumed.slope)
    assert list(resumed.state_dict()) == ["slope", "offset"]


def test_a_skipped_step_leaves_the_curve() -> None:
    unit = start()
    optimizer = torch.optim.SGD(parameter_groups(unit), lr=0.0)
    before = unit.slope.detach().clone()
    train(unit, optimizer, 3)
    assert torch.equal(unit.slope, before)
    optimizer.zero_grad()
    optimizer.step()
    assert torch.equal(unit.slope, before)


@pytest.mark.parametrize("hinges", [2, 32])
def test_a_step_moves_the_curve_equally_far_with_many_hinges(hinges: int) -> None:
    unit = APL((), num_hinges=hinges)
    with torch.no_grad():
        unit.slope.zero_()
        unit.offset.copy_(torch.linspace(-3, 3, hinges))
    # Adam's first step moves every coordinate by the rate, here all in one direction.
    unit(torch.full((1,), -3.0)).sum().backward()
    torch.optim.Adam(parameter_groups(unit), lr=0.01).step()
    # 6 wide, by the rate times the unit.
    moved = unit(torch.full((1,), -3.0)).abs().item()
    assert moved == pytest.approx(6 * 0.01 * UNIT, rel=0.05)


def test_lbfgs_is_refused() -> None:
    unit = start()
    optimizer = torch.optim.LBFGS(parameter_groups(unit)[:1], lr=0.1)
    with pytest.raises(TypeError, match="LBFGS"):
        optimizer.step(lambda: loss(unit(X)))


def test_half_precision() -> None:
    unit = start().to(torch.bfloat16)
    optimizer = torch.optim.SGD(parameter_groups(unit), lr=0.1)
    unit(X.to(torch.bfloat16)).square().mean().backward()
    optimizer.step()
    assert unit.slope.dtype is torch.bfloat16
    assert unit.slope.isfinite().all()


needs_kernels = pytest.mark.skipif(not extension.has_kernels(), reason="needs the kernels")
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda tensor: tensor,
    "channels last": lambda tensor: tensor.to(memory_format=torch.channels_last),
    "hinges last": lambda tensor: tensor.movedim(0, -1).contiguous().movedim(-1, 0),
    "one hinge": lambda tensor: tensor[:1].contiguous(),
    "with holes": lambda tensor: torch.stack([tensor, tensor])[0].repeat(1, 1, 1, 2)[..., ::2],
}


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grad_layout", ["same", "contiguous"])
def test_the_compiled_step_is_the_plain_one(
    dtype: torch.dtype, layout: str, grad_layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    values = [LAYOUTS[layout](torch.randn(4, 3, 2, 5, dtype=torch.float64)) for _ in range(4)]
    results = []
    for compiled, of_type in ((True, dtype), (False, torch.float64)):
        # The exact step begins at the same numbers.
        slopes = [nn.Parameter(v.to(dtype).to(of_type)) for v in values[:2]]
        assert slopes[0].stride() == values[0].stride() or layout == "with holes"
        grads = [v.to(dtype).to(of_type) for v in values[2:]]
        if grad_layout == "contiguous":
            grads = [grad.contiguous() for grad in grads]
        for slope, grad in zip(slopes, grads, strict=True):
            slope.grad = grad
        monkeypatch.setattr(extension, "has_kernels", lambda compiled=compiled: compiled)
        optimizer = torch.optim.SGD([{"params": slopes, **segment_settings(0.1)}], lr=0.5)
        optimizer.step()
        results.append([slope.detach() for slope in slopes])
        assert all(slope.grad is grad for slope, grad in zip(slopes, grads, strict=True))
    for found, expected in zip(*results, strict=True):
        # Half precision rounds the gradient, the optimiser's step and the slope.
        tolerance = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@needs_kernels
def test_the_operators_refuse_what_does_not_fit() -> None:
    slope, grad = torch.zeros(2, 3), torch.zeros(2, 3)
    bytes_of_one = segment_gradients_operator([grad], [slope], 0.3, 0.0)[1]
    for grads, slopes in (
        ([grad], []),
        ([grad[:, :2]], [slope]),
        ([grad.double()], [slope]),
        ([grad.long()], [slope.long()]),
        ([torch.tensor(0.0)], [torch.tensor(0.0)]),
    ):
        with pytest.raises(RuntimeError):
            segment_gradients_operator(grads, slopes, 0.3, 0.0)
    for slopes, before in (
        ([slope, slope], bytes_of_one),
        ([torch.zeros(8, 3)], bytes_of_one),
        ([slope], bytes_of_one.float()),
        ([slope], torch.zeros(128, dtype=torch.uint8)[::2]),
        ([torch.tensor(0.0)], bytes_of_one),
    ):
        with pytest.raises(RuntimeError):
            segment_step_operator(slopes, before, 0.3)
    assert not slope.any()


def test_empty_slopes() -> None:
    empty = nn.Parameter(torch.zeros(0, 3))
    empty.grad = torch.zeros(0, 3)
    torch.optim.SGD([{"params": [empty], **segment_settings(0.0)}], lr=0.1).step()


def test_a_write_into_slopes_is_noticed_by_autograd() -> None:
    unit = start()
    optimizer = torch.optim.SGD(parameter_groups(unit), lr=0.1)
    value = loss(unit(X))
    value.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.parametrize("cleared", [False, True])
def test_a_step_that_fails_has_no_part_in_the_next(cleared: bool) -> None:
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise RuntimeError("out of luck")
            return super().step(closure)

    unit, twin = start(), start()
    optimizer = Failing(parameter_groups(unit), lr=0.1)
    loss(unit(X)).backward()
    with pytest.raises(RuntimeError, match="out of luck"):
        optimizer.step()
    optimizer.fails = False
    if cleared:
        train(unit, optimizer, 2)
    else:
        # The same gradients once more: they are turned already.
        optimizer.step()
        train(unit, optimizer, 1)
    train(twin, torch.optim.SGD(parameter_groups(twin), lr=0.1), 2)
    assert torch.equal(unit.slope, twin.slope)
