"""Arrays and tensors in memory, which tables and pictures become too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchapl.paper.data.batches import generator
from torchapl.paper.data.content import EventData, ImageData, Images

Load = Callable[[Path], ImageData | EventData]
Array = npt.NDArray[Any]


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
    rows, labels = _checked(inputs, targets)
    if test is None:
        rows, labels = _mixed(rows, labels, "test")
        test_rows = int(len(rows) * test_share)
    else:
        # The last training rows are what is held out: those of a sorted file would be of one class.
        rows, labels = _mixed(rows, labels, "training")
        more_rows, more_labels = _checked(*test)
        rows, labels = np.concatenate([rows, more_rows]), np.concatenate([labels, more_labels])
        test_rows = len(more_rows)
    if not 0 < test_rows < len(rows):
        raise ValueError(f"of {len(rows)} rows {test_rows} would be for testing: give more rows")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"targets must have at least two classes, got {classes.tolist()}")
    # Two classes of a table are measured by an AUC.
    if rows.ndim == 2 and len(classes) == 2:
        _check_both_classes(classes.tolist(), numbers, test_rows)

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
        has_gaps = bool(np.isnan(table).any())
        return EventData.of_table(table, tuple(names), test_rows, missing=has_gaps, classes=outputs)

    return load


def missing(labels: Array) -> Array:
    """Return the positions of labels that are None, NaN, no time, or empty text.

    Example:
        >>> missing(np.array(["yes", "", None], dtype=object)).tolist()
        [1, 2]
    """
    if labels.dtype.kind == "f":
        return np.flatnonzero(np.isnan(labels))
    if labels.dtype.kind in "mM":
        return np.flatnonzero(np.isnat(labels))
    if labels.dtype.kind in "OSU":
        return np.flatnonzero([_is_missing(label) for label in labels.tolist()])
    return np.empty(0, dtype=np.int64)


def _is_missing(label: object) -> bool:
    if isinstance(label, str | bytes):
        return not label.strip()
    return label is None or (isinstance(label, float) and math.isnan(label))


def _checked(inputs: Any, targets: Any) -> tuple[Array, Array]:
    """Return inputs and targets as arrays that fit each other, without what no run can use."""
    rows, labels = _array(inputs), np.asarray(targets)
    if rows.ndim not in (2, 4) or len(rows) != len(labels) or labels.ndim != 1:
        raise ValueError(
            "inputs must be (N, F) or (N, C, H, W) and targets (N,), "
            f"got {rows.shape} and {labels.shape}"
        )
    absent = missing(labels)
    if len(absent):
        raise ValueError(
            f"{len(absent)} of {len(labels)} targets are missing, the first in row {absent[0]}: "
            "fill them, or leave these rows out"
        )
    infinite = np.argwhere(np.isinf(rows))
    if len(infinite):
        raise ValueError(
            "inputs must be finite 32-bit numbers, or NaN for a missing value, "
            f"got {rows[tuple(infinite[0])]} in row {infinite[0][0]}"
        )
    return rows, labels


def _array(values: Any) -> Array:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    with np.errstate(over="ignore"):  # the caller names the place of what overflows
        return array if array.dtype == np.uint8 else array.astype(np.float32)


def _mixed(rows: Array, labels: Array, part: str) -> tuple[Array, Array]:
    """Return rows and labels in an order that is random, and always the same."""
    order = torch.randperm(len(rows), generator=generator("own", part)).numpy()
    return rows[order], labels[order]


def _check_both_classes(classes: list[Any], numbers: Array, test_rows: int) -> None:
    for part, chosen in (("training", numbers[:-test_rows]), ("test", numbers[-test_rows:])):
        if len(np.unique(chosen)) == 1:
            there, rows = int(chosen[0]), len(chosen)
            raise ValueError(
                f"{rows} of {rows} {part} rows are of class {classes[there]!r}, and an AUC needs "
                f"both: give more rows of class {classes[1 - there]!r}, or another test_share"
            )
