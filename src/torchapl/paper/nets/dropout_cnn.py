"""The dropout network of Srivastava et al. (2014) for CIFAR."""

from __future__ import annotations

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.layers import LayeredNet, Layers, scaled
from torchapl.paper.rivals import max_norm_

_MAX_NORM = 4.0


class DropoutCNN(LayeredNet):
    """Three convolutions with max pooling and two hidden linear layers, dropout on all, max-norm 4.

    Its authors do not give the initial weights; they are He's here.

    Args:
        activation: Follows every layer but the last; ReLU in the original.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels and hidden units.

    Example:
        >>> import torch
        >>> net = DropoutCNN(Activation.parse("relu"), (3, 32, 32), num_classes=10, width=0.125)
        >>> net(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        layers = Layers(input_shape, width)
        layers.dropout("drop0", 0.1)
        for index, (channels, dropout) in enumerate(((96, 0.25), (128, 0.25), (256, 0.5)), start=1):
            layers.conv(f"conv{index}", scaled(channels, width), 5, padding=2)
            layers.activation(f"act{index}", activation)
            layers.pool(f"pool{index}", "max", 3, 2)
            layers.dropout(f"drop{index}", dropout)
        for index in (4, 5):
            layers.linear(f"fc{index}", scaled(2048, width))
            layers.activation(f"act{index}", activation)
            layers.dropout(f"drop{index}", 0.5)
        layers.linear("fc6", num_classes)
        self.take(layers)

    def after_step(self) -> None:
        """Shorten every filter that has become longer than 4."""
        for entry in self.parameter_multipliers():
            if entry.kind == "weight":
                max_norm_(entry.parameter, _MAX_NORM)


NETWORKS.register(
    Network("dropout-cnn", "CNN + ReLU (Srivastava et al. 2014)", "cnn", DropoutCNN, 151e6)
)
