"""A small residual network with batch norm, made to learn CIFAR-10 in minutes.

It follows the networks of the public speed records (Page 2018, tysam-code's hlb-CIFAR10, Jordan
2024): a first layer that whitens patches and is not trained, three stages that pool before they
normalise, batch norm whose biases learn fast.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Net, Network
from torchapl.paper.nets.layers import scaled
from torchapl.paper.optim import ParameterMultiplier

_CHANNELS = (64, 256, 256)
# Side of the patches that the first layer whitens.
_PATCH = 2
# Added to their variances: the smallest ones are noise, not to be amplified.
_LEAST_VARIANCE = 5e-4
_FITTED_IMAGES = 5000
# Factor of the learning rate of batch norm's biases.
_BIAS_RATE = 16.0


class FastResNet(Net):
    """A whitening layer, three stages of two 3x3 convolutions, a maximum over the map, logits.

    The second convolution of a stage has a shortcut around it. At 32 x 32 the maps are
    31 -> 15 -> 7 -> 3.

    Args:
        activation: Follows the whitening and every batch norm.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on the 64, 256 and 256 channels of the stages.

    Example:
        >>> net = FastResNet(Activation.parse("apl:8:channel:silu"), (3, 32, 32), 10, width=0.125)
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
        if len(input_shape) != 3 or min(input_shape[1:]) < _PATCH:
            raise ValueError(
                f"input_shape must be (C, H, W) with sides of {_PATCH} or more, got {input_shape}"
            )
        self.whiten = Whitening(input_shape[0])
        sides = (size - _PATCH + 1 for size in input_shape[1:])
        shape: tuple[int, ...] = (2 * self.whiten.size, *sides)
        self.act = activation.build(shape)
        stages: list[Stage] = []
        for channels in _CHANNELS:
            stages.append(Stage(activation, shape, scaled(channels, width)))
            shape = stages[-1].output_shape
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(shape[0], num_classes, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        features: Tensor = self.stages(self.act(self.whiten(input)))
        logits: Tensor = self.fc(features.amax(dim=(2, 3)))
        return logits

    def start_from_data_(self, batches: Iterable[Tensor]) -> None:
        """Whiten the patches of these images."""
        self.whiten.fit_(batches)

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return factors of 1 but for the biases of batch norm."""
        default = super().multiplier(module, name, parameter)
        is_shift = isinstance(module, nn.BatchNorm2d) and name == "bias"
        return default._replace(lr=_BIAS_RATE) if is_shift else default


class Whitening(nn.Module):
    """Projects patches onto their principal axes, each scaled to variance 1, and their negatives.

    The negatives keep for an activation that cuts one side off what it would lose. Nothing here is
    trained; until it is fitted, the axes are the patch's own pixels.

    Args:
        channels: Of the images.

    Example:
        >>> Whitening(3)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 24, 31, 31])
    """

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.size = channels * _PATCH**2
        axes = torch.eye(self.size).view(self.size, channels, _PATCH, _PATCH)
        self.register_buffer("weight", torch.cat([axes, -axes]))

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input, self.weight)

    @torch.no_grad()
    def fit_(self, batches: Iterable[Tensor]) -> None:
        """Take the axes from patches of the first images, of shape ``(N, C, H, W)``."""
        moments = self.weight.new_zeros(self.size, self.size, dtype=torch.float64)
        images, patches = 0, 0
        for batch in batches:
            windows = batch.unfold(2, _PATCH, 1).unfold(3, _PATCH, 1)
            rows = windows.permute(0, 2, 3, 1, 4, 5).reshape(-1, self.size).double()
            moments += rows.T @ rows
            images, patches = images + len(batch), patches + len(rows)
            if images >= _FITTED_IMAGES:
                break
        values, vectors = torch.linalg.eigh(moments / patches)
        axes = (vectors / (values + _LEAST_VARIANCE).sqrt()).T
        self.weight.copy_(torch.cat([axes, -axes]).view_as(self.weight))


class Stage(nn.Module):
    """A convolution that halves the map, and one with a shortcut around it."""

    def __init__(self, activation: Activation, shape: tuple[int, ...], channels: int) -> None:
        super().__init__()
        # A side of one pixel stays.
        window = tuple(min(2, size) for size in shape[1:])
        self.output_shape = (channels, shape[1] // window[0], shape[2] // window[1])
        self.conv1 = nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)
        # Before batch norm and activation, which so have a quarter of the numbers.
        self.pool = nn.MaxPool2d(window)
        self.norm1 = nn.BatchNorm2d(channels)
        self.act1 = activation.build(self.output_shape)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.act2 = activation.build(self.output_shape)

    def forward(self, input: Tensor) -> Tensor:
        features = self.act1(self.norm1(self.pool(self.conv1(input))))
        output: Tensor = features + self.act2(self.norm2(self.conv2(features)))
        return output


# Convolutions alone.
NETWORKS.register(
    Network("fast-resnet", "Fast ResNet", "fast-resnet", FastResNet, 118e6, drops=False)
)
