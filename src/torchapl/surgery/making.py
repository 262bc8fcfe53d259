"""The units of one call site: their geometry, their curve and its error."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from torchapl.functional import FLOATING
from torchapl.modules import APL, Sharing
from torchapl.surgery.dryrun import Call
from torchapl.surgery.plan import Site
from torchapl.surgery.report import Swap
from torchapl.surgery.units import Forms, Geometry, Unit, largest_error

UnitDim = int | Callable[[str, tuple[int, ...]], int | None]


def make(
    site: Site,
    forms: Forms,
    num_hinges: int,
    per: Sharing,
    unit_dim: UnitDim | None,
    model: nn.Module,
) -> tuple[Swap, Unit]:
    """Return the units of a site and their entry in the report."""
    call = site.calls[0]
    shapes = {_geometry(site, call, per, unit_dim) for call in site.calls}
    if len(shapes) > 1:
        raise ValueError(
            f"{site.names[0]} ({site.kind}, {site.place}) is called with inputs of shapes "
            f"{sorted({tuple(call.shape) for call in site.calls})}, which per={per!r} units do not "
            "all fit: use per='channel' or per='layer', or leave it out with match"
        )
    ((unit_shape, axis),) = shapes
    dtype = _parameter_dtype(call, model)
    geometry = Geometry(unit_shape, axis, num_hinges, dtype, call.device)
    interval = (
        min(call.interval[0] for call in site.calls),
        max(call.interval[1] for call in site.calls),
    )
    form = forms.of(site.function, interval)
    if form.slope.dim() > 1 and form.slope.shape[1:] != unit_shape[:1]:
        raise ValueError(
            f"{site.names[0]} has slopes for {form.slope.shape[1]} channels, which units of shape "
            f"{unit_shape} cannot keep: use per='channel' or per='unit'"
        )
    error = largest_error(
        form, site.function, interval, parameter_dtype=dtype, input_dtype=call.dtype
    )
    unit = geometry.build(form)
    swap = Swap(
        name=site.names[0],
        kind=site.kind,
        unit_shape=unit_shape,
        unit_dim=axis,
        num_hinges=num_hinges,
        num_parameters=sum(parameter.numel() for parameter in unit.parameters()),
        error=error,
        interval=interval,
        affine=not isinstance(unit, APL),
        dtype=str(dtype).removeprefix("torch."),
        aliases=tuple(site.names[1:]),
    )
    return swap, unit


def _geometry(
    site: Site, call: Call, per: Sharing, unit_dim: UnitDim | None
) -> tuple[tuple[int, ...], int]:
    """Return unit shape and unit_dim for one call."""
    if per == "layer":
        return (), 1
    axis = _axis(site, call, unit_dim)
    shape = tuple(call.shape)
    unit_shape = shape[axis:] if per == "unit" else shape[axis : axis + 1]
    # Behind batch norm (N, C) may also be (N, C, L); elsewhere the last axis stays the last.
    is_batch_norm = isinstance(call.channels.feeder, nn.modules.batchnorm._BatchNorm)
    if axis == len(shape) - 1 and not is_batch_norm:
        return unit_shape, -1
    return unit_shape, 1 if axis == 1 else axis - len(shape)


def _axis(site: Site, call: Call, unit_dim: UnitDim | None) -> int:
    name, shape = site.names[0], tuple(call.shape)
    given = unit_dim(name, shape) if callable(unit_dim) else unit_dim
    if given is not None:
        if not -len(shape) <= given < len(shape):
            raise ValueError(f"unit_dim={given} is not an axis of the input {shape} of {name}")
        return given % len(shape)
    if isinstance(site.function, nn.PReLU) and site.function.weight.numel() > 1:
        return 1
    axis = call.channels.axis
    if axis is None:
        raise ValueError(
            f"cannot tell which axis of the input {shape} of {name} ({site.kind}, {site.place}) "
            "holds the channels: give unit_dim, for example unit_dim=1 for (N, C, H, W) or "
            "unit_dim=-1 for (B, T, D), or for this call alone "
            f"unit_dim=lambda name, shape: 1 if name == {name!r} else None; or use per='layer'"
        )
    return axis


def _parameter_dtype(call: Call, model: nn.Module) -> torch.dtype:
    """Return the dtype of the weights around the call; under autocast its input has another."""
    for module in (call.channels.feeder, call.owner, model):
        for parameter in () if module is None else module.parameters():
            if parameter.dtype in FLOATING:
                return parameter.dtype
    return call.dtype
