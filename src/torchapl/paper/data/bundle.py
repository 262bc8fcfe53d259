"""Opens a data set by name: the one call a training loop needs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch

from torchapl.paper.data import cifar
from torchapl.paper.data.batches import Bundle, Slicing
from torchapl.paper.data.catalogue import EVENT_SETS, IMAGE_SETS
from torchapl.paper.data.convert import open_store
from torchapl.paper.data.events import ArrayRows, EventBatches, Rows
from torchapl.paper.data.files import DataError, default_root
from torchapl.paper.data.images import ImageBatches
from torchapl.paper.data.layouts import LAYOUTS
from torchapl.paper.data.preprocess import check_image_preprocessing, mean_image, per_channel
from torchapl.paper.data.readers import read_table
from torchapl.paper.data.shards import Table
from torchapl.paper.data.standardise import check_event_preprocessing, fit
from torchapl.paper.data.statistics import Statistics
from torchapl.paper.data.toy import toy_events, toy_images
from torchapl.paper.data.whiten import whitened

EMBEDDED, TOY_IMAGES, TOY_EVENTS = "atlas-higgs-embedded", "toy-images", "toy-events"
DATA_SETS = (*IMAGE_SETS, *EVENT_SETS, EMBEDDED, TOY_IMAGES, TOY_EVENTS)


def open_data(
    name: str,
    root: Path | None = None,
    *,
    batch_size: int,
    seed: int,
    preprocessing: str,
    augment: bool = False,
    validation: int = 0,
    limit: int | None = None,
    device: str | torch.device = "cpu",
    rank: int = 0,
    world_size: int = 1,
    channels_last: bool = False,
) -> Bundle:
    """Open a data set for training and evaluation.

    Args:
        name: One of ``DATA_SETS``.
        root: Folder with the sets; the user's cache folder by default. The embedded and toy sets
            need none.
        batch_size: Rows of a global batch.
        seed: Fixes the order and the augmentation of every epoch. No split depends on it.
        preprocessing: Images: ``"mean-image"`` (the paper's), ``"standard"`` (per channel),
            ``"gcn-zca"``. Events: ``"physics"``, ``"standard"``. Always fitted on the training
            rows that remain.
        augment: Images only: zero-pad 4 pixels, crop and mirror at random.
        validation: Training rows to hold out: the last ones of the official training set.
        limit: Use only the first so many of the remaining training rows.
        device: Where batches live; images stay there as bytes.
        rank: This process, of
        world_size: processes. Each gets its part of every global batch of every split, all parts
            together are the batch.
        channels_last: Memory format of image batches.

    Example:
        >>> data = open_data("toy-images", batch_size=100, seed=0, preprocessing="mean-image")
        >>> images, labels = next(iter(data.train.epoch(0)))
        >>> tuple(images.shape), data.num_classes
        ((100, 3, 32, 32), 10)
    """
    if name not in DATA_SETS:
        raise ValueError(f"no data set {name!r}; there are {', '.join(DATA_SETS)}")
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
    if name == TOY_IMAGES or name in IMAGE_SETS:
        check_image_preprocessing(preprocessing)
        return _open_images(request, augment, channels_last)
    if augment:
        raise ValueError(f"augment is for images, {name!r} holds events")
    check_event_preprocessing(preprocessing)
    return _open_events(request)


@dataclass(frozen=True)
class _Request:
    """What :func:`open_data` was asked for, checked."""

    name: str
    root: Path
    slicing: Slicing
    seed: int
    preprocessing: str
    validation: int
    limit: int | None
    device: torch.device


def training_rows(available: int, validation: int, limit: int | None) -> int:
    """Return how many rows are trained on; the last ``validation`` of those available are not.

    Example:
        >>> training_rows(50_000, 5_000, None), training_rows(50_000, 5_000, 100)
        (45000, 100)
    """
    if not 0 <= validation < available:
        raise ValueError(f"validation must lie in 0..{available - 1}, got {validation}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    rest = available - validation
    return rest if limit is None else min(limit, rest)


def _open_images(request: _Request, augment: bool, channels_last: bool) -> Bundle:
    name, slicing = request.name, request.slicing
    data = _toy_image_data() if name == TOY_IMAGES else cifar.load(name, request.root)
    available = len(data.train.images)
    rows = training_rows(available, request.validation, request.limit)
    slicing.check_training(rows)
    held_out = slice(available - request.validation, available)
    splits = [
        (data.train.images[:rows], data.train.labels[:rows]),
        (data.train.images[held_out], data.train.labels[held_out]),
        (data.test.images, data.test.labels),
    ]
    fitted = None
    if request.preprocessing == "gcn-zca":
        cache = None if name == TOY_IMAGES else request.root
        tensors = whitened([images for images, _ in splits], f"{data.checksum}-{rows}", cache)
        splits = [(images, labels) for images, (_, labels) in zip(tensors, splits, strict=True)]
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
        )
        for number, (images, labels) in enumerate(splits)
    )
    shape = tuple(data.train.images.shape[1:])
    return Bundle(train, held if request.validation else None, test, shape, data.classes)


def _toy_image_data() -> cifar.ImageData:
    train, test = (cifar.Images(*toy_images(rows, seed=rows)) for rows in (2000, 500))
    return cifar.ImageData(train, test, 10, "toy-images")


def _open_events(request: _Request) -> Bundle:
    name, validation = request.name, request.validation
    layout = LAYOUTS[EVENT_SETS[name].layout if name in EVENT_SETS else "atlas-higgs-2014"]
    source: Rows
    if name in EVENT_SETS:
        store = open_store(name, request.root)
        source, features, columns = store, store.features, len(store.columns)
        available, test = layout.split(store.rows)
        rows = training_rows(available, validation, request.limit)
        statistics = store.statistics(0, rows)
    else:
        table, features = _memory_table(name)
        source, columns = ArrayRows(table), table.shape[1]
        available, test = layout.split(len(table))
        rows = training_rows(available, validation, request.limit)
        statistics = Statistics.of(table[:rows])
    request.slicing.check_training(rows)
    if (statistics.minimum[len(features)], statistics.maximum[len(features)]) != (0.0, 1.0):
        raise DataError(
            f"the first {rows} rows of {name} are of one class only; they must be mixed"
        )
    standardiser = fit(
        statistics, features, request.preprocessing, missing=layout.missing is not None
    )
    train, held, tested = (
        EventBatches(
            source, columns, first, number, request.slicing, standardiser, order, request.device
        )
        for first, number, order in (
            (0, rows, request.seed),
            (available - validation, validation, None),
            (available, test, None),
        )
    )
    return Bundle(train, held if validation else None, tested, (len(features),), 1)


def _memory_table(name: str) -> tuple[Table, tuple[str, ...]]:
    """Return the table and the feature names of a set that needs no files."""
    if name == TOY_EVENTS:
        table = toy_events(4000)
        return table, tuple(f"feature_{number}" for number in range(table.shape[1] - 1))
    layout = LAYOUTS["atlas-higgs-2014"]
    embedded = resources.files("torchapl.paper.data") / "embedded" / "atlas-higgs-2014.parquet"
    with resources.as_file(embedded) as path:
        return read_table(path, layout), layout.features
