"""The paper's augmentation, on whole batches: zero-pad, crop at random, mirror at random."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


@dataclass(frozen=True)
class Draws:
    """Random choices for some images: the crop's corner in the padded image, and mirroring."""

    top: Tensor
    left: Tensor
    mirrored: Tensor

    @classmethod
    def sample(cls, count: int, generator: torch.Generator, device: torch.device) -> Draws:
        """Draw for ``count`` images, on the CPU so that every device sees the same choices."""
        corner = torch.randint(0, 2 * PADDING + 1, (2, count), generator=generator).to(device)
        mirrored = torch.rand(count, generator=generator).to(device) < 0.5
        return cls(corner[0], corner[1], mirrored)

    def __getitem__(self, rows: slice) -> Draws:
        return Draws(self.top[rows], self.left[rows], self.mirrored[rows])


def crop_and_mirror(images: Tensor, draws: Draws) -> Tensor:
    """Return random crops of the zero-padded images, some mirrored left to right.

    ``images`` are what the network would see otherwise, so the border is 0 *after* the mean was
    subtracted. That is what Caffe's data layer does with padded images and their padded mean image,
    whose border is 0: it subtracts before it crops. Padding the bytes instead would surround each
    image by minus the mean.

    Example:
        >>> images = torch.arange(4.0).view(1, 1, 2, 2)
        >>> draws = Draws(torch.tensor([5]), torch.tensor([4]), torch.tensor([False]))
        >>> crop_and_mirror(images, draws)
        tensor([[[[2., 3.],
                  [0., 0.]]]])
    """
    count, channels, height, width = images.shape
    padded = F.pad(images, (PADDING,) * 4).contiguous()
    # Every row of every crop is a run of `width` numbers somewhere in `padded`. Selecting runs from
    # an overlapping view copies each as a block: 3 times faster than indexing with a tensor per
    # dimension.
    image, channel, row, _ = padded.stride()
    runs = padded.as_strided((padded.numel() - width + 1, width), (1, 1))
    corner = draws.top * row + draws.left + torch.arange(count, device=images.device) * image
    planes = torch.arange(channels, device=images.device)[:, None] * channel
    lines = torch.arange(height, device=images.device) * row
    starts = corner[:, None, None] + planes + lines
    crops = runs.index_select(0, starts.view(-1)).view(images.shape)
    mirrored = draws.mirrored.nonzero().view(-1)
    return crops.index_copy_(0, mirrored, crops.index_select(0, mirrored).flip(-1))
