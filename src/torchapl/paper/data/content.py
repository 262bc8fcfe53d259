"""What a data set holds once it is open: labelled images, or a table of events."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from torchapl.paper.data.events import ArrayRows, Rows
from torchapl.paper.data.shards import Table


@dataclass(frozen=True)
class Images:
    """Images as bytes ``(N, C, H, W)`` and their classes as int64."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class ImageData:
    """A whole image set.

    Attributes:
        checksum: Changes whenever a byte of the training images does; whitened images are kept on
            disk under it. None keeps none.
    """

    train: Images
    test: Images
    classes: int
    checksum: str | None = None


@dataclass(frozen=True)
class EventData:
    """A table whose columns are features, then the class, then what networks do not see.

    Attributes:
        source: Holds the rows, those for training first, the test set at the end.
        features: Names of the first columns.
        columns: Number of all columns.
        missing: Whether NaN stands for a value that does not exist.
        classes: 1 if the class is 0 or 1, with one logit; otherwise the number of classes.
    """

    source: Rows
    features: tuple[str, ...]
    columns: int
    training_rows: int
    test_rows: int
    missing: bool = False
    classes: int = 1

    @classmethod
    def of_table(
        cls,
        table: Table,
        features: tuple[str, ...],
        test_rows: int,
        *,
        missing: bool = False,
        classes: int = 1,
    ) -> EventData:
        """Return the data of a table in memory, whose last ``test_rows`` rows are the test set."""
        training = len(table) - test_rows
        columns = table.shape[1]
        return cls(ArrayRows(table), features, columns, training, test_rows, missing, classes)
