"""Network in network, as the authors and as Lin et al. (2013) had it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat

from torch import nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.layers import LayeredNet, Layers, Pool, scaled
from torchapl.paper.optim import ParameterMultiplier

# Of each block: side of the first kernel, channels of the first convolution, of those between, and
# of the last (0: classes).
_BLOCKS = ((5, 192, 160, 96), (5, 192, 192, 192), (3, 192, 192, 0))
# Lin et al. for CIFAR-100.
_SMALL_START = (0.001, 0.01, 0.01, 0.05)


class NIN(LayeredNet):
    """Three blocks of convolutions, an activation after each, global averaging at the end.

    The first convolution of a block has a kernel, the others, two in the paper, are 1x1.

    At 32 x 32 the maps are 32 -> 16 -> 8 -> 1. Width 1 with 10 classes has 966,986 weights and
    631,424 units. Biases learn twice as fast as weights and do not decay.

    Args:
        activation: Follows every convolution, the last too.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels.
        second_pool: ``"average"`` in the authors' network, ``"max"`` in that of Lin et al.
        deviations: Of the initial weights of the convolutions; the last is also that of the rest.
        last_rates: Factors of the learning rate of the last convolution's weights and biases.
        ends_linear: Leave out the last activation, as in Lee et al.
        depth: Number of convolutions, two or more for each block.

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
        *,
        second_pool: Pool = "average",
        deviations: Sequence[float] = (0.05,),
        last_rates: tuple[float, float] = (0.1, 0.1),
        ends_linear: bool = False,
        depth: int = 9,
    ) -> None:
        super().__init__()
        if depth < 6 or depth % len(_BLOCKS):
            raise ValueError(f"depth must be 6, 9, 12, ... convolutions, got {depth}")
        self.last_rates = last_rates
        layers = Layers(input_shape, width)
        starts = chain(deviations, repeat(deviations[-1]))
        for block, (side, first, between, last) in enumerate(_BLOCKS, start=1):
            sizes = (first, *(between,) * (depth // len(_BLOCKS) - 2), last)
            for index, size in enumerate(sizes, start=1):
                kernel = side if index == 1 else 1
                channels = scaled(size, width) if size else num_classes
                layers.conv(
                    f"conv{block}{index}", channels, kernel, padding=kernel // 2, std=next(starts)
                )
                if size or not ends_linear:
                    layers.activation(f"act{block}{index}", activation)
            if block < len(_BLOCKS):
                layers.pool(f"pool{block}", "max" if block == 1 else second_pool, 3, 2)
                layers.dropout(f"drop{block}", 0.5)
        self.last = f"conv{len(_BLOCKS)}{len(sizes)}"
        layers.add("pool3", nn.AdaptiveAvgPool2d(1), (num_classes, 1, 1))
        layers.add("flatten", nn.Flatten(), (num_classes,))
        self.take(layers)

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return the authors' values: biases learn twice as fast, the last layer more slowly."""
        default = super().multiplier(module, name, parameter)
        if default.kind == "curve":
            return default
        is_bias = default.kind == "bias"
        lr, decay = (2.0, 0.0) if is_bias else (1.0, 1.0)
        if module is self.layers.get_submodule(self.last):
            lr = self.last_rates[is_bias]
        return default._replace(lr=lr, decay=decay)


NETWORKS.register(Network("nin", "NIN", "nin", NIN, 222e6, depth=9, depths=(6, 9, 12)))
NETWORKS.register(
    Network(
        "nin-lin",
        "NIN + ReLU (Lin et al. 2013)",
        "nin",
        partial(NIN, second_pool="max", last_rates=(0.1, 0.2)),
        222e6,
        depth=9,
        depths=(6, 9, 12),
    )
)
# Its starts and rates for CIFAR-100.
NETWORKS.register(
    Network(
        "nin-lin-100",
        "NIN + ReLU (Lin et al. 2013)",
        "nin",
        partial(NIN, second_pool="max", last_rates=(1.0, 2.0), deviations=_SMALL_START),
        222e6,
        depth=9,
        depths=(6, 9, 12),
    )
)
