"""The dense network for Higgs -> tau tau (Baldi, Sadowski and Whiteson 2014; Table 2)."""

from __future__ import annotations

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.layers import LayeredNet, Layers, scaled

# After the hidden layers, counted from the last.
_DROPOUT = {1: 0.25, 0: 0.5}


class HiggsDNN(LayeredNet):
    """Hidden layers of 274 units, seven in the paper; dropout after the last two.

    With 25 features and one logit, width 1 has 459,499 weights and 1,918 units.

    Args:
        activation: Follows every layer but the last.
        input_shape: ``(F,)``; an image is flattened.
        num_classes: Number of logits; 1 for signal against background.
        width: Factor on the number of hidden units.
        depth: Number of hidden layers.

    Example:
        >>> import torch
        >>> net = HiggsDNN(Activation.parse("apl:2"), (25,), num_classes=1)
        >>> net(torch.randn(2, 25)).shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
        *,
        depth: int = 7,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1 hidden layer, got {depth}")
        layers = Layers(input_shape, width)
        for index in range(1, depth + 1):
            layers.linear(f"fc{index}", scaled(274, width), std=0.1)
            layers.activation(f"act{index}", activation)
            if depth - index in _DROPOUT:
                layers.dropout(f"drop{index}", _DROPOUT[depth - index])
        layers.linear(f"fc{depth + 1}", num_classes, std=0.001)
        self.take(layers)


NETWORKS.register(
    Network("higgs-dnn", "DNN", "dnn", HiggsDNN, 0.46e6, depth=7, depths=tuple(range(3, 11)))
)
