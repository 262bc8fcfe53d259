"""Whether the parts that a data set is split into can be measured."""

from __future__ import annotations

from torchapl.paper.data.bundle import split_rows
from torchapl.paper.data.content import EventData, ImageData
from torchapl.paper.data.files import DataError


def check_parts(content: ImageData | EventData, validation: float, limit: int | None) -> None:
    """Refuse a held-out or a test part of one class where an AUC is to be measured.

    Args:
        content: The data set.
        validation: Training rows to hold out, as :func:`open_data` takes them.
        limit: Of the training rows, too.
    """
    if isinstance(content, ImageData) or content.classes != 1:
        return
    available = content.training_rows
    _, held_out = split_rows(available, validation, limit)
    _check(content, "held-out rows (the last of the training rows)", available - held_out, held_out)
    _check(content, "test rows", available, content.test_rows)


def _check(content: EventData, part: str, first: int, rows: int) -> None:
    statistics, label = content.source.statistics(first, first + rows), len(content.features)
    if rows and statistics.minimum[label] == statistics.maximum[label]:
        raise DataError(
            f"{rows} of {rows} {part} are of one class, and an AUC needs both: "
            "give more rows of the rarer class, or a larger data.limit if one is set"
        )
