from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from torchapl import APL, curve_parameters, l2_penalty, parameter_groups, slope_penalty


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), APL(8, 3), nn.Linear(8, 2), APL(2, 3))


def test_groups_hold_every_parameter_once() -> None:
    model = net()
    groups = parameter_groups(model, lr=0.1, weight_decay=5e-4, curve_lr=0.02, curve_decay=1e-3)
    weights, slopes, offsets = groups
    assert (weights["lr"], weights["weight_decay"]) == (0.1, 5e-4)
    assert (slopes["lr"], slopes["weight_decay"], slopes["slope_decay"]) == (0.02, 0.0, 1e-3)
    assert (offsets["lr"], offsets["weight_decay"]) == (0.02, 1e-3)
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert [id(p) for p in slopes["params"]] == [id(model[i].slope) for i in (1, 3)]
    assert [id(p) for p in offsets["params"]] == [id(model[i].offset) for i in (1, 3)]


def test_steps_by_slopes_keep_the_curves_together() -> None:
    model = net()
    curves = parameter_groups(model, curve_decay=1e-3, steps="slopes")[1]
    assert curves == {"params": list(curve_parameters(model)), "weight_decay": 1e-3}
    with pytest.raises(ValueError, match="steps must be 'segments' or 'slopes', got 'hinges'"):
        parameter_groups(model, steps="hinges")


def test_computed_slopes_move_as_their_parameters_do() -> None:
    unit = APL(4)
    nn.utils.parametrizations.weight_norm(unit, "slope")
    (group,) = parameter_groups(unit)
    assert len(group["params"]) == 3
    assert "segment_unit" not in group


def test_groups_leave_to_the_optimiser_what_is_not_given() -> None:
    groups = parameter_groups(net())
    assert all("lr" not in group for group in groups)
    assert parameter_groups(net(), lr=0.1)[1]["lr"] == 0.1
    optimizer = torch.optim.AdamW(groups, lr=0.3, weight_decay=0.05)
    assert [group["lr"] for group in optimizer.param_groups] == [0.3, 0.3, 0.3]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.05, 0.0, 0.0]
    optimizer = torch.optim.AdamW(parameter_groups(net(), weight_decay=0.0), weight_decay=0.05)
    assert optimizer.param_groups[0]["weight_decay"] == 0


def test_frozen_parameters_are_left_out() -> None:
    model = net()
    model[1].requires_grad_(False)
    model[0].requires_grad_(False)
    assert [len(group["params"]) for group in parameter_groups(model)] == [2, 1, 1]
    for unit in (model[1], model[3]):
        unit.requires_grad_(False)
    assert [len(group["params"]) for group in parameter_groups(model)] == [2]


def test_shared_units_count_once() -> None:
    unit = APL(4, init="leaky")
    model = nn.Sequential(nn.Linear(4, 4), unit, nn.Linear(4, 4), unit)
    assert len(list(curve_parameters(model))) == 2
    tied = APL(4)
    tied.slope = unit.slope
    model.append(tied)
    assert len(list(curve_parameters(model))) == 3
    assert slope_penalty(model).item() == pytest.approx(1.0)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_every_optimiser_takes_the_groups(optimizer: type[torch.optim.Optimizer]) -> None:
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    stepper = optimizer(parameter_groups(model, lr=0.1))
    model(torch.randn(16, 4)).square().sum().backward()
    stepper.step()
    for old, new in zip(before, model.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_l2_penalty_is_weight_decay() -> None:
    model, factor = net(), 0.01
    l2_penalty(model, factor).backward()
    for parameter in curve_parameters(model):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, factor * parameter.detach())
    assert model[0].weight.grad is None


def test_slope_penalty_is_the_total_variation_of_the_derivative() -> None:
    unit = APL((), 3)
    with torch.no_grad():
        unit.slope.copy_(torch.tensor([0.5, -0.25, 1.0]))
        unit.offset.copy_(torch.tensor([-1.0, 0.5, 2.0]))
    penalty = slope_penalty(unit)
    penalty.backward()
    assert unit.slope.grad is not None
    assert torch.equal(unit.slope.grad, torch.tensor([1.0, -1.0, 1.0]))
    x = torch.linspace(-3, 3, 601, requires_grad=True)
    (derivative,) = torch.autograd.grad(unit(x[None]).sum(), x)
    # The rectifier itself adds a jump of 1 at 0.
    assert derivative.diff().abs().sum().item() == pytest.approx(penalty.item() + 1)


def test_a_model_without_units_has_no_penalty() -> None:
    model = nn.Linear(2, 2)
    assert l2_penalty(model).item() == 0
    assert slope_penalty(model).item() == 0
    assert len(parameter_groups(model)) == 1


def test_parametrized_curves() -> None:
    model = nn.Sequential(nn.Linear(4, 8), APL(8, 1, init="leaky"))
    torch.nn.utils.parametrize.register_parametrization(model[1], "slope", nn.Tanh())
    weights, curves = parameter_groups(model, lr=0.1)
    assert len(weights["params"]) == len(curves["params"]) == 2
    torch.optim.SGD([weights, curves])
    # Penalties are of what the unit computes with.
    assert slope_penalty(model).item() == pytest.approx(8 * math.tanh(0.25))
    assert l2_penalty(model, 2.0).item() == pytest.approx(8 * math.tanh(0.25) ** 2)
