"""Batches of images that live on the training device as one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchapl.paper.data.augment import Draws, crop_and_mirror
from torchapl.paper.data.batches import Slicing, check_start, generator
from torchapl.paper.data.preprocess import Affine


@dataclass(frozen=True)
class ImageBatches:
    """Resident images, preprocessed and augmented a batch at a time.

    Args:
        images: ``(N, C, H, W)``, bytes (or float32 where ``preprocess`` is None).
        labels: ``(N,)`` int64, on the same device.
        slicing: Batch size and this rank's part.
        preprocess: Turns bytes into the network's input; None if the images are that already.
        seed: Shuffles and augments by it; None keeps the order, for evaluation.
        augment: Crop and mirror at random.
        channels_last: Memory format of the batches.

    Example:
        >>> images = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1)
        >>> keep = Affine(torch.zeros(1))
        >>> batches = ImageBatches(images, torch.arange(5), Slicing(2), keep, seed=0)
        >>> len(batches), sorted(torch.cat([labels for _, labels in batches.epoch(3)]).tolist())
        (3, [0, 1, 2, 3, 4])
    """

    images: Tensor
    labels: Tensor
    slicing: Slicing
    preprocess: Affine | None
    seed: int | None = None
    augment: bool = False
    channels_last: bool = False

    def __len__(self) -> int:
        return self.slicing.steps(len(self.images))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        check_start(start, len(self))
        rows = len(self.images)
        order = draws = None
        if self.seed is not None:
            order = torch.randperm(rows, generator=generator(self.seed, epoch, "order"))
            order = order.to(self.images.device)
            if self.augment:
                # For the whole epoch at once: a batch's choices depend neither on `start` nor on
                # the rank.
                choices = generator(self.seed, epoch, "augment")
                draws = Draws.sample(rows, choices, self.images.device)
        for step in range(start, len(self)):
            here = slice(*self.slicing.bounds(rows, step))
            yield self._batch(here, order, None if draws is None else draws[here])

    def _batch(
        self, rows: slice, order: Tensor | None, draws: Draws | None
    ) -> tuple[Tensor, Tensor]:
        if order is None:
            images, labels = self.images[rows], self.labels[rows]
        else:
            images = self.images.index_select(0, order[rows])
            labels = self.labels.index_select(0, order[rows])
        if self.preprocess is not None:
            images = self.preprocess(images)
        if draws is not None:
            images = crop_and_mirror(images, draws)
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images, labels
