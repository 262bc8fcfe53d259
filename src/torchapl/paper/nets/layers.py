"""Sequences of named layers that follow the shape of the map, as Caffe computes it."""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, prod
from typing import Literal

import torch
from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import Net
from torchapl.paper.nets.dropout import Dropout

Pool = Literal["max", "average"]


def scaled(channels: int, width: float) -> int:
    """Return a number of channels or units at a width factor, at least 1.

    Example:
        >>> scaled(96, 0.25), scaled(10, 0.01)
        (24, 1)
    """
    if not width > 0:
        raise ValueError(f"width must be positive, got {width}")
    return max(1, round(channels * width))


def refuse_activation(net: nn.Module, activation: Activation) -> None:
    """Refuse an activation for a network whose units are of its own kind."""
    if activation.kind != "relu":
        raise ValueError(
            f"{type(net).__name__} has units of its own, activation must be left at relu, "
            f"got {activation}"
        )


@torch.no_grad()
def start_uniform_(layers: nn.Sequential, bound: float, width: float) -> None:
    """Start all weights from U(-bound, bound), larger but for the first in narrow networks.

    Args:
        layers: Convolutions and linear layers among others.
        bound: At width 1.
        width: Factor of the network's numbers of channels, see :class:`Layers`.
    """
    factor = 1.0
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.uniform_(layer.weight, -bound * factor, bound * factor)
            factor = width**-0.5


class Layers:
    """Collects named layers and knows the shape of the map after each.

    Weights start from N(0, std). In a network of another width every layer but the first has fewer
    (or more) inputs; its std is divided by the root of the width, so that signals keep their size.
    Without that NIN at a quarter of its width stays at the loss of guessing for 300 iterations.

    Args:
        input_shape: ``(C, H, W)`` or ``(F,)``, without the batch.
        width: Factor of the network's numbers of channels.

    Attributes:
        shape: Shape of the map after the layers so far.
        shapes: The same after every single layer, by its name.

    Example:
        >>> layers = Layers((3, 32, 32))
        >>> layers.conv("conv1", 96, 5, padding=2, std=1e-4)
        >>> layers.pool("pool1", "max", 3, 2)
        >>> layers.shape
        (96, 16, 16)
        >>> layers.linear("fc", 10, std=0.01)
        >>> len(layers.sequential())
        4
    """

    def __init__(self, input_shape: tuple[int, ...], width: float = 1.0) -> None:
        if not input_shape or min(input_shape) < 1:
            raise ValueError(f"input_shape must have positive sizes, got {input_shape}")
        self.shape = tuple(input_shape)
        self.width = width
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._modules: OrderedDict[str, nn.Module] = OrderedDict()

    def sequential(self) -> nn.Sequential:
        """Return the layers as a module."""
        return nn.Sequential(self._modules)

    def add(self, name: str, module: nn.Module, shape: tuple[int, ...] | None = None) -> None:
        """Append any module; ``shape`` is that of its output if it changes the map's."""
        self._modules[name] = module
        self.shape = self.shape if shape is None else shape
        self.shapes[name] = self.shape

    def conv(
        self, name: str, channels: int, kernel: int, *, padding: int, std: float | None = None
    ) -> None:
        """Append a convolution with biases 0 and weights N(0, std), or He's where std is None."""
        features, height, width = self._image(name)
        sizes = tuple(size + 2 * padding - kernel + 1 for size in (height, width))
        if min(sizes) < 1:
            raise ValueError(
                f"a map of {height}x{width} is too small for {name}, a {kernel}x{kernel} "
                f"convolution with padding {padding}: give a larger input_shape"
            )
        module = nn.Conv2d(features, channels, kernel, padding=padding)
        self._add_started(name, module, std, (channels, *sizes))

    def linear(self, name: str, features: int, *, std: float | None = None) -> None:
        """Append a linear layer with biases 0, flattening a map first."""
        if len(self.shape) > 1:
            self.add(f"{name}_flatten", nn.Flatten(), (prod(self.shape),))
        module = nn.Linear(self.shape[0], features)
        self._add_started(name, module, std, (features,))

    def activation(self, name: str, activation: Activation) -> None:
        """Append the activation, with units for the present map."""
        self.add(name, activation.build(self.shape))

    def dropout(self, name: str, probability: float, *, rescale: bool = True) -> None:
        """Append dropout of single units."""
        self.add(name, Dropout(probability, rescale=rescale))

    def pool(self, name: str, kind: Pool, kernel: int, stride: int) -> None:
        """Append pooling that rounds sizes up and averages over what is inside the map, like Caffe.

        A window larger than the map is cut to it, so that small images pass through any network.
        """
        channels, height, width = self._image(name)
        window = (min(kernel, height), min(kernel, width))
        sizes = tuple(
            pooled_size(size, side, stride)
            for size, side in zip((height, width), window, strict=True)
        )
        pool: nn.Module = nn.MaxPool2d(window, stride, ceil_mode=True)
        if kind == "average":
            # There is no padding to count. But counting it, torch.compile gets the gradient of
            # windows that reach over the edge wrong (pytorch issue 198119).
            pool = nn.AvgPool2d(window, stride, ceil_mode=True, count_include_pad=False)
        self.add(name, pool, (channels, *sizes))

    def _add_started(
        self, name: str, module: nn.Conv2d | nn.Linear, std: float | None, shape: tuple[int, ...]
    ) -> None:
        if std is None:
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        else:
            nn.init.normal_(module.weight, std=std * self.start_factor())
        nn.init.zeros_(module.get_parameter("bias"))
        self.add(name, module, shape)

    def start_factor(self) -> float:
        """Return what the initial weights of the next layer are multiplied by."""
        is_first = not any(isinstance(m, nn.Conv2d | nn.Linear) for m in self._modules.values())
        return 1.0 if is_first else float(self.width**-0.5)

    def _image(self, name: str) -> tuple[int, int, int]:
        if len(self.shape) != 3:
            raise ValueError(f"{name} needs a map of shape (C, H, W), got {self.shape}")
        channels, height, width = self.shape
        return channels, height, width


class LayeredNet(Net):
    """A network that runs its layers one after the other.

    Attributes:
        layers: By name.
        map_shapes: Shape of the map after each of them.
    """

    layers: nn.Sequential
    map_shapes: dict[str, tuple[int, ...]]

    def take(self, layers: Layers) -> None:
        """Make layers those of the network."""
        self.layers, self.map_shapes = layers.sequential(), layers.shapes

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.layers(input)
        return output


def pooled_size(size: int, kernel: int, stride: int) -> int:
    """Return the number of windows along one axis when it is rounded up.

    Example:
        >>> pooled_size(32, 3, 2), pooled_size(5, 2, 2)
        (16, 3)
    """
    windows = ceil((size - kernel) / stride) + 1
    # The last window has to start inside the map.
    return windows - 1 if (windows - 1) * stride >= size else windows
