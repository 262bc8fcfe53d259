"""The paper's section 2.1 in numbers: what a network's units cost, and what their rivals would."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import cast

from torch import nn

from torchapl.curves import LayerSize, count_parameters
from torchapl.paper.activations import Activation
from torchapl.paper.nets import build
from torchapl.paper.nets.layers import LayeredNet

# The networks of the paper with their S.
_ROWS = (
    ("cifar-cnn", 5, (3, 32, 32), 10),
    ("cifar-cnn-100", 2, (3, 32, 32), 100),
    ("nin", 2, (3, 32, 32), 10),
    ("nin", 1, (3, 32, 32), 100),
    ("higgs-dnn", 2, (25,), 1),
)
_HEAD = ("network", "units", "ReLU", "APL", "maxout pair, untied", "MLPConv, untied")


def layer_sizes(net: LayeredNet) -> list[LayerSize]:
    """Describe the layers of a network that an activation follows.

    Example:
        >>> relu = Activation.parse("relu")
        >>> net = build("higgs-dnn", activation=relu, input_shape=(25,), num_classes=1)
        >>> layer_sizes(net)[0]
        LayerSize(name='fc1', inputs=25, channels=274, positions=1)
    """
    sizes = []
    layers = list(net.layers.named_children())
    for (name, layer), (_, follower) in pairwise(layers):
        if isinstance(layer, nn.Conv2d | nn.Linear) and isinstance(follower, nn.ReLU):
            channels, inputs = layer.weight.shape[0], layer.weight[0].numel()
            positions = prod(net.map_shapes[name][1:])
            sizes.append(LayerSize(name, inputs, channels, positions))
    return sizes


def section_2_1_table(*, shared: bool) -> str:
    """Return the parameters of the paper's networks, tied and untied, as a Markdown table.

    Tied, a maxout pair or an MLPConv block that reproduces an APL unit has the APL unit's numbers
    to learn, 2 S. Untied, every piece has weights of its own.

    Args:
        shared: One curve (and one set of weights) for all positions of a map; otherwise one for
            each, as in the paper.

    Example:
        >>> print(section_2_1_table(shared=False).splitlines()[0])
        | network | units | ReLU | APL | maxout pair, untied | MLPConv, untied |
    """
    lines = ["| " + " | ".join(_HEAD) + " |", "|---" + "|---:" * (len(_HEAD) - 1) + "|"]
    for name, hinges, input_shape, classes in _ROWS:
        net = build(
            name, activation=Activation.parse("relu"), input_shape=input_shape, num_classes=classes
        )
        sizes = layer_sizes(cast(LayeredNet, net))
        if shared:
            sizes = [replace(size, positions=1) for size in sizes]
        total = count_parameters(sizes, hinges)[-1]
        # Layers without units cost the same in every column.
        rest = sum(parameter.numel() for parameter in net.parameters()) - total.relu
        numbers = (total.relu, total.apl, total.maxout, total.mlpconv)
        cells = [f"{name}, S = {hinges}, outputs {classes}", f"{total.units:,}"]
        cells += [f"{number + rest:,}" for number in numbers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
