from __future__ import annotations

import pytest
import torch

from torchapl import APL
from torchapl.curves.kinks import Kinks
from torchapl.modules import AffineAPL, Unit


def units(kind: str, *unit_shape: int) -> Unit:
    """Return a layer in which every unit is another curve, none of its hinges in order."""
    if kind == "plain":
        return APL(unit_shape, 4, init="authors", dtype=torch.float64)
    numbers = {"scale": -1.5, "shift": 0.25, "skip": 0.75, "center": 2.0}
    return AffineAPL(unit_shape, 4, init="authors", dtype=torch.float64, **numbers)


def outputs(unit: Unit, x: torch.Tensor) -> torch.Tensor:
    """Return the units at x of shape ``(*unit_shape, N)``, by their own forward."""
    return unit(x.movedim(-1, 0)).movedim(0, -1).detach()


@pytest.mark.parametrize("unit_shape", [(), (3,), (3, 2)], ids=str)
@pytest.mark.parametrize("kind", ["plain", "affine"])
def test_kinks_are_the_curves(kind: str, unit_shape: tuple[int, ...]) -> None:
    unit = units(kind, *unit_shape)
    kinks = Kinks.of(unit)
    assert kinks.position.shape == (*unit_shape, 5)
    assert (kinks.position.diff(dim=-1) > 0).all()
    # Between, at and outside the kinks.
    middles = (kinks.position[..., 1:] + kinks.position[..., :-1]) / 2
    ends = [kinks.position[..., :1] - 3, kinks.position[..., -1:] + 3]
    x = torch.cat([ends[0], kinks.position, middles, ends[1]], -1)
    torch.testing.assert_close(kinks.evaluate(x), outputs(unit, x))
    torch.testing.assert_close(kinks.at_knots(), outputs(unit, kinks.position))


@pytest.mark.parametrize("unit_shape", [(), (3,), (3, 2)], ids=str)
@pytest.mark.parametrize("kind", ["plain", "affine"])
def test_slopes_and_intercepts_are_those_of_the_curves(
    kind: str, unit_shape: tuple[int, ...]
) -> None:
    unit = units(kind, *unit_shape)
    kinks = Kinks.of(unit)
    position = kinks.position
    edges = torch.cat([position[..., :1] - 2, position, position[..., -1:] + 2], -1)
    heights = outputs(unit, edges)
    torch.testing.assert_close(kinks.slopes(), heights.diff(dim=-1) / edges.diff(dim=-1))
    left, right = kinks.slopes()[..., 0], kinks.slopes()[..., -1]
    torch.testing.assert_close(kinks.left_intercept(), heights[..., 0] - left * edges[..., 0])
    torch.testing.assert_close(kinks.right_intercept, heights[..., -1] - right * edges[..., -1])
    torch.testing.assert_close(kinks.right_slope, right)


def test_a_segment_of_no_length_repeats_the_slope_left_of_it() -> None:
    unit = APL(1, 3)
    with torch.no_grad():
        unit.slope.copy_(torch.tensor([[-0.5], [0.25], [2.0]]))
        unit.offset.copy_(torch.tensor([[-1.0], [-1.0], [3.0]]))
    # Kinks at -1, -1, 0, 3: left of them 1 - 2 - 1 - 0.25 + 0.5.
    assert Kinks.of(unit).slopes().tolist() == [[-1.75, -1.75, -2.0, -1.0, 1.0]]
