"""A residual network with batch norm for small images (He et al. 2015, section 4.2)."""

from __future__ import annotations

from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Net, Network
from torchapl.paper.nets.layers import scaled


class ResNet(Net):
    """ResNet-20: one convolution, three stages of three blocks, global averaging, one linear layer.

    Stages two and three halve the map and double the channels; their shortcuts are 1x1
    convolutions.

    Args:
        activation: Follows every batch norm, on the main path before and after the addition.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on the 16, 32 and 64 channels of the stages.
        depth: Number of hidden layers, ``6 * blocks + 1`` with as many blocks in each stage.

    Example:
        >>> import torch
        >>> net = ResNet(Activation.parse("apl:2:channel"), (3, 32, 32), num_classes=10)
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
        depth: int = 19,
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 1, 6)
        if blocks < 1 or rest:
            raise ValueError(f"depth must be 7, 13, 19, ... hidden layers, got {depth}")
        if len(input_shape) != 3:
            raise ValueError(f"input_shape must be (C, H, W), got {input_shape}")
        channels = scaled(16, width)
        shape: tuple[int, ...] = (channels, *input_shape[1:])
        self.conv = _conv(input_shape[0], channels, 3)
        self.norm = nn.BatchNorm2d(channels)
        self.act = activation.build(shape)
        stages: list[Block] = []
        for stage in range(3):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Block(activation, shape, scaled(16 * 2**stage, width), stride))
                shape = stages[-1].output_shape
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(shape[0], num_classes)

    def forward(self, input: Tensor) -> Tensor:
        features: Tensor = self.stages(self.act(self.norm(self.conv(input))))
        logits: Tensor = self.fc(features.mean(dim=(2, 3)))
        return logits


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut."""

    def __init__(
        self, activation: Activation, shape: tuple[int, ...], channels: int, stride: int
    ) -> None:
        super().__init__()
        self.stride = stride
        self.output_shape = (channels, *(-(-size // stride) for size in shape[1:]))
        self.conv1 = _conv(shape[0], channels, 3, stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.act1 = activation.build(self.output_shape)
        self.conv2 = _conv(channels, channels, 3)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if self.output_shape != shape:
            self.shortcut = nn.Sequential(_conv(shape[0], channels, 1), nn.BatchNorm2d(channels))
        self.act2 = activation.build(self.output_shape)

    def forward(self, input: Tensor) -> Tensor:
        hidden = self.act1(self.norm1(self.conv1(input)))
        # A 1x1 convolution of stride 2 is one of stride 1 on every second pixel. oneDNN's backward
        # of the former writes past its memory on AVX2 machines (below 8 channels, channels last).
        pixels = input[:, :, :: self.stride, :: self.stride]
        output: Tensor = self.act2(self.norm2(self.conv2(hidden)) + self.shortcut(pixels))
        return output


def _conv(features: int, channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(features, channels, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


# Batch norm costs as much again as the 41 million of the convolutions, and more.
NETWORKS.register(
    Network(
        "resnet",
        "ResNet-20",
        "resnet",
        ResNet,
        100e6,
        depth=19,
        depths=(7, 13, 19, 25),
        drops=False,
    )
)
