"""Global contrast normalisation and ZCA whitening, as maxout, NIN and probout used them.

Each image loses its mean and is scaled to length 55; then all are centred and multiplied by ``(C +
0.1 I)^(-1/2)``, C being the covariance of the training images (Goodfellow et al. 2013; constants of
pylearn2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from torchapl.paper.data.files import DataError, make_folder
from torchapl.runs.atomic import write_atomic

_LENGTH, _RIDGE, _CHUNK = 55.0, 0.1, 4096


def normalise_contrast(images: Tensor) -> Tensor:
    """Return images as float32 rows of mean 0 and length 55; a uniform image becomes 0.

    Example:
        >>> row = normalise_contrast(torch.tensor([[[[1, 3]]]], dtype=torch.uint8))
        >>> float(row.norm())
        55.0
    """
    rows = images.flatten(1).float()
    rows = rows - rows.mean(1, keepdim=True)
    length = rows.norm(dim=1, keepdim=True)
    return rows * torch.where(length > 1e-8, _LENGTH / length, torch.zeros_like(length))


def contrast_normalised(images: Tensor) -> Tensor:
    """Return images with normalised contrast and no whitening, as Lee et al. (2014) used them.

    Example:
        >>> contrast_normalised(torch.tensor([[[[1, 3]]]], dtype=torch.uint8)).shape
        torch.Size([1, 1, 1, 2])
    """
    output = torch.empty(images.shape, dtype=torch.float32)
    for first in range(0, len(images), _CHUNK):
        chunk = images[first : first + _CHUNK]
        output[first : first + _CHUNK] = normalise_contrast(chunk).view(chunk.shape)
    return output


def fit_whitening(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean row and the whitening matrix of the training images."""
    size = images[0].numel()
    mean = torch.zeros(size, dtype=torch.float64)
    for chunk in torch.split(images, _CHUNK):
        mean += normalise_contrast(chunk).double().sum(0)
    mean /= len(images)
    covariance = torch.zeros(size, size, dtype=torch.float64)
    for chunk in torch.split(images, _CHUNK):
        rows = normalise_contrast(chunk) - mean.float()
        covariance += (rows.T @ rows).double()
    covariance /= len(images)
    covariance.diagonal().add_(_RIDGE)
    values, vectors = torch.linalg.eigh(covariance)
    matrix = (vectors * values.rsqrt()) @ vectors.T
    return mean.float(), matrix.float()


def whitened(splits: Sequence[Tensor], key: str, cache: Path | None) -> list[Tensor]:
    """Return all splits whitened by what is fitted on the first; float32, of the same shapes.

    Args:
        splits: Bytes ``(N, C, H, W)``; the first are the training images.
        key: Names the training images; the fit is stored below ``cache`` under it.
        cache: Data root, or None to fit every time. One that cannot be written to only costs time.
    """
    size = splits[0][0].numel()
    mean, matrix = _cached(splits[0], hashlib.sha256(key.encode()).hexdigest()[:16], size, cache)
    outputs = []
    for images in splits:
        output = torch.empty(images.shape, dtype=torch.float32)
        for first in range(0, len(images), _CHUNK):
            rows = normalise_contrast(images[first : first + _CHUNK]) - mean
            torch.mm(rows, matrix, out=output[first : first + _CHUNK].view(len(rows), size))
        outputs.append(output)
    return outputs


def _cached(images: Tensor, name: str, size: int, cache: Path | None) -> tuple[Tensor, Tensor]:
    if cache is None:
        return fit_whitening(images)
    path = cache / "whitening" / f"{name}.f32"
    content = path.read_bytes() if path.is_file() else b""
    # A file of other length or checksum is of no use and simply made again.
    body = bytearray(content[32:])
    if len(body) != 4 * size * (size + 1) or hashlib.sha256(body).digest() != content[:32]:
        mean, matrix = fit_whitening(images)
        body = bytearray(torch.cat([mean[None], matrix]).numpy().tobytes())
        # Full, read-only, somebody else's: then the next run fits it again.
        with suppress(OSError, DataError):
            make_folder(path.parent)
            write_atomic(path, hashlib.sha256(body).digest() + bytes(body))
    table = torch.frombuffer(body, dtype=torch.float32).view(size + 1, size)
    return table[0], table[1:]
