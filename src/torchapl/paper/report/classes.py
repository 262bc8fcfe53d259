"""Classes of learned curves, by their slopes where the layer's inputs fall.

Each curve belongs to exactly one class, the first in this order whose condition holds. Slopes are
those of the straight pieces within the window; pieces shorter than 1 % of it do not count.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchapl.functional import apl
from torchapl.runs.curves import PLAIN, Affine

# Slopes that differ by no more than this count as equal.
TOLERANCE = 0.05
# An absolute value's left side falls at least this fast, relative to the rise.
_STEEPEST = 0.25
_SHORTEST = 0.01

CLASSES: dict[str, str] = {
    "dead": f"flat: no slope beyond ±{TOLERANCE}, so nothing passes through",
    "ReLU-like": f"every slope within {TOLERANCE} of ReLU's: 0 on the left of 0, 1 on the right",
    "leaky": f"rises throughout: no slope below -{TOLERANCE}, but not ReLU's",
    "absolute-value-like": "one valley: falls, then rises, the fall at least a quarter as steep",
    "non-monotone": f"slopes of both signs beyond {TOLERANCE}, in any other order",
    "falling": f"the rest: no slope above {TOLERANCE}",
}


def curve_classes(
    slope: Tensor, offset: Tensor, window: tuple[float, float], affine: Affine = PLAIN
) -> Tensor:
    """Return the class of every curve, as an index into :data:`CLASSES`.

    Args:
        slope: Of shape ``(S, units)``.
        offset: Of shape ``(S, units)``.
        window: Where the curves are looked at, usually the central 98 % of the layer's inputs.
        affine: What is around the hinges.

    Returns:
        Indices of shape ``(units,)``.

    Example:
        >>> slope = torch.tensor([[0.0, -0.25, 1.0, 0.1]])
        >>> names = list(CLASSES)
        >>> classes = curve_classes(slope, torch.zeros(1, 4), (-2.0, 2.0))
        >>> [names[index] for index in classes]
        ['ReLU-like', 'leaky', 'absolute-value-like', 'non-monotone']
    """
    low, high = window
    if not low < high:
        raise ValueError(f"window must be (low, high) with low < high, got {window}")
    a, b = slope.double(), offset.double()
    units = a.shape[1]
    knots = torch.cat([b, b.new_full((1, units), affine.center)])
    knots = knots.clamp(low, high).sort(0).values
    ends = b.new_tensor([[low], [high]]).expand(2, units)
    places = torch.cat([ends[:1], knots, ends[1:]])
    values = apl(places, a, b) + (affine.line(places) - places.relu())
    width = places.diff(dim=0)
    counted = width > _SHORTEST * (high - low)
    slopes = values.diff(dim=0) / width.clamp(min=1e-300)
    relu = ((places[1:] + places[:-1]) > 0).double()

    def everywhere(condition: Tensor) -> Tensor:
        return (condition | ~counted).all(0)

    falls, rises = (slopes < -TOLERANCE) & counted, (slopes > TOLERANCE) & counted
    # After the first rising piece a valley never falls again.
    valley = ~(falls & (rises.cumsum(0) > 0)).any(0) & falls.any(0) & rises.any(0)
    conditions = torch.stack(
        [
            everywhere(slopes.abs() <= TOLERANCE),
            everywhere((slopes - relu).abs() <= TOLERANCE),
            everywhere(slopes >= -TOLERANCE),
            valley & _steep(places, values),
            falls.any(0) & rises.any(0),
            torch.ones(units, dtype=torch.bool),
        ]
    )
    return conditions.double().argmax(0)


def _steep(places: Tensor, values: Tensor) -> Tensor:
    lowest = values.argmin(0, keepdim=True)
    at, bottom = (table.gather(0, lowest)[0] for table in (places, values))
    fall = (values[0] - bottom) / (at - places[0]).clamp(min=1e-300)
    rise = (values[-1] - bottom) / (places[-1] - at).clamp(min=1e-300)
    return fall >= _STEEPEST * rise
