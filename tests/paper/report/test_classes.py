from __future__ import annotations

import pytest
import torch

from torchapl.paper.report.classes import CLASSES, curve_classes

NAMES = list(CLASSES)
WIDE = (-3.0, 3.0)


def class_of(*hinges: tuple[float, float], window: tuple[float, float] = WIDE) -> str:
    slope = torch.tensor([[a] for a, _ in hinges])
    offset = torch.tensor([[b] for _, b in hinges])
    return NAMES[int(curve_classes(slope, offset, window))]


@pytest.mark.parametrize(
    ("hinges", "expected"),
    [
        ([(0.0, 0.0)], "ReLU-like"),
        ([(0.04, -1.0)], "ReLU-like"),
        ([(-0.06, 0.0)], "leaky"),
        ([(-1.0, 0.0)], "leaky"),
        ([(1.0, 0.0)], "absolute-value-like"),
        ([(0.3, 0.0)], "absolute-value-like"),
        ([(0.2, 0.0)], "non-monotone"),
        # Falls, rises, falls, rises.
        ([(2.0, -2.0), (-2.0, -1.0), (1.0, 0.0)], "non-monotone"),
        # A hinge outside the window only tilts the curve within it.
        ([(1.0, 10.0)], "dead"),
        ([(1.5, 10.0)], "falling"),
    ],
)
def test_curves_get_the_class_of_their_shape(
    hinges: list[tuple[float, float]], expected: str
) -> None:
    window = (0.5, 3.0) if expected in ("dead", "falling") else WIDE
    assert class_of(*hinges, window=window) == expected


def test_only_the_window_counts() -> None:
    assert class_of((1.0, -2.0)) == "absolute-value-like"
    assert class_of((1.0, -2.0), window=(-1.0, 1.0)) == "ReLU-like"
    assert class_of((0.0, 0.0), window=(-3.0, -1.0)) == "dead"


def test_a_piece_shorter_than_a_hundredth_of_the_window_does_not_count() -> None:
    # Falls steeply, but only over 0.05 of 6.
    short = [(1.0, -1.0), (-1.0, -1.05)]
    assert class_of(*short) == "ReLU-like"
    assert class_of((1.0, -1.0), (-1.0, -1.5)) != "ReLU-like"


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window must be"):
        curve_classes(torch.zeros(1, 1), torch.zeros(1, 1), (1.0, 1.0))
