from __future__ import annotations

import pytest
import torch

from torchapl.paper.activations import Activation
from torchapl.paper.nets import build
from torchapl.paper.rivals import policy_cost

SHAPE = (3, 16, 16)


@pytest.fixture
def net():
    net = build(
        "dasnet", activation=Activation.parse("relu"), input_shape=SHAPE, num_classes=3, width=0.02
    )
    with torch.no_grad():
        for parameter in net.parameters():
            # Its own start is too small for gates to matter.
            parameter.normal_(std=0.3)
    return net.eval()


def test_the_first_policy_is_the_plain_network(net):
    images = torch.randn(4, *SHAPE)
    torch.testing.assert_close(net.predict(images), net(images))


def test_gates_reach_the_maps(net):
    images = torch.randn(4, *SHAPE)
    net.policy.normal_()
    assert not torch.allclose(net.predict(images), net(images))
    net.passes = 1
    torch.testing.assert_close(net.predict(images), net(images))


def test_the_search_lowers_the_cost_and_leaves_the_network(net):
    images, labels = torch.randn(24, *SHAPE), torch.arange(24) % 3
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    net.train()

    def cost():
        net.eval()
        return policy_cost(net.predict(images), labels, net.policy)

    first = cost()
    net.train()
    net.search_policy(images, labels, generations=40)
    assert net.training
    assert cost() < 0.95 * first
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


def test_the_search_runs_at_the_end_of_a_training_only(net):
    images, labels = torch.randn(4, *SHAPE), torch.tensor([0, 1, 2, 0])
    net.train()
    net(images)
    assert net.extra_loss(labels, 0.5) == 0
    assert not net.policy.any()
    net(images)
    assert net.extra_loss(labels, 0.98) == 0
    assert not net.policy.any()
    net(images)
    assert net.extra_loss(labels, 0.995) == 0
    assert net.policy.any()
    assert "policy" in net.state_dict()
