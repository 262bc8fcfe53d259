"""Data of one's own: arrays, a table in a file, a folder of images, each as a data set's ``load``.

The rows for testing are drawn once, by a fixed seed, unless they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchapl.paper.data.batches import generator
from torchapl.paper.data.content import EventData, ImageData, Images
from torchapl.paper.data.files import DataError

Load = Callable[[Path], ImageData | EventData]
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def arrays(
    inputs: Any,
    targets: Any,
    *,
    test: tuple[Any, Any] | None = None,
    test_share: float = 0.2,
    features: Sequence[str] | None = None,
) -> Load:
    """Return the ``load`` of arrays or tensors in memory.

    Args:
        inputs: ``(N, F)`` numbers, or images ``(N, C, H, W)``.
        targets: ``(N,)`` classes, of any type that can be sorted.
        test: Inputs and targets of the test rows; None draws them from the others.
        test_share: The part that is drawn.
        features: Names of the F columns.

    Example:
        >>> load = arrays(np.random.rand(100, 3), ["yes", "no"] * 50)
        >>> load(Path()).test_rows
        20
    """
    rows, labels = _array(inputs), np.asarray(targets)
    if rows.ndim not in (2, 4) or len(rows) != len(labels) or labels.ndim != 1:
        raise ValueError(
            "inputs must be (N, F) or (N, C, H, W) and targets (N,), "
            f"got {rows.shape} and {labels.shape}"
        )
    if test is None:
        order = torch.randperm(len(rows), generator=generator("own", "test")).numpy()
        rows, labels = rows[order], labels[order]
        test_rows = int(len(rows) * test_share)
    else:
        more_rows, more_labels = _array(test[0]), np.asarray(test[1])
        rows, labels = np.concatenate([rows, more_rows]), np.concatenate([labels, more_labels])
        test_rows = len(more_rows)
    if not 0 < test_rows < len(rows):
        raise ValueError(f"of {len(rows)} rows {test_rows} would be for testing: give more rows")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"targets must have at least two classes, got {classes.tolist()}")

    def load(root: Path) -> ImageData | EventData:
        cut = len(rows) - test_rows
        if rows.ndim == 4:
            images, labels = torch.from_numpy(rows), torch.from_numpy(numbers.astype(np.int64))
            train, held = Images(images[:cut], labels[:cut]), Images(images[cut:], labels[cut:])
            return ImageData(train, held, len(classes))
        table = np.concatenate([rows, numbers[:, None]], axis=1).astype(np.float32)
        names = features or [f"feature_{number}" for number in range(rows.shape[1])]
        # Two classes are one logit, with an AUC.
        outputs = 1 if len(classes) == 2 else len(classes)
        missing = bool(np.isnan(table).any())
        return EventData.of_table(table, tuple(names), test_rows, missing=missing, classes=outputs)

    return load


def _array(values: Any) -> np.ndarray[Any, Any]:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def table(
    path: str | Path,
    *,
    label: str,
    features: Sequence[str] | None = None,
    test_share: float = 0.2,
) -> Load:
    """Return the ``load`` of a CSV or Parquet file with a header.

    Args:
        path: Of the file; one that is not absolute may also be below ``--data``.
        label: Column with the class, numbers or text.
        features: Columns to learn from; None takes all others. Text becomes one column for each of
            its values, an empty cell is a missing value.
        test_share: The part of the rows that is drawn for testing.
    """

    def load(root: Path) -> ImageData | EventData:
        columns = _read_columns(Path(path), root)
        if label not in columns:
            raise DataError(f"{path} has no column {label!r}; it has {', '.join(columns)}")
        wanted = list(features or [name for name in columns if name != label])
        absent = [name for name in wanted if name not in columns]
        if absent:
            raise DataError(
                f"{path} has no column {', '.join(absent)}; it has {', '.join(columns)}"
            )
        parts: dict[str, np.ndarray[Any, Any]] = {}
        for name in wanted:
            parts |= _numbers(name, columns[name])
        inputs = np.stack(list(parts.values()), axis=1)
        return arrays(inputs, columns[label], test_share=test_share, features=list(parts))(root)

    return load


def _read_columns(path: Path, root: Path) -> dict[str, np.ndarray[Any, Any]]:
    import pyarrow.csv
    import pyarrow.parquet

    file = next((candidate for candidate in (path, root / path) if candidate.is_file()), None)
    if file is None:
        raise DataError(f"there is no file {path}, here or in {root}")
    try:
        read = pyarrow.parquet.read_table if file.suffix == ".parquet" else pyarrow.csv.read_csv
        content = read(file)
    except pyarrow.ArrowException as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    return {
        name: content.column(name).to_numpy(zero_copy_only=False) for name in content.column_names
    }


def _numbers(name: str, column: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return a column as numbers; text as one column of 0 and 1 for each of its values."""
    if column.dtype.kind in "fiub":
        return {name: column.astype(np.float32)}
    texts = np.array(["" if value is None else str(value) for value in column])
    return {f"{name}={value}": (texts == value).astype(np.float32) for value in np.unique(texts)}


def image_folder(path: str | Path, *, size: tuple[int, int], test_share: float = 0.2) -> Load:
    """Return the ``load`` of a folder with one folder of pictures for each class.

    Where it holds ``train`` and ``test``, these are the two splits.

    Args:
        path: Of the folder.
        size: Height and width that all pictures are brought to.
        test_share: The part that is drawn for testing, where there is no ``test``.
    """

    def load(root: Path) -> ImageData | EventData:
        folder = Path(path) if Path(path).is_dir() else root / path
        if (folder / "train").is_dir() and (folder / "test").is_dir():
            train, test = (_pictures(folder / split, size) for split in ("train", "test"))
            return arrays(*train, test=test)(root)
        return arrays(*_pictures(folder, size), test_share=test_share)(root)

    return load


def _pictures(folder: Path, size: tuple[int, int]) -> tuple[np.ndarray[Any, Any], list[str]]:
    from PIL import Image

    files = [file for file in sorted(folder.glob("*/*")) if file.suffix.lower() in _PICTURES]
    if not files:
        raise DataError(f"{folder} has no folders with pictures ({', '.join(_PICTURES)}) in them")
    pictures = []
    for file in files:
        with Image.open(file) as picture:
            scaled = picture.convert("RGB").resize((size[1], size[0]))
            pictures.append(np.asarray(scaled).transpose(2, 0, 1))
    return np.stack(pictures), [file.parent.name for file in files]
