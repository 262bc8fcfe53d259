"""Starting curves by name, and the placing of hinges where data falls.

Each start fills ``slope`` and ``offset``, of shape ``(S, *unit_shape)``, in place;
``APL(init="relu")`` takes its name without the underscore. No start leaves two hinges of a unit
identical: they would receive the same gradient and stay identical for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from torchapl.form import Hinges, has_equal_hinges, whole, with_spare_hinges, write_
from torchapl.modules import AffineAPL, Start, Unit, inner_unit
from torchapl.theorem import AffineForm, hinges_from_piecewise_linear
from torchapl.watch import Inputs, by_unit, named_units, watch

__all__ = [
    "align_",
    "authors_",
    "gelu_",
    "leaky_",
    "leaky_silu_",
    "mish_",
    "piecewise_linear_",
    "relu_",
    "silu_",
    "squared_relu_",
]

# In bfloat16, 4096 units with 32 hinges take 9 draws, with 64 hinges 49, with 100 hinges 678.
_MOST_DRAWS = 1000
# Where a function is so near to 0 and x that a line serves.
_TAILS = {"silu": (-5.0, 5.0), "gelu": (-2.4, 2.4), "mish": (-5.0, 2.4)}


@torch.no_grad()
def authors_(
    slope: Tensor,
    offset: Tensor,
    *,
    slope_bound: float | None = None,
    offset_std: float = 0.5,
    generator: torch.Generator | None = None,
) -> None:
    """Start at random as the paper's authors did: slopes U(-r, r), offsets N(0, 0.5).

    Args:
        slope: Filled with the :math:`a_s`.
        offset: Filled with the :math:`b_s`.
        slope_bound: The r above; by default ``min(0.5, 1/S)``, which gives the 0.5 of the authors'
            files for one and two hinges and their 0.2 for five.
        offset_std: Standard deviation of the offsets.
        generator: Source of randomness; torch's global one by default.

    Example:
        >>> slope, offset = torch.empty(5, 96), torch.empty(5, 96)
        >>> authors_(slope, offset)
        >>> bool(slope.abs().max() <= 0.2)
        True
    """
    hinges = slope.shape[0]
    if not offset_std > 0 and hinges > 1:
        raise ValueError(
            f"offset_std must be positive to tell {hinges} hinges apart, got {offset_std}"
        )
    bound = min(0.5, 1 / hinges) if slope_bound is None else slope_bound
    slope.uniform_(-bound, bound, generator=generator)
    offset.normal_(0.0, offset_std, generator=generator)
    # In bfloat16 two of several normal numbers are often equal; draw those units again.
    for _ in range(_MOST_DRAWS):
        if offset.is_meta or not (twins := has_equal_hinges(offset)).any():
            return
        fresh = torch.empty_like(offset).normal_(0.0, offset_std, generator=generator)
        offset.copy_(torch.where(twins, fresh, offset))
    raise ValueError(
        f"{hinges} hinges are too many for distinct random offsets in {offset.dtype}: take fewer, "
        "or start in float32 and convert"
    )


def relu_(slope: Tensor, offset: Tensor) -> None:
    """Start as exactly ReLU: slopes 0, offsets distinct around 0.

    Example:
        >>> slope, offset = torch.empty(2, 3), torch.empty(2, 3)
        >>> relu_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[0., 0., 2.]])
    """
    _fill_(slope, offset, [], [])


def leaky_(slope: Tensor, offset: Tensor, *, negative_slope: float = 0.25) -> None:
    """Start as exactly Leaky ReLU, by one hinge at 0; the others are free (slope 0) and distinct.

    Example:
        >>> slope, offset = torch.empty(2, 3), torch.empty(2, 3)
        >>> leaky_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[-0.2500,  0.0000,  2.0000]])
    """
    _fill_(slope, offset, [-negative_slope], [0.0])


def leaky_silu_(slope: Tensor, offset: Tensor, *, negative_slope: float = 0.2) -> None:
    """Start near a SiLU that falls on the left, k x + (1 - k) SiLU(x); 8 hinges differ by 0.03.

    As smooth as SiLU, and as good as Leaky ReLU at passing signals on through many layers.

    Example:
        >>> slope, offset = torch.empty(8, 3), torch.empty(8, 3)
        >>> leaky_silu_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[-0.4050, -0.0091,  1.8180]])
    """
    _fill_(slope, offset, *_near("silu", len(slope), negative_slope))


def silu_(slope: Tensor, offset: Tensor) -> None:
    """Start near SiLU, x sigmoid(x); with 6 hinges or more they differ by 0.04 at most.

    Example:
        >>> slope, offset = torch.empty(8, 3), torch.empty(8, 3)
        >>> silu_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[-0.2563, -0.0114,  1.7725]])
    """
    _fill_(slope, offset, *_near("silu", len(slope)))


def gelu_(slope: Tensor, offset: Tensor) -> None:
    """Start near GELU; with 6 hinges or more they differ by 0.03 at most.

    Example:
        >>> slope, offset = torch.empty(8, 3), torch.empty(8, 3)
        >>> gelu_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[-0.1587, -0.0075,  1.9540]])
    """
    _fill_(slope, offset, *_near("gelu", len(slope)))


def mish_(slope: Tensor, offset: Tensor) -> None:
    """Start near Mish; with 7 hinges or more they differ by 0.04 at most.

    Example:
        >>> slope, offset = torch.empty(8, 3), torch.empty(8, 3)
        >>> mish_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[-0.2846, -0.0099,  1.9572]])
    """
    _fill_(slope, offset, *_near("mish", len(slope)))


def squared_relu_(slope: Tensor, offset: Tensor) -> None:
    """Start near ReLU squared, scaled so that it can go on as x: x^2 / 1.4 from 0 to 1.4.

    Example:
        >>> slope, offset = torch.empty(8, 3), torch.empty(8, 3)
        >>> squared_relu_(slope, offset)
        >>> apl(torch.tensor([[0.7, 1.0, 2.0]]), slope, offset)
        tensor([[0.3571, 0.7143, 2.0000]])
    """
    # In the small GPT 1.4 was better than 2, and 2 better than 4 (docs/text.md).
    end = 1.4
    knots = torch.linspace(0.0, end, len(slope), dtype=torch.float64, device="cpu")
    chords = (knots[:-1] + knots[1:]) / end
    piecewise_linear_(slope, offset, knots, [0.0, *chords.tolist(), 1.0])


@cache
def _near(name: str, hinges: int, leak: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return slopes and offsets of leak x + (1 - leak) f(x).

    Not quite the best fit of ``curves.fit``, but in a millisecond.
    """
    x = torch.linspace(-6.0, 6.0, 2401, dtype=torch.float64, device="cpu")
    y: Tensor = leak * x + (1 - leak) * getattr(torch.nn.functional, name)(x)
    (slope,) = torch.gradient(y, spacing=(x,))
    (curvature,) = torch.gradient(slope, spacing=(x,))
    left, right = _TAILS[name]
    # One hinge takes back the kink of max(0, x), and two lead into the tails. The others stand on
    # both sides of 0, the denser the more the function bends.
    density = curvature.abs() ** 0.6 * ((x > left) & (x < right))
    offset = [0.0, *[right, left][: max(0, hinges - 3)]]
    rest = hinges - len(offset)
    for side, count in ((x > 0, rest - rest // 2), (x < 0, rest // 2)):
        share = (density * side).cumsum(0)
        wanted = torch.arange(1, count + 1, dtype=torch.float64, device="cpu") / (count + 1)
        offset += x[torch.searchsorted(share, wanted * share[-1])].tolist()
    b = torch.tensor(sorted(offset), dtype=torch.float64, device="cpu")
    unit = (b - x[:, None]).clamp(min=0)
    missing = y - x.clamp(min=0)
    return torch.linalg.lstsq(unit, missing[:, None]).solution[:, 0], b


def piecewise_linear_(
    slope: Tensor,
    offset: Tensor,
    knots: Tensor | Sequence[float],
    slopes: Tensor | Sequence[float],
) -> None:
    """Start as the continuous piecewise-linear g that is x right of its last knot (Theorem 1).

    Args:
        slope: Filled with the :math:`a_s`.
        offset: Filled with the :math:`b_s`.
        knots: Where g bends, ascending.
        slopes: The slopes of its ``len(knots) + 1`` segments, left to right; the last one is 1.

    Example:
        >>> slope, offset = torch.empty(3, 1), torch.empty(3, 1)
        >>> piecewise_linear_(slope, offset, knots=[-1.0, 0.0], slopes=[0.0, 0.5, 1.0])
        >>> apl(torch.tensor([[-3.0], [-0.5], [2.0]]), slope, offset).T
        tensor([[-0.5000, -0.2500,  2.0000]])
    """
    a, b = hinges_from_piecewise_linear(_double(knots), _double(slopes))
    _fill_(slope, offset, a, b)


# What ``APL(init=...)`` takes by name.
STARTS: dict[str, Start] = {
    "leaky_silu": leaky_silu_,
    "silu": silu_,
    "gelu": gelu_,
    "mish": mish_,
    "squared_relu": squared_relu_,
    "leaky": leaky_,
    "relu": relu_,
    "authors": authors_,
}


def _fill_(
    slope: Tensor, offset: Tensor, a: Tensor | Sequence[float], b: Tensor | Sequence[float]
) -> None:
    form = with_spare_hinges(AffineForm(_double(a), _double(b)), len(slope))
    Hinges(form.slope, form.offset)(slope, offset)


def _double(values: Tensor | Sequence[float]) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64, device="cpu")


def align_(model: nn.Module, batches: Iterable[Inputs]) -> dict[str, int]:
    """Move the free hinges of every unit to where its inputs fall; the functions stay as they are.

    A hinge outside the range of a unit's inputs learns nothing. One pass over ``batches`` collects
    the range of the pre-activations of every unit (mean +- 2 standard deviations, within the
    extremes), and the hinges whose slope is exactly 0, which can be moved without changing the
    function, are spread evenly inside it. So align a model after the starts ``relu_`` and
    ``leaky_`` or after a swap; the authors' random start has no free hinge.

    Args:
        model: Is run in evaluation mode, without gradients; mode, buffers and random state stay.
        batches: A few batches, such as a data loader gives: tensors; tuples or lists that begin
            with what ``forward`` requires, ``(x, y)`` for instance; or dicts of its arguments.

    Returns:
        How many hinges were moved, by the name of the layer.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), APL(8, num_hinges=3, init="leaky"))
        >>> align_(net, [torch.randn(64, 4)])
        {'1': 16}
    """
    units = dict(named_units(model))
    ranges = {name: _InputRange() for name in units}
    watch(model, batches, lambda name, input: ranges[name].collect(by_unit(units[name], input)))
    return {name: _spread_free_hinges(unit, ranges[name]) for name, unit in units.items()}


class _InputRange:
    """The running range of the inputs of one layer's units."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    def collect(self, values: Tensor) -> None:
        if values.shape[-1] == 0:
            return
        # In double: squares of large float16 values would overflow.
        x = values.double()
        low, high = x.aminmax(dim=-1)
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)
        self.count += x.shape[-1]
        self.total = self.total + x.sum(-1)
        self.squares = self.squares + x.square().sum(-1)

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        if self.low is None or self.high is None:
            return None
        mean = torch.as_tensor(self.total) / self.count
        variance = (torch.as_tensor(self.squares) / self.count - mean.square()).clamp(min=0)
        reach = 2 * variance.sqrt()
        return torch.maximum(self.low, mean - reach), torch.minimum(self.high, mean + reach)


@torch.no_grad()
def _spread_free_hinges(unit: Unit, observed: _InputRange) -> int:
    bounds = observed.bounds()
    if bounds is None:
        return 0
    center = unit.center.double() if isinstance(unit, AffineAPL) else 0.0
    low, high = (bound - center for bound in bounds)
    inner = inner_unit(unit)
    before, slope = whole(inner.offset), whole(inner.slope)
    free = slope == 0
    share = free.cumsum(0) / (free.sum(0) + 1)
    offset = torch.where(free, low + (high - low) * share, before.double()).to(before)
    # Constant inputs, or a range too narrow for the dtype, would make free hinges coincide. Those
    # that stay count as NaN, equal to nothing: their slopes tell them apart.
    coincide = has_equal_hinges(torch.where(free, offset, float("nan")))
    moved = free & offset.isfinite().all(0) & ~coincide
    offset, order = torch.where(moved, offset, before).sort(dim=0)
    write_(inner.offset, offset)
    write_(inner.slope, slope.gather(0, order))
    return int(moved.sum())
