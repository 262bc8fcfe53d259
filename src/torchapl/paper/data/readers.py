"""One reader for event tables: CSV, CSV.gz, Parquet, HDF5 and NPY become blocks of float32 rows."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchapl.paper.data.files import DataError
from torchapl.paper.data.layouts import Layout, choose_columns
from torchapl.paper.data.shards import SHARD_ROWS, Table
from torchapl.paper.data.text import Chunks, Columns, arrow_columns, read_csv


def read_table(path: Path, layout: Layout) -> Table:
    """Read a whole small table into memory."""
    blocks = [block for block, _ in read_blocks(path, layout)]
    if not blocks:
        raise DataError(f"{path} has no rows")
    return np.concatenate(blocks)


def read_blocks(path: Path, layout: Layout, skip: int = 0) -> Iterator[tuple[Table, float]]:
    """Yield blocks of ``SHARD_ROWS`` rows (the last is smaller), and the share of the file read.

    Args:
        path: The file; its suffix tells the format (.csv, .csv.gz, .parquet, .h5, .hdf5, .npy).
        layout: Which columns to take, and what their values mean.
        skip: Leave out so many rows at the start.

    Raises:
        DataError: The file is damaged or does not fit the layout; names the file.
    """
    reader = _reader_of(path)
    buffer: list[Table] = []
    held, share = 0, 0.0
    for table, share in _guarded(path, reader, layout, skip):
        buffer.append(table)
        held += len(table)
        while held >= SHARD_ROWS:
            joined = np.concatenate(buffer)
            yield joined[:SHARD_ROWS], share
            buffer, held = [joined[SHARD_ROWS:]], held - SHARD_ROWS
    if held:
        yield np.concatenate(buffer), share


def _guarded(
    path: Path, reader: Callable[[Path, Layout, int], Chunks], layout: Layout, skip: int
) -> Iterator[tuple[Table, float]]:
    row = skip
    with _explaining(path):
        for columns, share in reader(path, layout, skip):
            table = _to_table(columns, layout, row)
            row += len(table)
            yield table, share


def stored_columns(path: Path, layout: Layout) -> tuple[str, ...]:
    """Return the columns of the store that a file becomes: all but the extras that it lacks."""
    extras: tuple[str, ...] = ()
    if layout.extras:
        with _explaining(path):
            first = next(_reader_of(path)(path, layout, 0), ({}, 0.0))[0]
            extras = tuple(name for name in layout.extras if name in first)
    return (*layout.features, layout.label, *extras)


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (pa.ArrowException, zlib.error, OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} is damaged or not what its name says: {error}") from error


def _reader_of(path: Path) -> Callable[[Path, Layout, int], Chunks]:
    name = path.name.lower()
    for suffixes, reader in _READERS.items():
        if name.endswith(suffixes):
            return reader
    raise DataError(
        f"{path}: unknown kind of table; the name must end in one of {', '.join(SUFFIXES)}"
    )


def _to_table(columns: Columns, layout: Layout, first_row: int) -> Table:
    """Put columns side by side as float32; text labels become numbers, missing values NaN."""
    names = list(columns)
    position = len(layout.features)
    label = columns[names[position]]
    if layout.label_values and label.dtype.kind in "OSU":
        label = _numbers(label, layout, first_row)
    table = np.empty((len(label), len(names)), dtype=np.float32)
    with np.errstate(over="ignore"):  # the writer names the place of what overflows
        for number, name in enumerate(names):
            table[:, number] = label if number == position else columns[name]
    if layout.missing is not None:
        features = table[:, :position]
        features[features == layout.missing] = np.nan
    wrong = np.flatnonzero((table[:, position] != 0) & (table[:, position] != 1))
    if len(wrong):
        raise DataError(
            f"label {names[position]!r} is {label[wrong[0]]} in row {first_row + int(wrong[0])}, "
            "expected 0 or 1"
        )
    return table


def _numbers(label: npt.NDArray[Any], layout: Layout, first_row: int) -> npt.NDArray[np.float32]:
    # HDF5 has text as bytes.
    text = np.array([v.decode() if isinstance(v, bytes) else str(v) for v in label.tolist()])
    numbers = np.full(len(text), np.nan, dtype=np.float32)
    for value, number in layout.label_values.items():
        numbers[text == value] = number
    unknown = np.flatnonzero(np.isnan(numbers))
    if len(unknown):
        raise DataError(
            f"label {str(text[unknown[0]])!r} in row {first_row + int(unknown[0])} is none of "
            f"{', '.join(layout.label_values)}"
        )
    return numbers


def _read_parquet(path: Path, layout: Layout, skip: int) -> Chunks:
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False) as file:
        wanted = choose_columns(file.schema_arrow.names, layout)
        total, row = max(file.metadata.num_rows, 1), 0
        groups: list[int] = []
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            # Whole row groups before the first wanted row are never read.
            if skip >= rows and not groups:
                skip, row = skip - rows, row + rows
            else:
                groups.append(group)
        for batch in file.iter_batches(SHARD_ROWS, row_groups=groups, columns=wanted):
            row += batch.num_rows
            left = min(skip, batch.num_rows)
            skip -= left
            if left < batch.num_rows:
                yield arrow_columns(batch.select(wanted).slice(left)), row / total


def _read_npy(path: Path, layout: Layout, skip: int) -> Chunks:
    table: Any
    try:
        table = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError):
        raise
    except Exception as error:  # the header is Python text, and fails in all ways that such can
        raise DataError(f"has a damaged header: {error}") from error
    if table.dtype.names:
        columns: dict[str, Any] = {
            name: table[name] for name in choose_columns(table.dtype.names, layout)
        }
    else:
        columns = _numbered(table, layout)
    for chunk, share in _slices(columns, skip):
        yield chunk, share
        # The pages that were read are not needed again: give them back, memory stays constant.
        table._mmap.madvise(mmap.MADV_DONTNEED)


def _read_hdf5(path: Path, layout: Layout, skip: int) -> Chunks:
    import h5py

    with h5py.File(path, "r") as file:
        datasets: dict[str, Any] = {}

        def visit(path: str, item: object) -> None:
            name = path.rsplit("/", 1)[-1]
            if isinstance(item, h5py.Dataset):
                if name in datasets:
                    raise DataError(f"has {name!r} twice: {datasets[name].name} and /{path}")
                datasets[name] = item

        file.visititems(visit)
        flat = {name: item for name, item in datasets.items() if item.ndim == 1}
        tables = [item for item in datasets.values() if item.ndim == 2]
        if len(tables) == 1 and len(flat) == 1 and tables[0].shape[1] == len(layout.features):
            yield from _slices(_numbered(tables[0], layout, *flat.values()), skip)
        elif len(tables) == 1 and not flat:
            yield from _slices(_numbered(tables[0], layout), skip)
        elif not tables:
            yield from _slices({name: flat[name] for name in choose_columns([*flat], layout)}, skip)
        else:
            raise DataError(
                "has neither one table, nor a table and a column of labels, nor one column per name"
            )


class _Column:
    """One column of a table that is only read when sliced."""

    def __init__(self, table: Any, number: int) -> None:
        self.table, self.number = table, number

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        column: npt.NDArray[Any] = self.table[rows, self.number]
        return column


def _numbered(table: Any, layout: Layout, label: Any = None) -> dict[str, Any]:
    """Name the columns of a plain table: the label (unless it comes apart), the features."""
    first = 0 if label is not None else 1
    expected = len(layout.features) + first
    if table.ndim != 2 or table.shape[1] != expected or table.dtype.kind not in "fiub":
        raise DataError(
            f"is a table of shape {table.shape} and type {table.dtype}, expected numbers in "
            f"{expected} columns: the label, then the features"
        )
    if layout.extras:
        raise DataError("has no column names, which this set needs for its weights")
    columns = {
        name: _Column(table, number) for number, name in enumerate(layout.features, start=first)
    }
    return {**columns, layout.label: _Column(table, 0) if label is None else label}


def _slices(columns: Mapping[str, Any], skip: int) -> Chunks:
    rows = {len(column) for column in columns.values()}
    if len(rows) != 1:
        raise DataError(f"columns differ in length: {sorted(rows)}")
    number = rows.pop()
    for first in range(skip, number, SHARD_ROWS):
        last = min(first + SHARD_ROWS, number)
        yield {name: column[first:last] for name, column in columns.items()}, last / number


_READERS: Mapping[tuple[str, ...], Callable[[Path, Layout, int], Chunks]] = {
    (".csv", ".csv.gz"): read_csv,
    (".parquet", ".pq"): _read_parquet,
    (".h5", ".hdf5"): _read_hdf5,
    (".npy",): _read_npy,
}
SUFFIXES = tuple(suffix for suffixes in _READERS for suffix in suffixes)
