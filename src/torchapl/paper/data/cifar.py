"""CIFAR-10 and CIFAR-100 from their official files, binary or python form, checked before use."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from torchapl.paper.data.catalogue import DataFile, ImageForm, ImageSet, image_files
from torchapl.paper.data.content import ImageData, Images
from torchapl.paper.data.files import DataError
from torchapl.paper.data.unpickle import read_pickled

_PIXELS = 3 * 32 * 32


def load(name: str, root: Path) -> ImageData:
    """Load an image set from the folder its archive unpacks to.

    Args:
        name: ``"cifar10"`` or ``"cifar100"``.
        root: Contains ``cifar-10-batches-bin``, ``cifar-10-batches-py`` or their like for
            CIFAR-100.

    Raises:
        DataError: There is no such folder (the message says what to put where), or a file is
            damaged.
    """
    return load_set(image_files(name), name, root)


def load_set(images: ImageSet, name: str, root: Path) -> ImageData:
    """Load any set of this kind; :func:`load` knows the two official ones."""
    form = find_form(images, name, root)
    train = _read_split(images, form, form.train, root)
    test = _read_split(images, form, form.test, root)
    checksum = hashlib.sha256("".join(file.checksum for file in form.train).encode())
    return ImageData(train, test, images.classes, checksum.hexdigest())


def find_form(images: ImageSet, name: str, root: Path) -> ImageForm:
    """Return the first published form whose folder exists."""
    for form in images.forms:
        if (root / form.folder).is_dir():
            return form
        if (root / form.folder).exists():
            raise DataError(
                f"{root / form.folder} is a file; a folder with {form.train[0].name} is expected"
            )
        if root.name == form.folder and (root / form.train[0].name).exists():
            raise DataError(
                f"{root} is the folder of the set itself: give the one above it, {root.parent}"
            )
    folders = " or ".join(form.folder for form in images.forms)
    raise DataError(
        f"{name} is not in {root}: no folder {folders} there. Run `torchapl data fetch {name} "
        f"--root {root}`, or download {images.forms[0].archive.url} elsewhere, put it "
        f"into {root} and run the same command"
    )


def read_checked(path: Path, expected: DataFile) -> bytes:
    """Return the content of a file, after its size and checksum were found right."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is missing; remove the folder and fetch the set again") from None
    except (IsADirectoryError, NotADirectoryError):
        raise DataError(f"{path} should be a file inside a folder") from None
    if expected.size is not None and len(content) != expected.size:
        kind = "truncated" if len(content) < expected.size else "too long"
        raise DataError(f"{path} is {kind}: {len(content)} bytes, expected {expected.size}")
    actual = hashlib.new(expected.algorithm, content, usedforsecurity=False).hexdigest()
    if actual != expected.checksum:
        raise DataError(
            f"{path} is damaged: its {expected.algorithm} is {actual}, expected {expected.checksum}"
        )
    return content


def _read_split(
    images: ImageSet, form: ImageForm, files: tuple[DataFile, ...], root: Path
) -> Images:
    parts = []
    for file in files:
        path = root / form.folder / file.name
        content = read_checked(path, file)
        try:
            if form.kind == "binary":
                parts.append(read_records(content, images.label_bytes))
            else:
                flat, classes = read_pickled(content, images.label_key)
                parts.append((flat.reshape(-1, 3, 32, 32), np.array(classes, dtype=np.int64)))
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        if len(parts[-1][0]) != len(parts[-1][1]):
            raise DataError(f"{path} has {len(parts[-1][0])} images and {len(parts[-1][1])} labels")
        worst = parts[-1][1].max(initial=0)
        if worst >= images.classes:
            raise DataError(f"{path} has label {worst}, there are {images.classes} classes")
    pixels, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64)))


def read_records(content: bytes, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of a binary file: records of label bytes, then pixels.

    Example:
        >>> images, labels = read_records(bytes([3, 7]) + bytes(3072), label_bytes=2)
        >>> images.shape, labels.tolist()
        ((1, 3, 32, 32), [7])
    """
    record = label_bytes + _PIXELS
    if not content or len(content) % record:
        raise DataError(f"{len(content)} bytes are no whole number of records of {record}")
    table = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    return table[:, label_bytes:].reshape(-1, 3, 32, 32), table[:, label_bytes - 1]
