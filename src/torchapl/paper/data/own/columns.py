"""A column of a table becomes numbers, whatever it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchapl.paper.data.files import DataError
from torchapl.paper.data.own.memory import Array

# Bits of an Arrow time of day whose whole number is an int32.
_SHORT = 32


def decoded(name: str, column: Any) -> Any:
    """Return an Arrow column without dictionary; refuse one that holds more than single values."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type) or pa.types.is_interval(column.type):
        raise DataError(
            f"column {name!r} holds {column.type}, not single numbers, texts, dates or times: "
            "leave it out by features=[...], or split it into columns"
        )
    return column


def numbers(name: str, column: Any) -> dict[str, Array]:
    """Return an Arrow column as float64, NaN where a cell is empty, by the names of the features.

    Text becomes one column of 0 and 1 for each of its values. Dates and times become days since the
    earliest of the column: seconds since 1970 would lose two minutes in 32 bits.
    """
    import pyarrow as pa

    column = decoded(name, column)
    if pa.types.is_temporal(column.type):
        return {name: _days(column)}
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return {name: column.to_numpy().astype(np.float64)}
    texts = np.array(["" if value is None else str(value) for value in column.to_pylist()])
    return {f"{name}={value}": (texts == value).astype(np.float64) for value in np.unique(texts)}


def _days(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_time(column.type):
        whole = pa.int32() if column.type.bit_width == _SHORT else pa.int64()
        # As the time since midnight; Python's time of day cannot be subtracted.
        column = column.cast(whole).cast(pa.int64()).cast(pa.duration(column.type.unit))
    moments = column.to_numpy()
    # fmin passes over empty cells, without a warning where all are.
    days: Array = (moments - np.fmin.reduce(moments)) / np.timedelta64(1, "D")
    return days
