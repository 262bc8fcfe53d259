"""A table in a CSV or Parquet file; what no run could use is refused by file, column and line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from torchapl.paper.data.content import EventData, ImageData
from torchapl.paper.data.files import DataError
from torchapl.paper.data.own.columns import decoded, numbers
from torchapl.paper.data.own.memory import Array, Load, arrays, missing


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
        label: Column with the class, numbers or text; every row needs one.
        features: Columns to learn from; None takes all others. Text becomes one column for each of
            its values, a date or time the days since the earliest of its column; an empty cell is
            a missing value.
        test_share: The part of the rows that is drawn for testing.
    """

    def load(root: Path) -> ImageData | EventData:
        file = _found(Path(path), root)
        with _naming(file):
            content = _read(file)
            wanted = _chosen(content.column_names, label, features)
            labels = _labels(file, label, content.column(label))
            parts = _features(file, {name: content.column(name) for name in wanted})
            inputs = np.stack(list(parts.values()), axis=1)
            return arrays(inputs, labels, test_share=test_share, features=list(parts))(root)

    return load


def _found(path: Path, root: Path) -> Path:
    file = next((candidate for candidate in (path, root / path) if candidate.is_file()), None)
    if file is None:
        raise DataError(f"there is no file {path}, here or in {root}")
    return file


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    except ValueError as error:
        raise DataError(f"{file}: {error}") from error


def _is_parquet(file: Path) -> bool:
    return file.suffix == ".parquet"


def _read(file: Path) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    if _is_parquet(file):
        # Not by read_table, which does not open a file with two columns of one name.
        with pyarrow.parquet.ParquetFile(file) as opened:
            content = opened.read()
    else:
        content = pyarrow.csv.read_csv(file)
    if not content.num_rows:
        raise DataError("has no rows, only a header: add some")
    return content


def _chosen(there: list[str], label: str, features: Sequence[str] | None) -> list[str]:
    """Return the columns to learn from; they and the label must be there, once."""
    wanted = list(dict.fromkeys(features or [name for name in there if name != label]))
    for name in (label, *wanted):
        if name not in there:
            raise DataError(f"has no column {name!r}; it has {', '.join(there)}")
        if there.count(name) > 1:
            others = "" if name == label else ", or leave it out by features=[...]"
            raise DataError(
                f"has column {name!r} {there.count(name)} times: rename all but one{others}"
            )
    if not wanted:
        raise DataError(f"has no column beside the label {label!r}: add columns to learn from")
    return wanted


def _labels(file: Path, name: str, column: Any) -> Array:
    labels: Array = decoded(name, column).to_numpy()
    absent = missing(labels)
    if len(absent):
        # Dropped, they would change which rows are for testing, and only a worker would say so.
        raise DataError(
            f"{len(absent)} of {len(labels)} rows have no label in column {name!r}, the first in "
            f"{_place(file, int(absent[0]))}: fill these cells, or remove the rows"
        )
    return labels


def _features(file: Path, columns: dict[str, Any]) -> dict[str, Array]:
    features: dict[str, Array] = {}
    for name, column in columns.items():
        for feature, values in numbers(name, column).items():
            if feature in features:
                raise DataError(f"two features would be called {feature!r}: rename a column")
            _check_finite(file, feature, values)
            features[feature] = values
    return features


def _check_finite(file: Path, name: str, values: Array) -> None:
    wrong = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
    if len(wrong):
        raise DataError(
            f"column {name!r} has {values[wrong[0]]} in {_place(file, int(wrong[0]))}, which is no "
            "finite 32-bit number: correct the cell, or leave it empty"
        )


def _place(file: Path, row: int) -> str:
    """Return where a row is; of a CSV file the line that an editor shows."""
    if _is_parquet(file):
        return f"row {row + 1}"
    # The header is a line, too.
    return f"line {next(islice(_first_lines(file), row + 1, None), row + 2)}"


def _first_lines(file: Path) -> Iterator[int]:
    """Yield at which line each row begins: some lines are empty, some cells have several."""
    import pyarrow as pa

    # Unpacks what is packed.
    with pa.input_stream(file) as stream:
        reader = csv.reader(io.TextIOWrapper(stream, errors="replace", newline=""))
        last = 0
        for cells in reader:
            if cells:
                yield last + 1
            last = reader.line_num
