"""How the known event tables are laid out: columns, labels, missing values, test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchapl.paper.data.files import DataError


@dataclass(frozen=True)
class Layout:
    """The columns of an event table, and its split.

    Attributes:
        features: Columns the network sees, in order.
        label: Column with the class.
        extras: Kept in the store, if the file has them, but not shown to the network; weights.
        ignored: Columns of the file that are dropped.
        label_values: Text of the label column and what it means; empty if the column holds 0 and 1.
        missing: Value that stands for "does not exist" among the features.
        names_fixed: Whether a file that names its columns must use these names. If not, any names
            will do, as long as there is a label and the number of features is right. Where a file
            has no names (CSV without header, plain NPY), its columns are the label, then the
            features.
        rows: Rows of the complete set.
        test_rows: Rows at the end of the complete set that are its test set.
        test_divisor: Of any other number of rows, the last ``rows // test_divisor`` are the test
            set.
    """

    features: tuple[str, ...]
    label: str = "label"
    extras: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    label_values: Mapping[str, float] = field(default_factory=dict)
    missing: float | None = None
    names_fixed: bool = True
    rows: int = 0
    test_rows: int = 0
    test_divisor: int = 5

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a store: features, label, extras."""
        return (*self.features, self.label, *self.extras)

    def split(self, rows: int) -> tuple[int, int]:
        """Return how many rows at the start are for training and how many at the end for testing.

        Example:
            >>> layout = Layout(("mass",), rows=11_000_000, test_rows=500_000)
            >>> layout.split(11_000_000), layout.split(100)
            ((10500000, 500000), (80, 20))
        """
        test = self.test_rows if rows == self.rows else rows // self.test_divisor
        return rows - test, test


def choose_columns(names: Sequence[str], layout: Layout) -> list[str]:
    """Return the file's columns that become features, label and extras, in this order.

    Extras may be absent: the challenge's own training.csv has no KaggleWeight.
    """
    needed = (*layout.features, layout.label)
    if all(name in names for name in needed):
        return [*needed, *(name for name in layout.extras if name in names)]
    rest = [name for name in names if name not in (layout.label, *layout.extras, *layout.ignored)]
    if not layout.names_fixed and layout.label in names and len(rest) == len(layout.features):
        return [*rest, layout.label]
    absent = [name for name in needed if name not in names]
    raise DataError(
        f"has {len(names)} columns and lacks {', '.join(absent[:5])}"
        f"{', ...' if len(absent) > 5 else ''} of the {len(needed)} that are needed"
    )
