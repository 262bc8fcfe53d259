"""Opens a data set by name: the one call a training loop needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from torchapl.paper.data import sets
from torchapl.paper.data.augment import PADDING
from torchapl.paper.data.batches import Bundle, Slicing
from torchapl.paper.data.catalogue import DATA_SETS
from torchapl.paper.data.content import EventData, ImageData
from torchapl.paper.data.events import EventBatches
from torchapl.paper.data.files import DataError, default_root
from torchapl.paper.data.images import ImageBatches
from torchapl.paper.data.preprocess import check_image_preprocessing, mean_image, per_channel
from torchapl.paper.data.standardise import check_event_preprocessing, fit
from torchapl.paper.data.whiten import contrast_normalised, whitened

__all__ = ["open_data", "sets"]


def open_data(
    name: str,
    root: Path | None = None,
    *,
    batch_size: int,
    seed: int,
    preprocessing: str,
    augment: bool = False,
    validation: float = 0,
    limit: int | None = None,
    device: str | torch.device = "cpu",
    rank: int = 0,
    world_size: int = 1,
    channels_last: bool = False,
    padding: int = PADDING,
) -> Bundle:
    """Open a data set for training and evaluation.

    Args:
        name: One of ``DATA_SETS``.
        root: Folder with the sets; the user's cache folder by default. The embedded and toy sets
            need none.
        batch_size: Rows of a global batch.
        seed: Fixes the order and the augmentation of every epoch. No split depends on it.
        preprocessing: Images: ``"mean-image"`` (the paper's), ``"standard"`` (per channel),
            ``"gcn"`` (normalised contrast), ``"gcn-zca"`` (whitened too). Events: ``"physics"``,
            ``"standard"``. Always fitted on the training rows that remain.
        augment: Images only: zero-pad, crop and mirror at random.
        validation: Training rows to hold out: the last ones of the official training set. Below 1
            it is their share of the rows that are there, of at most ``limit``.
        limit: Use only the first so many of the remaining training rows.
        device: Where batches live; images stay there as bytes.
        rank: This process, of
        world_size: processes. Each gets its part of every global batch of every split, all parts
            together are the batch.
        channels_last: Memory format of image batches.
        padding: Pixels on every side of an image that is cropped at random; the paper's 4.

    Example:
        >>> data = open_data("toy-images", batch_size=100, seed=0, preprocessing="mean-image")
        >>> images, labels = next(iter(data.train.epoch(0)))
        >>> tuple(images.shape), data.num_classes
        ((100, 3, 32, 32), 10)
    """
    data = DATA_SETS.get(name)
    request = _Request(
        name,
        default_root() if root is None else Path(root),
        Slicing(batch_size, rank, world_size),
        seed,
        preprocessing,
        validation,
        limit,
        torch.device(device),
    )
    content = data.load(request.root)
    if isinstance(content, ImageData):
        check_image_preprocessing(preprocessing)
        return _open_images(content, request, augment, channels_last, padding)
    if augment:
        raise ValueError(f"augment is for images, {name!r} holds events")
    check_event_preprocessing(preprocessing)
    return _open_events(content, request)


@dataclass(frozen=True)
class _Request:
    """What :func:`open_data` was asked for, checked."""

    name: str
    root: Path
    slicing: Slicing
    seed: int
    preprocessing: str
    validation: float
    limit: int | None
    device: torch.device


def split_rows(available: int, validation: float, limit: int | None) -> tuple[int, int]:
    """Return how many rows are trained on and how many, the last of those available, held out.

    Example:
        >>> split_rows(50_000, 5_000, None), split_rows(50_000, 0.1, 100)
        ((45000, 5000), (100, 10))
    """
    if 0 < validation < 1:
        rows = available if limit is None else min(limit, available)
        validation = max(1, int(rows * validation))
    if not 0 <= validation < available:
        raise ValueError(f"validation must lie in 0..{available - 1}, got {validation}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    rest = available - int(validation)
    return (rest if limit is None else min(limit, rest)), int(validation)


def _open_images(
    data: ImageData, request: _Request, augment: bool, channels_last: bool, padding: int
) -> Bundle:
    slicing = request.slicing
    available = len(data.train.images)
    rows, validation = split_rows(available, request.validation, request.limit)
    slicing.check_training(rows)
    held_out = slice(available - validation, available)
    splits = [
        (data.train.images[:rows], data.train.labels[:rows]),
        (data.train.images[held_out], data.train.labels[held_out]),
        (data.test.images, data.test.labels),
    ]
    fitted = None
    if request.preprocessing == "gcn-zca":
        cache = None if data.checksum is None else request.root
        tensors = whitened([images for images, _ in splits], f"{data.checksum}-{rows}", cache)
        splits = [(images, labels) for images, (_, labels) in zip(tensors, splits, strict=True)]
    elif request.preprocessing == "gcn":
        splits = [(contrast_normalised(images), labels) for images, labels in splits]
    else:
        fit_affine = mean_image if request.preprocessing == "mean-image" else per_channel
        fitted = fit_affine(splits[0][0]).to(request.device)
    train, held, test = (
        ImageBatches(
            images.to(request.device),
            labels.to(request.device),
            slicing,
            fitted,
            seed=request.seed if number == 0 else None,
            augment=augment and number == 0,
            channels_last=channels_last,
            padding=padding,
        )
        for number, (images, labels) in enumerate(splits)
    )
    shape = tuple(data.train.images.shape[1:])
    return Bundle(train, held if validation else None, test, shape, data.classes)


def _open_events(data: EventData, request: _Request) -> Bundle:
    available, features = data.training_rows, data.features
    rows, validation = split_rows(available, request.validation, request.limit)
    statistics = data.source.statistics(0, rows)
    request.slicing.check_training(rows)
    label = len(features)
    if data.classes == 1 and (statistics.minimum[label], statistics.maximum[label]) != (0, 1):
        raise DataError(
            f"the first {rows} rows of {request.name} are of one class only; they must be mixed"
        )
    standardiser = fit(statistics, features, request.preprocessing, missing=data.missing)
    train, held, tested = (
        EventBatches(
            data.source,
            data.columns,
            first,
            number,
            request.slicing,
            standardiser,
            order,
            request.device,
            classes=data.classes,
        )
        for first, number, order in (
            (0, rows, request.seed),
            (available - validation, validation, None),
            (available, data.test_rows, None),
        )
    )
    return Bundle(train, held if validation else None, tested, (len(features),), data.classes)
