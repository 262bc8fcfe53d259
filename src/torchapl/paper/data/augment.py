"""The paper's augmentation, on whole batches: zero-pad, crop at random, mirror at random."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl.paper.data.preprocess import Affine

# Of the paper, on every side.
PADDING = 4


@dataclass(frozen=True)
class Draws:
    """Random choices for some images: the crop's corner in the padded image, and mirroring."""

    top: Tensor
    left: Tensor
    mirrored: Tensor

    @classmethod
    def sample(cls, count: int, generator: torch.Generator, padding: int = PADDING) -> Draws:
        """Draw for ``count`` images, on the CPU, so that every device sees the same choices."""
        corner = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
        return cls(corner[0], corner[1], torch.rand(count, generator=generator) < 0.5)

    def __getitem__(self, rows: slice) -> Draws:
        return Draws(self.top[rows], self.left[rows], self.mirrored[rows])


class Cropper:
    """Random crops of resident images, preprocessed.

    The border is 0 *after* preprocessing. That is what Caffe's data layer does with padded images
    and their padded mean image, whose border is 0: it subtracts before it crops. Padding the bytes
    and subtracting afterwards would surround each image by minus the mean.

    Args:
        images: ``(N, C, H, W)``. They are kept padded, as they are and mirrored: for CIFAR 480 MB
            of bytes. Mirroring in each batch would take longer than all the rest.
        preprocess: Turns bytes into the network's input; None if the images are that already.
        padding: Pixels of the border on every side.

    Example:
        >>> images = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2)
        >>> draws = Draws(torch.tensor([5]), torch.tensor([4]), torch.tensor([False]))
        >>> Cropper(images, Affine(torch.ones(1, 2, 2)))(torch.tensor([0]), draws)
        tensor([[[[1., 2.],
                  [0., 0.]]]])
    """

    def __init__(self, images: Tensor, preprocess: Affine | None, padding: int = PADDING) -> None:
        if padding < 1:
            raise ValueError(f"padding must be at least 1 pixel, got {padding}")
        self.rows, self.shape, self.padding = len(images), images.shape[1:], padding
        channels, height, width = self.shape
        size = (2 * self.rows, channels, height + 2 * padding, width + 2 * padding)
        padded = images.new_zeros(size)
        inside = padded[..., padding:-padding, padding:-padding]
        inside[: self.rows] = images
        inside[self.rows :] = images.flip(-1)
        image, channel, row, _ = padded.stride()
        # Every line of every crop is a run of `width` pixels somewhere in `padded`. Selecting runs
        # from an overlapping view copies each as a block, in a quarter of the time that indexing
        # with a tensor per dimension takes.
        self.runs = padded.as_strided((padded.numel() - width + 1, width), (1, 1))
        self.image, self.row = image, row
        planes = torch.arange(channels, device=images.device)[:, None] * channel
        self.lines = (planes + torch.arange(height, device=images.device) * row).view(-1)
        self.scale = None if preprocess is None else preprocess.scale
        self.shifts = None if preprocess is None else self._shifts(preprocess)

    def _shifts(self, preprocess: Affine) -> Tensor:
        """Return what to add to each possible crop (162 of them): minus the shift, border 0."""
        _, height, width = self.shape
        shift = preprocess.shift if self.scale is None else preprocess.shift * self.scale
        shift = -shift.expand(self.shape)
        padded = F.pad(torch.stack([shift, shift.flip(-1)]), (self.padding,) * 4)
        crops = padded.unfold(2, height, 1).unfold(3, width, 1)
        return crops.permute(0, 2, 3, 1, 4, 5).flatten(0, 2)

    def __call__(self, rows: Tensor, draws: Draws) -> Tensor:
        """Return the chosen crops of the images ``rows``."""
        device = self.runs.device
        corner = (draws.mirrored * self.rows * self.image + draws.top * self.row + draws.left).to(
            device
        )
        starts = (rows * self.image + corner)[:, None] + self.lines
        crops = self.runs.index_select(0, starts.view(-1)).view(len(rows), *self.shape)
        if self.shifts is None:
            return crops
        corners = 2 * self.padding + 1
        which = (draws.mirrored * corners**2 + draws.top * corners + draws.left).to(device)
        # Converting first is faster than adding bytes to numbers, which is not vectorised.
        output = crops.float()
        if self.scale is not None:
            output.mul_(self.scale)
        return output.add_(self.shifts.index_select(0, which))
