"""The channel-out networks of Wang and JaJa (2013) for CIFAR."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.layers import LayeredNet, Layers, refuse_activation, scaled, start_uniform_
from torchapl.paper.optim import ParameterMultiplier
from torchapl.paper.rivals import ChannelOut, max_norm_layer_


@dataclass(frozen=True)
class Sizes:
    """What differs between the two networks, as in the first author's working files.

    Attributes:
        first_channels: Of the first convolution; the others have 192 and 256, the linear layer
            2048.
        third_window: Side of the third pooling; its stride is 2.
        bounds: Largest norms of a filter in the five layers.
        dropout: Of all layers but the input.
        dense_rate: Factor of the learning rate of the two linear layers.
    """

    first_channels: int
    third_window: int
    bounds: tuple[float, float, float, float, float]
    dropout: float
    dense_rate: float


CIFAR10 = Sizes(64, 2, (0.9, 5.9, 5.9, 5.9, 5.9), 0.5, 2.0)
CIFAR100 = Sizes(96, 3, (1.0, 5.9, 5.9, 9.9, 9.9), 0.4, 1.0)
_INPUT_SCALE = 3.0


class Scale(nn.Module):
    """Multiplies its input by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, input: Tensor) -> Tensor:
        return input * self.factor

    def extra_repr(self) -> str:
        return f"{self.factor}"


class ChannelOutNet(LayeredNet):
    """Three convolutions and a linear layer of channel-out units, each after its pooling.

    Groups have 2, 2, 4 and 4 channels. At 32 x 32 the maps are 32 -> 16 -> 8 -> 4. All weights
    start from U(-0.005, 0.005); biases learn at a tenth of the rate. A layer with a filter that has
    become too long is shrunk as a whole.

    Args:
        activation: Must be left at ``relu``: the units of this network are its activation.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels and hidden units.
        sizes: ``CIFAR10`` or ``CIFAR100``.

    Example:
        >>> import torch
        >>> net = ChannelOutNet(Activation.parse("relu"), (3, 32, 32), num_classes=10, width=0.125)
        >>> net(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
        *,
        sizes: Sizes = CIFAR10,
    ) -> None:
        super().__init__()
        refuse_activation(self, activation)
        layers = Layers(input_shape, width)
        layers.dropout("drop0", 0.2)
        layers.add("scale0", Scale(_INPUT_SCALE))
        for index, (channels, kernel, window, group) in enumerate(
            ((sizes.first_channels, 7, 3, 2), (192, 5, 3, 2), (256, 3, sizes.third_window, 4)),
            start=1,
        ):
            total = group * scaled(channels // group, width)
            layers.conv(f"conv{index}", total, kernel, padding=kernel // 2)
            layers.pool(f"pool{index}", "max", window, 2)
            layers.add(f"unit{index}", ChannelOut(group))
            layers.dropout(f"drop{index}", sizes.dropout)
        layers.linear("fc4", 4 * scaled(512, width))
        layers.add("unit4", ChannelOut(4))
        layers.dropout("drop4", sizes.dropout)
        layers.linear("fc5", num_classes)
        self.take(layers)
        self.sizes = sizes
        start_uniform_(self.layers, 0.005, width)

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return the values of the authors' files."""
        entry = super().multiplier(module, name, parameter)
        rate = self.sizes.dense_rate if isinstance(module, nn.Linear) else 1.0
        return entry._replace(lr=0.1 * rate if entry.kind == "bias" else rate)

    def after_step(self) -> None:
        """Shrink every layer of which a filter has become too long."""
        layers = (layer for layer in self.layers if isinstance(layer, nn.Conv2d | nn.Linear))
        for layer, bound in zip(layers, self.sizes.bounds, strict=True):
            max_norm_layer_(layer, bound)


_TITLE = "CNN + Channel-Out (Wang and JaJa 2013)"
NETWORKS.register(Network("channel-out", _TITLE, "maxout", ChannelOutNet, 133e6))
NETWORKS.register(
    Network("channel-out-100", _TITLE, "maxout", partial(ChannelOutNet, sizes=CIFAR100), 186e6)
)
