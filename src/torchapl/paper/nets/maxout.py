"""Goodfellow's CIFAR network (2013), with maxout, channel-out or probout units."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import (
    NETWORKS,
    Net,
    Network,
    ParameterMultiplier,
    average_predictions,
)
from torchapl.paper.nets.layers import Layers, scaled
from torchapl.paper.rivals import ChannelOut, Maxout, Probout, max_norm_

# channels, pieces, kernel, padding, pooling window, pooling stride, largest norm of a kernel
_CONVOLUTIONS = (
    (96, 2, 8, 4, 4, 2, 0.9),
    (192, 2, 8, 3, 4, 2, 1.9365),
    (192, 2, 5, 3, 2, 2, 1.9365),
)
_START = 0.005


class MaxoutNet(Net):
    """Three convolutions and one linear layer of maxout units, with max-norm constraints.

    Convolutions learn at a twentieth of the rate, all weights start from U(-0.005, 0.005), as in
    its authors' file. At 32 x 32 the maps are 33 -> 16 -> 15 -> 7 -> 9 -> 5.

    Args:
        activation: Must be left at ``relu``: the units of this network are its activation.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels and hidden units.

    Example:
        >>> net = MaxoutNet(Activation.parse("relu"), (3, 32, 32), num_classes=10, width=0.125)
        >>> net(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    unit: Callable[[int], nn.Module] = Maxout
    keeps_channels = False

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        if activation.kind != "relu":
            raise ValueError(
                f"{type(self).__name__} has units of its own, activation must be left at relu, "
                f"got {activation}"
            )
        layers = Layers(input_shape, width)
        self.bounds: dict[str, float] = {}
        layers.dropout("drop0", 0.2)
        for index, (size, pieces, kernel, padding, window, stride, bound) in enumerate(
            _CONVOLUTIONS, start=1
        ):
            channels = pieces * scaled(size, width)
            layers.conv(f"conv{index}", channels, kernel, padding=padding)
            self.bounds[f"conv{index}"] = bound
            self._add_unit(layers, index, pieces)
            layers.pool(f"pool{index}", "max", window, stride)
            layers.dropout(f"drop{index}", 0.5)
        layers.linear("fc4", 5 * scaled(500, width))
        self._add_unit(layers, 4, pieces=5)
        layers.dropout("drop4", 0.5)
        layers.linear("fc5", num_classes)
        self.bounds |= {"fc4": 1.9, "fc5": 1.9365}
        self.map_shapes = layers.shapes
        self.layers = layers.sequential()
        for name in self.bounds:
            bound = _START if name == "conv1" else _START * width**-0.5
            nn.init.uniform_(self.layers.get_parameter(f"{name}.weight"), -bound, bound)

    def _add_unit(self, layers: Layers, index: int, pieces: int) -> None:
        channels = layers.shape[0] if self.keeps_channels else layers.shape[0] // pieces
        layers.add(f"unit{index}", type(self).unit(pieces), (channels, *layers.shape[1:]))

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.layers(input)
        return output

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return the values of the authors' file: convolutions learn at a twentieth of the rate."""
        default = super().multiplier(module, name, parameter)
        return default._replace(lr=0.05) if isinstance(module, nn.Conv2d) else default

    def after_step(self) -> None:
        """Shorten every kernel that has become too long."""
        for name, bound in self.bounds.items():
            max_norm_(self.layers.get_parameter(f"{name}.weight"), bound)


class ChannelOutNet(MaxoutNet):
    """The same network with channel-out units, which hand all channels to the next layer."""

    unit = ChannelOut
    keeps_channels = True


class ProboutNet(MaxoutNet):
    """The same network with probout units: pieces are drawn in every pass, in tests too.

    Attributes:
        passes: Number of passes whose probabilities a test averages.

    Example:
        >>> relu = Activation.parse("relu")
        >>> net = ProboutNet(relu, (3, 16, 16), num_classes=10, width=0.125).eval()
        >>> bool(net.predict(torch.randn(1, 3, 16, 16)).exp().sum().sub(1).abs() < 1e-5)
        True
    """

    unit = Probout
    passes = 10

    def predict(self, input: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities of several stochastic passes."""
        return average_predictions(torch.stack([self(input) for _ in range(self.passes)]))


NETWORKS.register(
    Network("maxout", "CNN + Maxout (Goodfellow et al. 2013)", "maxout", MaxoutNet, 1.1e9)
)
NETWORKS.register(
    Network("channel-out", "CNN + Channel-Out (Wang and JaJa 2013)", "maxout", ChannelOutNet, 1.1e9)
)
NETWORKS.register(
    Network(
        "probout",
        "CNN + Probout (Springenberg and Riedmiller 2013)",
        "maxout",
        ProboutNet,
        1.1e9,
    )
)
