"""Network in network, as the authors and as Lin et al. (2013) had it."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Net, Network, ParameterMultiplier
from torchapl.paper.nets.layers import Layers, Pool, scaled


class NIN(Net):
    """Nine convolutions in three blocks, an activation after each, global averaging at the end.

    At 32 x 32 the maps are 32 -> 16 -> 8 -> 1. Width 1 with 10 classes has 966,986 weights and
    631,424 units.

    Args:
        activation: Follows every convolution, the last too.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels.
        second_pool: ``"average"`` in the authors' network, ``"max"`` in that of Lin et al.

    Example:
        >>> import torch
        >>> net = NIN(Activation.parse("relu"), (3, 32, 32), num_classes=10, width=0.125)
        >>> net(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
        second_pool: Pool = "average",
    ) -> None:
        super().__init__()
        layers = Layers(input_shape, width)
        blocks: tuple[tuple[int, tuple[int, int, int], Pool | None], ...] = (
            # side of the first kernel, channels, pooling
            (5, (192, 160, 96), "max"),
            (5, (192, 192, 192), second_pool),
            (3, (192, 192, 0), None),
        )
        for block, (side, sizes, pool) in enumerate(blocks, start=1):
            for index, size in enumerate(sizes, start=1):
                kernel = side if index == 1 else 1
                channels = scaled(size, width) if size else num_classes
                layers.conv(f"conv{block}{index}", channels, kernel, padding=kernel // 2, std=0.05)
                layers.activation(f"act{block}{index}", activation)
            if pool is not None:
                layers.pool(f"pool{block}", pool, 3, 2)
                layers.dropout(f"drop{block}", 0.5)
        layers.add("pool3", nn.AdaptiveAvgPool2d(1), (num_classes, 1, 1))
        layers.add("flatten", nn.Flatten(), (num_classes,))
        self.map_shapes = layers.shapes
        self.layers = layers.sequential()

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.layers(input)
        return output

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return the authors' values: biases learn twice as fast, the last layer at a tenth."""
        default = super().multiplier(module, name, parameter)
        if default.kind == "curve":
            return default
        is_bias = default.kind == "bias"
        lr, decay = (2.0, 0.0) if is_bias else (1.0, 1.0)
        return default._replace(lr=0.1 if module is self.layers.conv33 else lr, decay=decay)


NETWORKS.register(Network("nin", "NIN", "nin", NIN, 222e6))
NETWORKS.register(
    Network(
        "nin-lin", "NIN + ReLU (Lin et al. 2013)", "nin", partial(NIN, second_pool="max"), 222e6
    )
)
