"""Starting curves: each function fills ``slope`` and ``offset``, ``(S, *unit_shape)``, in place.

No start leaves two hinges of a unit identical: they would receive the same gradient and stay
identical for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchapl.theorem import hinges_from_piecewise_linear

# In bfloat16, 4096 units with 32 hinges take 9 draws, with 64 hinges 49, with 100 hinges 678.
_MOST_DRAWS = 1000


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


@torch.no_grad()
def relu_(slope: Tensor, offset: Tensor) -> None:
    """Start as exactly ReLU: slopes 0, offsets distinct around 0.

    Example:
        >>> slope, offset = torch.empty(2, 3), torch.empty(2, 3)
        >>> relu_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[0., 0., 2.]])
    """
    slope.zero_()
    _fill_(offset, _spread(slope.shape[0]))


@torch.no_grad()
def leaky_(slope: Tensor, offset: Tensor, *, negative_slope: float = 0.25) -> None:
    """Start as exactly Leaky ReLU, by one hinge at 0; the others are free (slope 0) and distinct.

    Example:
        >>> slope, offset = torch.empty(2, 3), torch.empty(2, 3)
        >>> leaky_(slope, offset)
        >>> apl(torch.tensor([[-1.0, 0.0, 2.0]]), slope, offset)
        tensor([[-0.2500,  0.0000,  2.0000]])
    """
    relu_(slope, offset)
    hinges = torch.zeros(slope.shape[0], dtype=torch.float64, device="cpu")
    hinges[0] = -negative_slope
    _fill_(slope, hinges)


@torch.no_grad()
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
    a, b = hinges_from_piecewise_linear(
        *(torch.as_tensor(values, dtype=torch.float64, device="cpu") for values in (knots, slopes))
    )
    spare = slope.shape[0] - a.numel()
    if spare < 0:
        raise ValueError(
            f"this function needs {a.numel()} hinges, slope has {slope.shape[0]}: "
            "ask for more hinges or give a function with fewer knots"
        )
    free = _distinct_from(b, spare)
    _fill_(slope, torch.cat([a, a.new_zeros(spare)]))
    _fill_(offset, torch.cat([b, free]))


def _spread(count: int) -> Tensor:
    """Return 0, -1, 1, -2, 2, ... scaled into [-2, 2], where normalised inputs fall."""
    # On the CPU, whatever `with torch.device(...)` says: on meta there would be no values.
    index = torch.arange(count, dtype=torch.float64, device="cpu")
    step = 1.0 if count < 2 else min(1.0, 2.0 / (count // 2))
    return (index / 2).ceil() * step * torch.where(index % 2 == 1, -1.0, 1.0)


def _distinct_from(taken: Tensor, count: int) -> Tensor:
    candidates = _spread(count + taken.numel())
    return candidates[~torch.isin(candidates, taken)][:count]


def _fill_(parameter: Tensor, hinges: Tensor) -> None:
    """Give all units the same values, one per hinge."""
    shape = (-1,) + (1,) * (parameter.dim() - 1)
    values = hinges.to(parameter.device, parameter.dtype).reshape(shape).expand(parameter.shape)
    if hasattr(parameter, "device_mesh"):
        # A DTensor (FSDP) takes no plain values. Every rank has them all, so nothing is sent.
        from torch.distributed.tensor import distribute_tensor

        sharded: Any = parameter
        place = (sharded.device_mesh, sharded.placements)
        values = distribute_tensor(values, *place, src_data_rank=None)
    parameter.copy_(values)


def has_equal_hinges(offset: Tensor) -> Tensor:
    """Tell for every unit whether two of its hinges share an offset."""
    return (offset.sort(dim=0).values.diff(dim=0) == 0).any(dim=0)
