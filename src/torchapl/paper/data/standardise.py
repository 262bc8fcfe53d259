"""Puts event features on a common scale, by numbers fitted on training rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchapl.paper.data.files import DataError
from torchapl.paper.data.statistics import Statistics

EVENT_PREPROCESSING = ("physics", "standard")


@dataclass(frozen=True)
class Standardiser:
    """Maps features to ``(x - shift) * scale``; a missing one (NaN) counts as the training mean.

    Attributes:
        missing: What stands for a missing value afterwards, or None if the training rows miss none
            and NaN is no value of this table.
    """

    shift: Tensor
    scale: Tensor
    missing: Tensor | None

    def apply(self, features: Tensor, out: Tensor) -> Tensor:
        """Write the standardised features ``(n, F)`` to ``out``, both float32."""
        torch.sub(features, self.shift, out=out).mul_(self.scale)
        if self.missing is not None:
            torch.where(out.isnan(), self.missing, out, out=out)
        return out


def check_event_preprocessing(name: str) -> None:
    """Refuse a name that is none of the known ones."""
    if name not in EVENT_PREPROCESSING:
        raise ValueError(
            f"preprocessing of events must be one of {', '.join(EVENT_PREPROCESSING)}; got {name!r}"
        )


def fit(
    statistics: Statistics, features: Sequence[str], preprocessing: str, *, missing: bool = False
) -> Standardiser:
    """Fit a standardiser to the statistics of the training rows.

    ``"standard"`` gives every feature mean 0 and deviation 1. ``"physics"`` is the rule of Baldi,
    Sadowski and Whiteson: a feature with negative values is standardised so; one without, whose
    maximum exceeds 1, is divided by its mean; one within 0 and 1 is left alone. A constant feature
    is only shifted.

    Args:
        statistics: Of the training rows; columns beyond the features are ignored.
        features: Their names, for messages.
        preprocessing: One of the two.
        missing: Whether the table has missing values.

    Example:
        >>> rows = np.array([[-1, 20, 0.5], [1, 40, 0.1]], dtype=np.float32)
        >>> fitted = fit(Statistics.of(rows), ["eta", "pt", "ratio"], "physics")
        >>> fitted.apply(torch.from_numpy(rows), torch.empty(2, 3))
        tensor([[-1.0000,  0.6667,  0.5000],
                [ 1.0000,  1.3333,  0.1000]])
    """
    check_event_preprocessing(preprocessing)
    number = len(features)
    empty = [name for name, count in zip(features, statistics.count, strict=False) if not count]
    if empty:
        raise DataError(f"no training row has a value for {', '.join(empty)}: drop the column")
    mean, deviation = statistics.mean[:number], statistics.deviation[:number]
    scores = np.ones(number, dtype=bool)
    ratios = np.zeros(number, dtype=bool)
    if preprocessing == "physics":
        scores = statistics.minimum[:number] < 0
        ratios = ~scores & (statistics.maximum[:number] > 1)
    shift = np.where(scores, mean, 0.0)
    # Rounding leaves a deviation of some 1e-8 |mean| for a constant column; that is no scale.
    varies = deviation > 1e-6 * np.abs(mean)
    divisor = np.where(scores & varies, deviation, np.where(ratios, mean, 1.0))
    return Standardiser(
        torch.from_numpy(shift).float(),
        torch.from_numpy(1 / divisor).float(),
        torch.from_numpy((mean - shift) / divisor).float() if missing else None,
    )
