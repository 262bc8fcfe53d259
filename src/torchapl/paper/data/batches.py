"""What a training loop sees of a data set: batches that depend on (seed, epoch) alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Batches(Protocol):
    """The batches of one split, in an order fixed by the seed and the epoch."""

    def __len__(self) -> int:
        """Return the number of global batches of an epoch."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, targets) of one epoch, without its first ``start`` batches.

        A skipped batch is never built, and what follows is bit for bit what an epoch from the
        beginning gives.
        """


@dataclass(frozen=True)
class Bundle:
    """The splits of a data set, ready to train on.

    Attributes:
        train: Shuffled; every row once an epoch, the last batch may be smaller.
        validation: Held out from the training rows, in order; None if none were asked for.
        test: In order, the last batch may be smaller.
        input_shape: ``(C, H, W)`` of images, ``(F,)`` of events.
        num_classes: 1 means one logit and float targets 0 and 1; otherwise targets are int64
            classes.
    """

    train: Batches
    validation: Batches | None
    test: Batches
    input_shape: tuple[int, ...]
    num_classes: int


@dataclass(frozen=True)
class Slicing:
    """How rows become batches, and which part of each batch belongs to this process.

    Example:
        >>> [Slicing(4, rank, 2).bounds(6, 1) for rank in (0, 1)]
        [(4, 5), (5, 6)]
    """

    batch_size: int
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must lie in 0..{self.world_size - 1}, got {self.rank}")

    def steps(self, rows: int) -> int:
        """Return how many global batches hold all the rows."""
        return -(-rows // self.batch_size)

    def bounds(self, rows: int, step: int) -> tuple[int, int]:
        """Return this rank's first and last-plus-one position in global batch ``step``.

        Ranks split a batch evenly to within one row, so that together they see each row exactly
        once.
        """
        first = step * self.batch_size
        size = min(self.batch_size, rows - first)
        low = first + size * self.rank // self.world_size
        high = first + size * (self.rank + 1) // self.world_size
        return low, high

    def check_training(self, rows: int) -> None:
        """Refuse a last batch that leaves a rank without a row, its mean loss being NaN."""
        tail = rows % self.batch_size or min(rows, self.batch_size)
        if rows and tail < self.world_size:
            raise ValueError(
                f"{rows} training rows in batches of {self.batch_size} end in a batch of {tail}, "
                f"fewer than world_size={self.world_size}; take another batch_size, "
                "limit or validation"
            )


def check_start(start: int, steps: int) -> None:
    """Refuse a resume point outside the epoch."""
    if not 0 <= start <= steps:
        raise ValueError(f"start must lie in 0..{steps}, got {start}")


def generator(*key: int | str) -> torch.Generator:
    """Return a CPU generator whose stream depends on all of the key.

    Hashing keeps the streams of (seed 1, epoch 2) and (seed 2, epoch 1) apart, which a sum of
    numbers would not.

    Example:
        >>> a, b = (torch.rand(1, generator=generator(0, 7, "order")) for _ in range(2))
        >>> bool(a == b)
        True
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
