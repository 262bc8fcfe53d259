"""Reads event tables that are text: CSV, packed or not, with or without names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from torchapl.paper.data.files import DataError
from torchapl.paper.data.layouts import Layout, choose_columns

# Bytes of text that are parsed at a time.
_TEXT_BLOCK = 1 << 23

Columns = Mapping[str, npt.NDArray[Any]]
# Columns of some rows, and the share of the file read.
Chunks = Iterator[tuple[Columns, float]]


def read_csv(path: Path, layout: Layout, skip: int) -> Chunks:
    """Yield the columns of a CSV file by blocks, without its first ``skip`` rows."""
    import pyarrow as pa
    from pyarrow import csv

    raw = pa.OSFile(str(path))
    size = max(raw.size(), 1)
    packed = path.name.lower().endswith(".gz")
    with pa.CompressedInputStream(raw, "gzip") if packed else raw as stream:
        header = _csv_header(path, packed)
        names = header or [layout.label, *layout.features]
        wanted = choose_columns(names, layout)
        text_label = bool(layout.label_values)
        types = {
            name: pa.string() if text_label and name == layout.label else pa.float32()
            for name in wanted
        }
        reader = csv.open_csv(
            stream,
            csv.ReadOptions(
                # Without threads memory stays at one block of text.
                use_threads=False,
                block_size=_TEXT_BLOCK,
                # Ours: those in the file may have blanks or a byte order mark around them.
                column_names=names,
                skip_rows=1 if header else 0,
            ),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=wanted),
        )
        for batch in reader:
            left = min(skip, batch.num_rows)
            skip -= left
            if left < batch.num_rows:
                yield arrow_columns(batch.slice(left)), raw.tell() / size


def _csv_header(path: Path, packed: bool) -> list[str] | None:
    """Return the names in the first line, or None if it holds numbers."""
    import gzip

    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        line = file.readline(1 << 16).decode("utf-8-sig", errors="replace").strip()
    if not line:
        raise DataError("is empty, or its first line is")
    fields = [field.strip().strip('"') for field in line.split(",")]
    if fields == [str(number) for number in range(len(fields))]:
        raise DataError("has the numbers of its columns, no events, in its first line: remove it")
    try:
        [float(field) for field in fields]
    except ValueError:
        return fields
    return None


def arrow_columns(batch: Any) -> Columns:
    """Return the columns of an Arrow batch as arrays."""
    return {
        name: column.to_numpy(zero_copy_only=False)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
