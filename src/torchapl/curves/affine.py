"""The unit with an affine map around it, for curves that are not x on the right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from torchapl import starts
from torchapl.modules import APL, Start
from torchapl.theorem import AffineForm


class AffineAPL(nn.Module):
    r"""Any continuous piecewise-linear function: an APL unit between two affine maps.

    .. math::
        f(x) = w\,h(x - c) + k\,x + z

    An APL unit is x on the right. A network's next layer turns that into any other line but a
    horizontal one, as the paper argues: :math:`w\,h(x) + z` has the right slope w, and w = 0 would
    leave nothing of the curve. Nor does :math:`w\,h(vx + c) + z` help: one of its ends always rises
    or falls, so it is never a bounded function such as ReLU6 or hardtanh. A multiple k of the input
    is the one number that is missing. With the centre c the kink of max(0, x) falls on a knot of f,
    which saves up to two hinges: K knots take K - 1 of them.

    The four numbers are buffers: the layers around the unit learn such maps already.

    Args:
        unit_shape: As in :class:`APL`.
        num_hinges: As in :class:`APL`.
        unit_dim: As in :class:`APL`.
        init: As in :class:`APL`.
        scale: The w above.
        shift: The z.
        skip: The k.
        center: The c.
        device: As in torch.nn.
        dtype: As in torch.nn.

    Example:
        >>> hardtanh = AffineAPL(num_hinges=1, scale=1.0, skip=-1.0, center=-1.0)
        >>> with torch.no_grad():
        ...     _ = hardtanh.unit.slope.fill_(-1.0), hardtanh.unit.offset.fill_(2.0)
        >>> hardtanh(torch.tensor([-3.0, 0.5, 3.0])).tolist()
        [-1.0, 0.5, 1.0]
    """

    scale: Tensor
    shift: Tensor
    skip: Tensor
    center: Tensor

    def __init__(
        self,
        unit_shape: int | Sequence[int] = (),
        num_hinges: int = 2,
        *,
        unit_dim: int = 1,
        init: Start = starts.leaky_,
        scale: float = 1.0,
        shift: float = 0.0,
        skip: float = 0.0,
        center: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.unit = APL(
            unit_shape, num_hinges, unit_dim=unit_dim, init=init, device=device, dtype=dtype
        )
        for name, value in (("scale", scale), ("shift", shift), ("skip", skip), ("center", center)):
            self.register_buffer(name, torch.tensor(value, dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        curve: Tensor = self.scale * self.unit(input - self.center)
        return curve + self.skip * input + self.shift

    def extra_repr(self) -> str:
        numbers = ("scale", "shift", "skip", "center")
        return ", ".join(f"{name}={getattr(self, name).item():.6g}" for name in numbers)


def build(
    form: AffineForm,
    unit_shape: int | Sequence[int] = (),
    unit_dim: int = 1,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> APL | AffineAPL:
    """Return units that all have the given form; an :class:`APL` wherever that suffices."""
    hinges, start = form.slope.numel(), partial(_fill, form)
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
    form: AffineForm, num_hinges: int, interval: tuple[float, float]
) -> AffineForm:
    """Fill up with hinges without slope, distinct from each other and from those in use."""
    spare = num_hinges - form.slope.numel()
    places = torch.linspace(*interval, num_hinges + 2, dtype=torch.float64)[1:-1] - form.center
    free = places[~torch.isin(places, form.offset)][:spare].to(form.offset)
    return form._replace(
        slope=torch.cat([form.slope, torch.zeros_like(free)]),
        offset=torch.cat([form.offset, free]),
    )


@torch.no_grad()
def _fill(form: AffineForm, slope: Tensor, offset: Tensor) -> None:
    columns = (-1,) + (1,) * (slope.dim() - 1)
    slope.copy_(form.slope.reshape(columns).expand_as(slope))
    offset.copy_(form.offset.reshape(columns).expand_as(offset))
