from __future__ import annotations

import pytest
import torch
from torch import nn

from torchapl.paper.activations import Activation
from torchapl.paper.config import Optim
from torchapl.paper.nets import build
from torchapl.paper.optim import CaffeSGD, ParameterMultiplier, build_optimizer, set_schedule


def test_caffe_sgd_follows_the_trajectory_computed_by_hand() -> None:
    """V <- mu V + lr (g + decay w); w <- w - V, with momentum ramp and a falling rate."""
    optim = Optim(
        lr=0.1,
        schedule="list",
        factors=((3, 1.0), (5, 0.1), (9, 0.01)),
        momentum=0.9,
        momentum_start=0.5,
        momentum_ramp=2.0,
        weight_decay=0.01,
    )
    start = torch.randn(5, dtype=torch.float64)
    target = torch.randn(5, dtype=torch.float64)
    parameter = nn.Parameter(start.clone())
    optimizer = build_optimizer([ParameterMultiplier(parameter)], optim)
    assert isinstance(optimizer, CaffeSGD)

    w, v = start.clone(), torch.zeros(5, dtype=torch.float64)
    for step in range(9):
        optimizer.zero_grad()
        (parameter - target).square().sum().backward()
        set_schedule(optimizer, optim, step, 9)
        optimizer.step()

        rate = 0.1 if step < 3 else 0.01 if step < 5 else 0.001
        mu = 0.9 - 0.4 * torch.tensor(-step / 2.0, dtype=torch.float64).exp()
        v = mu * v + rate * (2 * (w - target) + 0.01 * w)
        w = w - v
        torch.testing.assert_close(parameter.detach(), w, rtol=1e-13, atol=1e-14)


def test_caffe_sgd_differs_from_torch_when_the_rate_changes() -> None:
    results = []
    for kind in (CaffeSGD, torch.optim.SGD):
        parameter = nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = kind([parameter], lr=0.1, momentum=0.9)
        for rate in (0.1, 0.01):
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = torch.ones(1, dtype=torch.float64)
            optimizer.step()
        results.append(parameter.item())
    # Caffe: 1 - .1 - (.09 + .01); torch: 1 - .1 - .01 * 1.9
    assert results == pytest.approx([0.8, 0.881])


def test_state_survives_a_checkpoint() -> None:
    optim = Optim(lr=0.1, momentum=0.9)

    def steps(
        parameter: nn.Parameter, optimizer: torch.optim.Optimizer, rates: list[float]
    ) -> None:
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = parameter.detach().clone()
            optimizer.step()

    whole = nn.Parameter(torch.ones(3))
    steps(whole, build_optimizer([ParameterMultiplier(whole)], optim), [0.1, 0.1, 0.01, 0.01])

    first = nn.Parameter(torch.ones(3))
    optimizer = build_optimizer([ParameterMultiplier(first)], optim)
    steps(first, optimizer, [0.1, 0.1])
    second = nn.Parameter(first.detach().clone())
    resumed = build_optimizer([ParameterMultiplier(second)], optim)
    resumed.load_state_dict(optimizer.state_dict())
    steps(second, resumed, [0.01, 0.01])
    assert torch.equal(whole, second)


def test_groups_follow_the_multipliers_of_the_network() -> None:
    apl = Activation.parse("apl:2")
    net = build("nin", activation=apl, input_shape=(3, 32, 32), num_classes=10, width=0.05)
    optim = Optim(lr=0.05, weight_decay=1e-4, curve_decay=1e-3)
    optimizer = build_optimizer(net.parameter_multipliers(), optim)
    of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    assert len(of) == len(list(net.parameters()))
    for name, parameter in net.named_parameters():
        group = of[id(parameter)]
        if name.endswith(("slope", "offset")):
            assert (group["lr_factor"], group["weight_decay"]) == (1.0, 1e-3)
        elif name.endswith("bias"):
            assert group["weight_decay"] == 0
    assert {group["lr_factor"] for group in optimizer.param_groups} == {1.0, 2.0, 0.1}


def test_frozen_curves_are_not_trained() -> None:
    frozen = Activation.parse("apl:1:unit:frozen")
    net = build("higgs-dnn", activation=frozen, input_shape=(5,), num_classes=1, width=0.05)
    optimizer = build_optimizer(net.parameter_multipliers(), Optim())
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in net.named_parameters():
        assert (id(parameter) in trained) == (not name.endswith(("slope", "offset")))


def test_factors_of_the_learning_rate_are_for_sgd() -> None:
    weight, slope = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    factors = [
        ParameterMultiplier(weight, 0.1, 0.0, "weight"),
        ParameterMultiplier(slope, 0.1, 1.0, "curve"),
    ]
    rates = {
        kind: [
            group["lr_factor"]
            for group in build_optimizer(factors, Optim(kind=kind, curve_lr=3.0)).param_groups
        ]
        for kind in ("sgd", "caffe-sgd", "adamw")
    }
    assert rates["sgd"] == rates["caffe-sgd"] == pytest.approx([0.1, 0.3])
    assert rates["adamw"] == [1.0, 3.0]


def test_a_rate_may_fall_on_its_own() -> None:
    fixed, falling = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    multipliers = [ParameterMultiplier(fixed), ParameterMultiplier(falling, 0.001, lr_fall=20.0)]
    optim = Optim(lr=0.025)
    optimizer = build_optimizer(multipliers, optim)
    # After 50,000 of 200,000 iterations, as (1 + 0.0001 * 50,000) ** -0.75 in the authors' solver.
    set_schedule(optimizer, optim, 50_000, 200_000)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([0.025, 0.025 * 0.001 * 6**-0.75])


def test_slopes_move_by_segments_where_the_settings_say_so() -> None:
    slope, offset = nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(2, 3))
    multipliers = [
        ParameterMultiplier(slope, kind="curve", is_slope=True),
        ParameterMultiplier(offset, kind="curve"),
    ]
    (together,) = build_optimizer(multipliers, Optim(curve_decay=1e-3)).param_groups
    assert len(together["params"]) == 2
    optim = Optim(curve_decay=1e-3)
    slopes, offsets = build_optimizer(multipliers, optim, "segments").param_groups
    assert slopes["params"] == [slope]
    assert (slopes["slope_decay"], slopes["weight_decay"]) == (1e-3, 0.0)
    assert "segment_unit" in slopes
    assert offsets["weight_decay"] == 1e-3
    assert "segment_unit" not in offsets
