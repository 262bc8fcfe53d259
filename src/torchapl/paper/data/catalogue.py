"""The data sets by name, and the kinds of files that they are made of; the sets are in ``sets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torchapl.paper.catalogue import Catalogue
from torchapl.paper.data.content import EventData, ImageData
from torchapl.paper.data.layouts import Layout


@dataclass(frozen=True)
class DataFile:
    """A file inside a set's folder; ``checksum`` is MD5 (32 digits) or SHA-256 (64)."""

    name: str
    size: int | None
    checksum: str

    @property
    def algorithm(self) -> str:
        """Name of the checksum's algorithm for :mod:`hashlib`."""
        return "md5" if len(self.checksum) == 32 else "sha256"


@dataclass(frozen=True)
class Download:
    """One file to fetch; size or checksum is None where its publisher states none."""

    url: str
    name: str
    size: int | None
    checksum: str | None


@dataclass(frozen=True)
class ImageForm:
    """One of the forms in which an image set is published."""

    kind: Literal["binary", "python"]
    archive: Download
    folder: str
    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]


@dataclass(frozen=True)
class ImageSet:
    """The files of labelled images of 3 x 32 x 32 bytes."""

    classes: int
    # Bytes before the pixels of a binary record; the class is the last of them (CIFAR-100: coarse,
    # then fine).
    label_bytes: int
    label_key: str
    forms: tuple[ImageForm, ...]


@dataclass(frozen=True)
class EventSet:
    """A file of events: the first below the root that fits a pattern of ``files``."""

    layout: Layout
    download: Download | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """A data set by name.

    Attributes:
        name: Of the ``data.name`` setting of experiments.
        title: How tables call it.
        about: One line.
        load: Opens it, given the folder that the sets' files are in.
        rows: Training rows as published, for estimates of time; the set at hand may be smaller.
        stand_ins: The sets that replace it at smaller scales, by scale.
        citation: Of whoever made it.
        files: Where it comes from; None if it needs no files.
    """

    name: str
    title: str
    about: str
    load: Callable[[Path], ImageData | EventData]
    rows: int | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    citation: str | None = None
    files: ImageSet | EventSet | None = None


DATA_SETS: Catalogue[DataSet] = Catalogue("data set", lambda entry: entry.name)


def image_files(name: str) -> ImageSet:
    """Return the files of a set of images.

    Raises:
        ValueError: If it is none.
    """
    files = DATA_SETS.get(name).files
    if not isinstance(files, ImageSet):
        raise ValueError(f"{name} is not made of files of images")
    return files


def event_file(name: str) -> EventSet:
    """Return the file of a table of events.

    Raises:
        ValueError: If it is none.
    """
    files = DATA_SETS.get(name).files
    if not isinstance(files, EventSet):
        raise ValueError(f"{name} is not made of a file of events")
    return files
