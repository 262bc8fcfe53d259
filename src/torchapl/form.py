"""Curves as numbers, and how the numbers get into units: also into those that FSDP has sharded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchapl.modules import APL, AffineAPL, Unit
from torchapl.theorem import AffineForm

# Normalised inputs fall into it; spare hinges take its middle four fifths.
USUAL_INTERVAL = (-2.5, 2.5)


@dataclass(frozen=True)
class Hinges:
    """A start with given values; a class, so that a model with it can be pickled.

    Attributes:
        slope: Of shape ``(S,)``, the same for all units, or with the first axes of their shape:
            ``(S, C)`` for each of C channels.
        offset: Likewise.
    """

    slope: Tensor
    offset: Tensor

    def __call__(self, slope: Tensor, offset: Tensor) -> None:
        """Fill the parameters of a layer of units."""
        write_(slope, self.slope)
        write_(offset, self.offset)


def build(
    form: AffineForm,
    unit_shape: int | Sequence[int] = (),
    unit_dim: int = 1,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Unit:
    """Return units that all have the given form; an :class:`APL` wherever that suffices."""
    hinges, start = len(form.slope), Hinges(form.slope, form.offset)
    if form.is_plain:
        return APL(unit_shape, hinges, unit_dim=unit_dim, init=start, device=device, dtype=dtype)
    return AffineAPL(
        unit_shape,
        hinges,
        unit_dim=unit_dim,
        init=start,
        scale=form.scale,
        shift=form.shift,
        skip=form.skip,
        center=form.center,
        device=device,
        dtype=dtype,
    )


def with_spare_hinges(
    form: AffineForm, num_hinges: int, interval: tuple[float, float] = USUAL_INTERVAL
) -> AffineForm:
    """Fill up with hinges without slope, distinct from each other and from those in use.

    Hinges come in ascending order: an optimiser moves the slopes of the segments between them.

    Args:
        form: Its slopes may be those of one curve or of several channels.
        num_hinges: How many there are to be in all.
        interval: The inputs among which the spare ones are placed.
    """
    spare = num_hinges - len(form.slope)
    if spare < 0:
        raise ValueError(
            f"this function needs {len(form.slope)} hinges, there are {num_hinges}: ask for more "
            "hinges or give a function with fewer knots"
        )
    low, high = interval
    candidates = (low + high) / 2 - form.center + _spread(num_hinges) * ((high - low) / 5)
    free = candidates[~torch.isin(candidates, form.offset)][:spare]
    offset, order = torch.cat([form.offset, free]).sort()
    slope = torch.cat([form.slope, form.slope.new_zeros(spare, *form.slope.shape[1:])])
    return form._replace(slope=slope[order], offset=offset)


def _spread(count: int) -> Tensor:
    """Return 0, -1, 1, -2, 2, ... scaled into [-2, 2]."""
    # On the CPU, whatever `with torch.device(...)` says: on meta there would be no values.
    index = torch.arange(count, dtype=torch.float64, device="cpu")
    step = 2 / max(2, count // 2)
    return (index / 2).ceil() * step * torch.where(index % 2 == 1, -1.0, 1.0)


@torch.no_grad()
def write_(parameter: Tensor, values: Tensor) -> None:
    """Write values into a parameter, repeated along the axes that they do not have."""
    trailing = (1,) * (parameter.dim() - values.dim())
    values = values.to(parameter.device, parameter.dtype)
    values = values.reshape(*values.shape, *trailing).expand(parameter.shape)
    if hasattr(parameter, "device_mesh"):
        # A DTensor (FSDP) takes no plain values. Every rank has them all, so nothing is sent.
        from torch.distributed.tensor import distribute_tensor

        sharded: Any = parameter
        values = distribute_tensor(
            values, sharded.device_mesh, sharded.placements, src_data_rank=None
        )
    parameter.copy_(values)


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor, of which FSDP may have left only a part on this rank."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def has_equal_hinges(offset: Tensor) -> Tensor:
    """Tell for every unit whether two of its hinges share an offset."""
    return (offset.sort(dim=0).values.diff(dim=0) == 0).any(dim=0)
