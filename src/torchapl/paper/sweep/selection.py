"""Which cells of which tables a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from torchapl.paper.catalogue import unknown
from torchapl.paper.experiments import TABLES, Table


def selected_tables(names: Sequence[str], only: Sequence[str] = ()) -> list[Table]:
    """Return the tables of these names with the cells whose experiments match a pattern.

    Args:
        names: Of tables; ``"all"`` stands for every one.
        only: Patterns such as ``"cifar10-cnn-*"``; none for all cells.

    Example:
        >>> [row.title for row in selected_tables(["table1"], ["cifar10-cnn-relu"])[0].rows]
        ['CNN + ReLU']
    """
    for name in names:
        if name not in (*TABLES, "all"):
            raise ValueError(unknown("table", name, [*TABLES, "all"]))
    tables = list(TABLES.values()) if "all" in names else [TABLES[name] for name in names]
    if not only:
        return tables
    chosen = [_only(table, only) for table in tables]
    if not any(table.rows for table in chosen):
        known = ", ".join(sorted({name for table in tables for name in table.experiments})[:5])
        raise ValueError(
            f"--only {' '.join(only)} matches no experiment of these tables, such as {known}"
        )
    return [table for table in chosen if table.rows]


def _only(table: Table, patterns: Sequence[str]) -> Table:
    rows = []
    for row in table.rows:
        cells = {
            column: cell
            for column, cell in row.cells.items()
            if any(fnmatchcase(cell.experiment, pattern) for pattern in patterns)
        }
        if cells:
            rows.append(replace(row, cells=cells))
    return replace(table, rows=tuple(rows))
