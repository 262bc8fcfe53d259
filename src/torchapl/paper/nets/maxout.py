"""Goodfellow's CIFAR network (2013) with maxout units."""

from __future__ import annotations

from torch import nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.layers import LayeredNet, Layers, refuse_activation, scaled, start_uniform_
from torchapl.paper.optim import ParameterMultiplier
from torchapl.paper.rivals import Maxout, max_norm_

# channels, pieces, kernel, padding, pooling window, pooling stride, largest norm of a kernel
_CONVOLUTIONS = (
    (96, 2, 8, 4, 4, 2, 0.9),
    (192, 2, 8, 3, 4, 2, 1.9365),
    (192, 2, 5, 3, 2, 2, 1.9365),
)


class MaxoutNet(LayeredNet):
    """Three convolutions and one linear layer of maxout units, with max-norm constraints.

    Convolutions learn at a twentieth of the rate, all weights start from U(-0.005, 0.005), and what
    stays of the input under dropout is not rescaled, as in its authors' file. At 32 x 32 the maps
    are 33 -> 16 -> 15 -> 7 -> 9 -> 5.

    Args:
        activation: Must be left at ``relu``: the units of this network are its activation.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels and hidden units.

    Example:
        >>> import torch
        >>> net = MaxoutNet(Activation.parse("relu"), (3, 32, 32), num_classes=10, width=0.125)
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
        refuse_activation(self, activation)
        layers = Layers(input_shape, width)
        self.bounds: dict[str, float] = {}
        layers.dropout("drop0", 0.2, rescale=False)
        for index, (size, pieces, kernel, padding, window, stride, bound) in enumerate(
            _CONVOLUTIONS, start=1
        ):
            layers.conv(f"conv{index}", pieces * scaled(size, width), kernel, padding=padding)
            self.bounds[f"conv{index}"] = bound
            self._add_unit(layers, index, pieces)
            layers.pool(f"pool{index}", "max", window, stride)
            layers.dropout(f"drop{index}", 0.5)
        layers.linear("fc4", 5 * scaled(500, width))
        self._add_unit(layers, 4, pieces=5)
        layers.dropout("drop4", 0.5)
        layers.linear("fc5", num_classes)
        self.bounds |= {"fc4": 1.9, "fc5": 1.9365}
        self.take(layers)
        start_uniform_(self.layers, 0.005, width)

    def _add_unit(self, layers: Layers, index: int, pieces: int) -> None:
        shape = (layers.shape[0] // pieces, *layers.shape[1:])
        layers.add(f"unit{index}", self.unit(index, pieces), shape)

    def unit(self, index: int, pieces: int) -> nn.Module:
        """Return the units of layer ``index``, counted from 1; made to be overridden."""
        return Maxout(pieces)

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


NETWORKS.register(
    Network("maxout", "CNN + Maxout (Goodfellow et al. 2013)", "maxout", MaxoutNet, 1.1e9)
)
