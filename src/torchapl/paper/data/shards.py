"""Shards of event tables: Parquet files of float32 columns, whose names carry their checksum.

Any Parquet reader reads a folder of them as one table. The checksum is that of the values, column
after column, so that it depends on the events alone, not on the version of the library that wrote
the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchapl.paper.data.files import DataError
from torchapl.runs.atomic import WriteError, write_atomic

Table = npt.NDArray[np.float32]
# Rows of a shard: 2 MB for 26 columns, a minute of simulation, and small enough to shuffle by.
SHARD_ROWS = 20_000
_NAME = "{number:05d}-{digest}.parquet"
_PATTERN = re.compile(r"(\d{5,})-([0-9a-f]{16})\.parquet")
_DIGITS = 16


@dataclass(frozen=True)
class Plan:
    """What the shards of one store have in common.

    Attributes:
        columns: The features, then the label, then extra columns such as weights.
        label: Name of the column with 0 (background) and 1 (signal).
        source: Where the events come from, as plain JSON: seed and all settings.
        allow_missing: Whether features may be NaN. Infinities never may.
    """

    columns: tuple[str, ...]
    label: str = "label"
    source: Mapping[str, Any] = field(default_factory=dict)
    allow_missing: bool = False

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns must differ, got {', '.join(self.columns)}")
        if self.label not in self.columns:
            raise ValueError(f"no column {self.label!r} among {', '.join(self.columns)}")

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON reads it back: a tuple is a list there."""
        facts = {"columns": self.columns, "label": self.label, "source": dict(self.source)}
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain


def write_shard(folder: Path, plan: Plan, number: int, table: Table, first_row: int = 0) -> Path:
    """Write one shard in one step; on return it survives a crash.

    Args:
        folder: Exists.
        plan: Of the store.
        number: Place of the shard among those of the store.
        table: Its rows, ``(n, columns)``.
        first_row: Number of its first row, for messages.

    Raises:
        ValueError: A value is infinite, or NaN where that is not allowed; names column and row.
        DataError: The disk is full or fails. The shard counts as not written.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> plan = Plan(("mass", "label"))
        >>> path = write_shard(folder, plan, 0, np.array([[91, 0], [125, 1]], dtype=np.float32))
        >>> path.name, read_shard(path, plan.columns)[0].tolist()
        ('00000-c45d89cd3bf31dc1.parquet', [91.0, 125.0])
    """
    if table.ndim != 2 or table.shape[1] != len(plan.columns) or not len(table):
        raise ValueError(
            f"a shard must have shape (n, {len(plan.columns)}) with n > 0, got {table.shape}"
        )
    with np.errstate(over="ignore"):  # what overflows is reported as infinite, with its place
        columns = np.ascontiguousarray(table.T, dtype="<f4")
    _check_values(columns, plan, first_row)
    path = folder / _NAME.format(number=number, digest=_digest(list(columns)))
    try:
        write_atomic(path, _encode(columns, plan, number))
    except WriteError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; nothing incomplete is ever used. "
            "Make room or take another --root, and run the same command again"
        ) from error
    return path


def _check_values(columns: Table, plan: Plan, first_row: int) -> None:
    # The sum is finite unless a value is not (or it overflows, which the search then clears).
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(columns.sum(dtype=np.float64)):
            return
    finite = np.isfinite(columns)
    if plan.allow_missing:
        features = plan.columns.index(plan.label)
        finite[:features] |= np.isnan(columns[:features])
    if not finite.all():
        row, column = np.argwhere(~finite.T)[0]
        raise ValueError(
            f"column {plan.columns[column]!r} is {columns[column, row]} in row "
            f"{first_row + int(row)}; values must be finite"
            + (" or, for features, missing" if plan.allow_missing else "")
        )


def _encode(columns: Table, plan: Plan, number: int) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    facts = {"shard": number, **plan.to_json()}
    schema = pa.schema(
        [(name, pa.float32()) for name in plan.columns],
        metadata={"torchapl": json.dumps(facts)},
    )
    content = pa.BufferOutputStream()
    # Neither dictionary nor compression: noisy numbers gain a tenth in size and cost half the
    # reading speed.
    parquet.write_table(
        pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema),
        content,
        row_group_size=columns.shape[1],
        use_dictionary=False,
        compression="none",
    )
    return bytes(content.getvalue())


def read_shard(path: Path, columns: Sequence[str], *, check: bool = True) -> list[Table]:
    """Return the columns of a shard.

    Args:
        path: The file, under the name it was written with.
        columns: Which, in this order; all of them, to be checked.
        check: Whether to compare the values with the checksum in the name.

    Raises:
        DataError: The file is missing or damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        content = pa.py_buffer(path.read_bytes())
        with parquet.ParquetFile(pa.BufferReader(content), pre_buffer=False) as file:
            table = file.read(list(columns), use_threads=False)
            arrays = [_values(table.column(name)) for name in columns]
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
        raise DataError(f"{path} is damaged or missing ({error}): {_REMEDY}") from error
    if check and _digest(arrays) != shard_digest(path):
        raise DataError(f"{path} is damaged: its events do not match its checksum; {_REMEDY}")
    return arrays


_REMEDY = "remove it and run the command that made this set again, which makes it anew"


def _values(column: Any) -> Table:
    if column.null_count or str(column.type) != "float":
        raise ValueError(f"a column of {column.type} with {column.null_count} nulls, not float")
    values: Table = column.to_numpy()
    return values


def _digest(columns: Sequence[Table]) -> str:
    state = hashlib.sha256()
    for column in columns:
        state.update(np.ascontiguousarray(column, dtype="<f4").data)
    return state.hexdigest()[:_DIGITS]


def shard_digest(path: Path) -> str:
    """Return the checksum in the name of a shard."""
    match = _PATTERN.fullmatch(path.name)
    if match is None:
        raise DataError(f"{path} is not named like a shard, NUMBER-CHECKSUM.parquet")
    return match[2]


def rows_of(path: Path) -> int:
    """Return how many rows a shard has, from the end of its file."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return int(parquet.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({error}): {_REMEDY}") from error


def find_shards(folder: Path) -> dict[int, Path]:
    """Return the shards in a folder by their numbers.

    Of two with one number, the first by name: a machine of another kind may round differently, and
    both are right.
    """
    shards: dict[int, Path] = {}
    for path in sorted(folder.iterdir(), reverse=True):
        match = _PATTERN.fullmatch(path.name)
        if match is not None:
            shards[int(match[1])] = path
    return dict(sorted(shards.items()))
