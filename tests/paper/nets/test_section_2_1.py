"""Section 2.1 of the paper: maxout and MLPConv can be APL, at the price of many more parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from torchapl import APL
from torchapl.curves import MaxoutPair, count_parameters, to_maxout, to_mlpconv
from torchapl.paper.activations import Activation
from torchapl.paper.nets import build
from torchapl.paper.nets.sizes import layer_sizes, section_2_1_table

DOCUMENT = Path(__file__).parents[3] / "docs" / "rivals.md"
NETS = [
    ("cifar-cnn", (3, 12, 12), 4),
    ("cifar-cnn-100", (3, 12, 12), 4),
    ("nin", (3, 12, 12), 4),
    ("higgs-dnn", (25,), 1),
]


def trained_looking(name, activation, shape, classes):
    net = build(
        name,
        activation=Activation.parse(activation),
        input_shape=shape,
        num_classes=classes,
        width=0.04,
    ).double()
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.normal_(module.bias, std=0.3)
    return net.eval()


@pytest.mark.parametrize("activation", ["apl:1", "apl:5", "apl:2:channel"])
@pytest.mark.parametrize(("name", "shape", "classes"), NETS)
def test_pairs_of_maxout_units_reproduce_the_network(name, shape, classes, activation):
    net = trained_looking(name, activation, shape, classes)
    x = torch.randn(8, *shape, dtype=torch.float64)
    converted = to_maxout(net)
    assert not [m for m in converted.modules() if isinstance(m, APL)]
    assert [m for m in converted.modules() if isinstance(m, MaxoutPair)]
    torch.testing.assert_close(converted(x), net(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("activation", ["apl:1", "apl:2:channel"])
@pytest.mark.parametrize(("name", "shape", "classes"), NETS)
def test_mlpconv_blocks_reproduce_the_network(name, shape, classes, activation):
    net = trained_looking(name, activation, shape, classes)
    x = torch.randn(8, *shape, dtype=torch.float64)
    converted = to_mlpconv(net, x[:1])
    assert not [m for m in converted.modules() if isinstance(m, APL)]
    assert [m for m in converted.modules() if isinstance(m, nn.ReLU)]
    torch.testing.assert_close(converted(x), net(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "hinges"),
    [
        ("cifar-cnn", (3, 32, 32), 10, 5),
        ("nin", (3, 32, 32), 10, 2),
        ("higgs-dnn", (25,), 1, 2),
    ],
)
def test_the_counted_layers_are_those_of_the_network(name, shape, classes, hinges):
    nets = [
        build(name, activation=activation, input_shape=shape, num_classes=classes)
        for activation in (Activation.parse("relu"), Activation.parse(f"apl:{hinges}"))
    ]
    plain, learned = (sum(p.numel() for p in net.parameters()) for net in nets)
    total = count_parameters(layer_sizes(nets[0]), hinges)[-1]
    assert total.apl - total.relu == learned - plain
    assert total.units == sum(m.slope[0].numel() for m in nets[1].modules() if isinstance(m, APL))


def test_a_hidden_layer_by_hand():
    """A layer of 274 units on 274 inputs with S = 2: 5 pieces of a pair, 3 hidden units, each."""
    net = build("higgs-dnn", activation=Activation.parse("relu"), input_shape=(25,), num_classes=1)
    row = count_parameters(layer_sizes(net), 2)[1]
    assert row.apl - row.relu == 4 * 274
    assert row.maxout == 274 * 5 * 275
    assert row.mlpconv == 274 * 3 * 276


@pytest.mark.parametrize("shared", [False, True])
def test_the_documented_table_is_the_computed_one(shared):
    assert section_2_1_table(shared=shared) in DOCUMENT.read_text()
