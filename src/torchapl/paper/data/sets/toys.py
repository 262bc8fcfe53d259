"""Synthetic sets made from a seed in memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from torchapl.paper.data.catalogue import DATA_SETS, DataSet
from torchapl.paper.data.content import EventData, ImageData, Images
from torchapl.paper.data.toy import toy_events, toy_images


# Made once in a process: a sweep's worker opens them for every run.
@cache
def _images(root: Path) -> ImageData:
    train, test = (Images(*toy_images(rows, seed=rows)) for rows in (2000, 500))
    return ImageData(train, test, classes=10)


@cache
def _events(root: Path) -> EventData:
    table = toy_events(4000)
    features = tuple(f"feature_{number}" for number in range(table.shape[1] - 1))
    return EventData.of_table(table, features, test_rows=800, missing=True)


DATA_SETS.register(
    DataSet(
        "toy-images",
        "toy images",
        about="synthetic images in 10 classes, made in memory, for tests",
        load=_images,
        rows=2000,
    )
)
DATA_SETS.register(
    DataSet(
        "toy-events",
        "toy events",
        about="synthetic events with 25 features, made in memory, for tests",
        load=_events,
        rows=3200,
    )
)
