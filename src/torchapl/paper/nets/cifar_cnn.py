"""The authors' convolutional network for CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from functools import partial

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.layers import LayeredNet, Layers, Pool, scaled


class CifarCNN(LayeredNet):
    """Three convolutions and hidden linear layers, two in the paper; dropout around every pooling.

    At 32 x 32 the maps are 32 -> 16 -> 8 -> 4. Width 1 with 10 classes has 13,741,578 weights and
    151,552 units.

    Args:
        activation: Follows every layer but the last.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels and hidden units.
        second_pool: ``"average"`` for CIFAR-10, ``"max"`` for CIFAR-100.
        depth: Number of hidden layers, convolutions included.

    Example:
        >>> import torch
        >>> net = CifarCNN(Activation.parse("apl:1"), (3, 8, 8), num_classes=10, width=0.125)
        >>> net(torch.randn(2, 3, 8, 8)).shape
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
        depth: int = 5,
    ) -> None:
        super().__init__()
        if depth < 3:
            raise ValueError(
                f"depth must be at least 3, of which three layers are convolutions, got {depth}"
            )
        layers = Layers(input_shape, width)
        stages: tuple[tuple[int, float, Pool, float], ...] = (
            # channels, initial std, pooling, dropout after it
            (96, 1e-4, "max", 0.25),
            (128, 0.01, second_pool, 0.25),
            (256, 0.01, "average", 0.5),
        )
        for index, (channels, std, pool, dropout) in enumerate(stages, start=1):
            layers.conv(f"conv{index}", scaled(channels, width), 5, padding=2, std=std)
            layers.activation(f"act{index}", activation)
            layers.dropout(f"drop{index}", 0.25)
            layers.pool(f"pool{index}", pool, 3, 2)
            layers.dropout(f"pool{index}_drop", dropout)
        for index in range(4, depth + 1):
            layers.linear(f"fc{index}", scaled(2048, width), std=0.01)
            layers.activation(f"act{index}", activation)
            layers.dropout(f"drop{index}", 0.5)
        layers.linear(f"fc{depth + 1}", num_classes, std=0.01)
        self.take(layers)


_DEPTHS = (3, 4, 5, 6)
NETWORKS.register(Network("cifar-cnn", "CNN", "cnn", CifarCNN, 151e6, 5, _DEPTHS))
NETWORKS.register(
    Network("cifar-cnn-100", "CNN", "cnn", partial(CifarCNN, second_pool="max"), 151e6, 5, _DEPTHS)
)
