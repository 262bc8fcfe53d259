"""Column statistics of event tables that can be added up block by block; NaN counts as missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """Per column: how many values there are, their mean, squared deviations, minimum and maximum.

    A column without any value has count 0, mean 0, minimum ``inf`` and maximum ``-inf``.

    Example:
        >>> table = np.array([[1.0, -2.0], [3.0, np.nan]], dtype=np.float32)
        >>> statistics = Statistics.of(table)
        >>> statistics.mean.tolist(), statistics.count.tolist(), statistics.deviation.tolist()
        ([2.0, -2.0], [2.0, 1.0], [1.0, 0.0])
    """

    rows: int
    count: Vector
    mean: Vector
    squares: Vector
    minimum: Vector
    maximum: Vector

    @classmethod
    def empty(cls, columns: int) -> Statistics:
        """Return the statistics of no rows."""
        zeros = np.zeros(columns)
        return cls(0, zeros, zeros, zeros, zeros + np.inf, zeros - np.inf)

    @classmethod
    def of(cls, block: npt.NDArray[np.float32]) -> Statistics:
        """Measure one block of rows, 16k at a time: they stay in the cache as float64."""
        total = cls.empty(block.shape[1])
        for first in range(0, len(block), 16384):
            total = total.plus(cls._of_piece(block[first : first + 16384].astype(np.float64)))
        return total

    @classmethod
    def _of_piece(cls, block: npt.NDArray[np.float64]) -> Statistics:
        absent = np.isnan(block)
        if not absent.any():
            mean = block.mean(0)
            count = np.full(block.shape[1], float(len(block)))
            squares = np.square(block - mean).sum(0)
            return cls(len(block), count, mean, squares, block.min(0), block.max(0))
        count = len(block) - absent.sum(0).astype(np.float64)
        mean = np.where(absent, 0.0, block).sum(0) / np.maximum(count, 1)
        squares = np.where(absent, 0.0, np.square(block - mean)).sum(0)
        return cls(
            len(block),
            count,
            mean,
            squares,
            np.where(absent, np.inf, block).min(0),
            np.where(absent, -np.inf, block).max(0),
        )

    def plus(self, other: Statistics) -> Statistics:
        """Return the statistics of both sets of rows (Chan's formula: no cancellation)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        step = other.mean - self.mean
        return Statistics(
            self.rows + other.rows,
            count,
            self.mean + step * share,
            self.squares + other.squares + np.square(step) * self.count * share,
            np.minimum(self.minimum, other.minimum),
            np.maximum(self.maximum, other.maximum),
        )

    @property
    def deviation(self) -> Vector:
        """The standard deviation of each column."""
        return np.sqrt(self.squares / np.maximum(self.count, 1))

    def to_json(self) -> dict[str, object]:
        """Return plain numbers that :meth:`from_json` reads back exactly."""
        return {
            "rows": self.rows,
            "count": self.count.astype(int).tolist(),
            "mean": self.mean.tolist(),
            "squares": self.squares.tolist(),
            # JSON has no infinity, which stands for a column without values.
            "minimum": [low if np.isfinite(low) else None for low in self.minimum.tolist()],
            "maximum": [high if np.isfinite(high) else None for high in self.maximum.tolist()],
        }

    @classmethod
    def from_json(cls, record: dict[str, list[float | None] | int]) -> Statistics:
        """Read what :meth:`to_json` wrote."""
        rows = record["rows"]
        if not isinstance(rows, int):
            raise ValueError(f"rows must be a whole number, got {rows!r}")
        columns = {
            name: record[name] for name in ("count", "mean", "squares", "minimum", "maximum")
        }
        absent = {"minimum": np.inf, "maximum": -np.inf}
        vectors = {}
        for name, values in columns.items():
            if not isinstance(values, list):
                raise ValueError(f"{name} must be a list, got {values!r}")
            vectors[name] = np.array(
                [absent[name] if value is None else value for value in values], dtype=np.float64
            )
        return cls(rows, **vectors)


def total(parts: Iterable[Statistics], columns: int) -> Statistics:
    """Add up the statistics of many blocks."""
    result = Statistics.empty(columns)
    for block in parts:
        result = result.plus(block)
    return result
