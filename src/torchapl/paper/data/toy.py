"""Synthetic sets made from a seed in memory: small, learnable, for tests and demonstrations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchapl.paper.data.shards import Table


def toy_images(rows: int, *, classes: int = 10, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return bytes ``(rows, 3, 32, 32)`` and classes: a coarse pattern per class under noise.

    Example:
        >>> images, labels = toy_images(4)
        >>> images.shape, labels.dtype
        (torch.Size([4, 3, 32, 32]), torch.int64)
    """
    # The patterns belong to the set, the noise to the split: both splits share the classes.
    patterns = torch.rand(classes, 3, 4, 4, generator=torch.Generator().manual_seed(12))
    large = patterns.repeat_interleave(8, 2).repeat_interleave(8, 3)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    noise = torch.randn(rows, 3, 32, 32, generator=generator)
    pixels = (large[labels] * 128 + 64 + noise * 64).round_().clamp_(0, 255)
    return pixels.byte(), labels


def toy_events(rows: int, *, features: int = 25, seed: int = 0) -> Table:
    """Return float32 rows of features and a label, which depends on them non-linearly.

    A third of the features are energies (positive, of order 50), a third angles, a third fractions
    between 0 and 1.

    Example:
        >>> toy_events(3, features=6).shape
        (3, 7)
    """
    random = np.random.default_rng([1, seed])
    latent = random.standard_normal((rows, features))
    label = (random.random(rows) < 0.5).astype(np.float64)
    # Signal has correlated neighbours, which no single feature shows, and a slight shift.
    latent[:, 1:] += 0.6 * label[:, None] * latent[:, :-1] + 0.15 * label[:, None]
    kind = np.arange(features) % 3
    table = np.where(
        kind == 0, 50 * np.exp(0.5 * latent), np.where(kind == 1, latent, 1 / (1 + np.exp(-latent)))
    )
    return np.concatenate([table, label[:, None]], axis=1).astype(np.float32)
