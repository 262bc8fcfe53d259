"""What happens to an image before the network: mean image or per-channel scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

ImagePreprocessing = Literal["mean-image", "standard", "gcn", "gcn-zca"]
# Chunks of this many images bound the float32 copies: 4096 CIFAR images are 50 MB.
_CHUNK = 4096


@dataclass(frozen=True)
class Affine:
    """Turns bytes into ``(x - shift) * scale``, in float32."""

    shift: Tensor
    scale: Tensor | None = None

    def __call__(self, images: Tensor) -> Tensor:
        output = torch.sub(images, self.shift)
        return output if self.scale is None else output.mul_(self.scale)

    def to(self, device: torch.device) -> Affine:
        """Return the same map with its constants on ``device``."""
        return Affine(self.shift.to(device), None if self.scale is None else self.scale.to(device))


def check_image_preprocessing(name: str) -> None:
    """Refuse a name that is none of them."""
    if name not in get_args(ImagePreprocessing):
        fitting = ", ".join(get_args(ImagePreprocessing))
        raise ValueError(f"preprocessing of images must be one of {fitting}; got {name!r}")


def mean_image(images: Tensor) -> Affine:
    """Fit the paper's preprocessing: subtract the mean image, keep the range 0 to 255.

    Example:
        >>> fit = mean_image(torch.tensor([[[[0, 4]]], [[[2, 8]]]], dtype=torch.uint8))
        >>> fit.shift
        tensor([[[1., 6.]]])
    """
    return Affine(_moments(images)[0].float())


def per_channel(images: Tensor) -> Affine:
    """Fit mean 0 and standard deviation 1 for each channel."""
    mean, square = (moment.mean((1, 2), keepdim=True) for moment in _moments(images))
    deviation = (square - mean.square()).clamp_min(0).sqrt()
    # A channel that never varies has nothing to scale.
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return Affine(mean.float(), deviation.reciprocal().float())


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of x and of x^2 per pixel, exact sums in float64."""
    total = torch.zeros(images.shape[1:], dtype=torch.float64, device=images.device)
    squares = torch.zeros_like(total)
    for chunk in torch.split(images, _CHUNK):
        wide = chunk.double()
        total += wide.sum(0)
        squares += wide.square_().sum(0)
    return total / len(images), squares / len(images)
