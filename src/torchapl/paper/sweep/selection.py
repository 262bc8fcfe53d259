"""Which cells of which tables a command is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from torchapl.paper.catalogue import unknown
from torchapl.paper.experiments import TABLES, Table, get, scaled
from torchapl.paper.experiments.scales import has_recipe


def selected_tables(
    names: Sequence[str], only: Sequence[str] = (), *, scale: str = "paper"
) -> list[Table]:
    """Return the tables of these names, with the cells that a command is about.

    Args:
        names: Of tables; ``"all"`` stands for every one.
        only: Patterns such as ``"cifar10-cnn-*"`` that a cell's experiment matches; none for all.
        scale: Cells whose networks it has no recipe for are left out.

    Raises:
        ValueError: If there is no such table, or nothing is left of them.

    Example:
        >>> [row.title for row in selected_tables(["table1"], ["cifar10-cnn-relu"])[0].rows]
        ['CNN + ReLU']
    """
    for name in names:
        if name not in (*TABLES, "all"):
            raise ValueError(unknown("table", name, [*TABLES, "all"]))
    tables = list(TABLES.values()) if "all" in names else [TABLES[name] for name in names]
    matching = _with(tables, lambda name: not only or _matches(name, only))
    if not matching:
        known = ", ".join(sorted({name for table in tables for name in table.experiments})[:5])
        raise ValueError(
            f"--only {' '.join(only)} matches no experiment of these tables, such as {known}"
        )
    chosen = _with(matching, lambda name: has_recipe(get(name), scale))
    if not chosen:
        # The first one's reason.
        scaled(get(matching[0].experiments[0]), scale)
    return chosen


def _matches(experiment: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(experiment, pattern) for pattern in patterns)


def _with(tables: Sequence[Table], wanted: Callable[[str], bool]) -> list[Table]:
    """Return what is left of tables when only cells of wanted experiments stay."""
    left = []
    for table in tables:
        rows = []
        for row in table.rows:
            cells = {column: cell for column, cell in row.cells.items() if wanted(cell.experiment)}
            if cells:
                rows.append(replace(row, cells=cells))
        if rows:
            left.append(replace(table, rows=tuple(rows)))
    return left
