"""Constraints, companion losses, the attention policy and its search."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torchapl.paper.rivals import (
    SNES,
    Companions,
    cross_entropy,
    gates,
    max_norm_,
    max_norm_layer_,
    policy_cost,
    squared_hinge,
)


@pytest.mark.parametrize("shape", [(5, 7), (5, 3, 4, 4)])
def test_max_norm_shortens_the_long_and_leaves_the_short(shape):
    weight = torch.randn(shape)
    weight[0] *= 100
    weight[1] *= 1e-3
    before = weight.clone()
    result = max_norm_(weight, 2.0)
    assert result is weight
    assert weight[0].norm() == pytest.approx(2.0)
    torch.testing.assert_close(F.normalize(weight.flatten(1)), F.normalize(before.flatten(1)))
    assert torch.equal(weight[1], before[1])


def test_max_norm_of_zeros_and_its_messages():
    assert not max_norm_(torch.zeros(2, 3), 1.0).any()
    with pytest.raises(ValueError, match="bound must be positive"):
        max_norm_(torch.zeros(2, 3), 0.0)
    with pytest.raises(ValueError, match=r"\(filters, \.\.\.\), got \(3,\)"):
        max_norm_(torch.zeros(3), 1.0)


def test_max_norm_of_a_layer_leaves_short_ones_and_names_mistakes():
    layer = torch.nn.Conv2d(2, 3, 3)
    before = layer.weight.clone()
    max_norm_layer_(layer, 100.0)
    assert torch.equal(layer.weight, before)
    with pytest.raises(ValueError, match="bound must be positive"):
        max_norm_layer_(layer, 0.0)


def test_squared_hinge_is_its_formula():
    logits = torch.tensor([[0.5, -2.0, 3.0], [1.5, 0.0, -1.0]], requires_grad=True)
    targets = torch.tensor([0, 1])
    # Rows: own class (1 - z)^2, others (1 + z)^2, nothing beyond the margin.
    rows = [0.5**2 + 0.0 + 4.0**2, 2.5**2 + 1.0**2 + 0.0]
    loss = squared_hinge(logits, targets)
    assert loss.item() == pytest.approx(sum(rows) / 2)
    assert squared_hinge(logits, targets, "sum").item() == pytest.approx(sum(rows))
    loss.backward()
    expected = torch.tensor([[-0.5, 0.0, 4.0], [2.5, -1.0, 0.0]])
    torch.testing.assert_close(logits.grad, expected)


def test_squared_hinge_of_a_single_logit():
    loss = squared_hinge(torch.tensor([[0.5], [0.5]]), torch.tensor([1, 0]))
    assert loss.item() == pytest.approx((0.5**2 + 1.5**2) / 2)


@pytest.mark.parametrize("loss", [cross_entropy, squared_hinge])
def test_losses_are_computed_in_float32(loss):
    logits = torch.randn(4, 3).to(torch.bfloat16)
    targets = torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(loss(logits, targets), loss(logits.float(), targets))


def test_companion_loss_is_its_formula():
    companions = Companions([(4, 2, 2), (6,)], num_classes=3, until=0.5)
    maps = [torch.randn(5, 4, 2, 2, requires_grad=True), torch.randn(5, 6, requires_grad=True)]
    targets = torch.tensor([0, 1, 2, 0, 1])
    loss = companions.loss(companions(maps), targets, progress=0.25)
    by_hand = sum(
        F.cross_entropy(map.flatten(1) @ head.weight.T + head.bias, targets)
        for head, map in zip(companions.heads, maps, strict=True)
    )
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert all(map.grad.abs().sum() > 0 for map in maps)
    assert companions.loss(companions(maps), targets, progress=0.5) == 0


def test_companions_start_as_in_caffe():
    (head,) = Companions([(300,)], num_classes=100).heads
    assert head.weight.abs().max().item() == pytest.approx(0.1, rel=1e-3)
    assert head.weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)
    assert not head.bias.any()


def test_companions_of_a_single_logit():
    companions = Companions([(6,)], num_classes=1)
    logits = companions([torch.randn(4, 6)])
    targets = torch.tensor([0, 1, 1, 0])
    expected = F.binary_cross_entropy_with_logits(logits[0][:, 0], targets.float())
    torch.testing.assert_close(companions.loss(logits, targets, 0.0), expected)


def test_companions_name_mistakes():
    companions = Companions([(6,)], num_classes=2)
    with pytest.raises(ValueError, match="maps must be 1 tensors, got 0"):
        companions([])
    with pytest.raises(ValueError, match=r"progress must be from 0 to 1, got 1\.5"):
        companions.loss(companions([torch.randn(1, 6)]), torch.tensor([0]), 1.5)
    with pytest.raises(ValueError, match="at least one map"):
        Companions([], num_classes=2)
    with pytest.raises(ValueError, match=r"until must be from 0 to 1, got -1\.0"):
        Companions([(6,)], num_classes=2, until=-1.0)


def test_gates_average_one_and_follow_the_formula():
    policy, averages = torch.randn(3 * 4), torch.randn(5, 3)
    result = gates(policy, averages)
    torch.testing.assert_close(result.mean(dim=1), torch.ones(5))
    matrix = policy.reshape(3, 4)
    logits = averages @ matrix[:, :3].T + matrix[:, 3]
    torch.testing.assert_close(result, 3 * logits.exp() / logits.exp().sum(dim=1, keepdim=True))
    with pytest.raises(ValueError, match=r"3 \* 4 numbers for 3 maps, got 5"):
        gates(torch.zeros(5), averages)


def test_policy_cost_weighs_mistakes():
    targets = torch.tensor([0, 1])
    solved, wrong = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    zero = torch.zeros(6)
    torch.testing.assert_close(policy_cost(wrong, targets, zero), F.cross_entropy(wrong, targets))
    torch.testing.assert_close(
        policy_cost(solved, targets, zero), 0.005 * F.cross_entropy(solved, targets)
    )
    torch.testing.assert_close(
        policy_cost(wrong, targets, torch.ones(4)),
        F.cross_entropy(wrong, targets) + 0.005 * 2,
    )
    single = policy_cost(torch.tensor([[3.0], [3.0]]), torch.tensor([1, 0]), zero)
    losses = F.binary_cross_entropy_with_logits(
        torch.tensor([3.0, 3.0]), torch.tensor([1.0, 0.0]), reduction="none"
    )
    torch.testing.assert_close(single, (0.005 * losses[0] + losses[1]) / 2)


@pytest.mark.parametrize("dimensions", [1, 5, 30])
def test_snes_minimises_an_ill_conditioned_bowl(dimensions):
    scales = torch.logspace(0, 2, dimensions, dtype=torch.float64)
    mean = torch.full((dimensions,), 3.0, dtype=torch.float64)
    deviation = torch.ones_like(mean)
    search = SNES(mean, deviation, population=30)
    for _ in range(600):
        search.tell((scales * (search.ask() + 1.0) ** 2).sum(dim=1))
    assert (mean + 1.0).abs().max() < 1e-3
    # It works in place: the tensors given are the state.
    assert search.mean is mean
    assert deviation.max() < 0.1


def test_snes_depends_on_ranks_alone_and_puts_nan_last():
    results = []
    for transform in (lambda cost: cost, lambda cost: cost**3 + 7):
        torch.manual_seed(0)
        mean, deviation = torch.zeros(4), torch.ones(4)
        search = SNES(mean, deviation, population=8)
        search.tell(transform((search.ask() - 1).square().sum(dim=1)))
        results.append(mean)
    torch.testing.assert_close(*results)

    torch.manual_seed(0)
    mean, deviation = torch.zeros(4), torch.ones(4)
    search = SNES(mean, deviation, population=8)
    costs = (search.ask() - 1).square().sum(dim=1)
    costs[costs.argmax()] = float("nan")
    search.tell(costs)
    torch.testing.assert_close(mean, results[0])


def test_snes_names_mistakes():
    with pytest.raises(ValueError, match=r"vectors of one length, got \(3,\) and \(2,\)"):
        SNES(torch.zeros(3), torch.ones(2))
    with pytest.raises(ValueError, match="population must be at least 2, got 1"):
        SNES(torch.zeros(3), torch.ones(3), population=1)
    search = SNES(torch.zeros(3), torch.ones(3), population=4)
    with pytest.raises(ValueError, match="was not called before"):
        search.tell(torch.zeros(4))
    search.ask()
    with pytest.raises(ValueError, match=r"shape \(4,\), got \(3,\)"):
        search.tell(torch.zeros(3))
