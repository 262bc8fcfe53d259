"""Units with fewer hinges, and plain activation functions where a layer has become one."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from torchapl.curves.kinks import Kinks
from torchapl.curves.read import kinks_of_difference, largest_value
from torchapl.curves.reduce import reduce_hinges
from torchapl.curves.replace import replace_units
from torchapl.form import Hinges
from torchapl.modules import APL, AffineAPL, Unit, inner_unit
from torchapl.watch import Inputs, by_unit, call, difference, named_units, untouched, watch

Range = tuple[float | Tensor, float | Tensor]


@dataclass(frozen=True)
class SimplifiedLayer:
    """What became of one layer.

    Attributes:
        name: Its path in the model, empty for a unit on its own.
        became: The class that is there now.
        hinges_before: The S of the layer before.
        hinges_after: And after, 0 for a plain activation function.
        parameters_before: Numbers learned before.
        parameters_after: And after.
        error: The largest change of any of its curves, on the range that was given or on the whole
            line.
    """

    name: str
    became: str
    hinges_before: int
    hinges_after: int
    parameters_before: int
    parameters_after: int
    error: float


@dataclass(frozen=True)
class Simplification:
    """A simplified model and the report of it, which prints as a table.

    Attributes:
        model: A copy of the model, or a unit, with fewer hinges.
        layers: One entry for each layer of units.
        output_error: Largest difference of the outputs in evaluation mode, if example inputs were
            given.
        output_size: Largest output, to compare it with.
        seconds_before: Median time of a forward pass, if example inputs were given.
        seconds_after: That of the simplified model.
    """

    model: nn.Module
    layers: tuple[SimplifiedLayer, ...]
    output_error: float | None = None
    output_size: float | None = None
    seconds_before: float | None = None
    seconds_after: float | None = None

    @property
    def parameters_saved(self) -> int:
        """How many numbers fewer the curves have."""
        return sum(layer.parameters_before - layer.parameters_after for layer in self.layers)

    def __str__(self) -> str:
        rows = [("layer", "became", "hinges", "parameters", "error")]
        for layer in self.layers:
            hinges = f"{layer.hinges_before} -> {layer.hinges_after}"
            parameters = f"{layer.parameters_before} -> {layer.parameters_after}"
            rows.append((layer.name, layer.became, hinges, parameters, f"{layer.error:.2g}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines.append(f"{self.parameters_saved} parameters saved")
        if self.output_error is not None and self.output_size is not None:
            lines.append(
                f"outputs moved by {self.output_error:.2g}, the largest is {self.output_size:.2g}"
            )
        if self.seconds_before is not None and self.seconds_after is not None:
            lines.append(
                f"forward pass {1e3 * self.seconds_before:.3f} ms -> "
                f"{1e3 * self.seconds_after:.3f} ms"
            )
        return "\n".join(lines)


def simplify(
    model: nn.Module,
    tolerance: float,
    *,
    ranges: Mapping[str, Range] | Range | None = None,
    example_inputs: Inputs | None = None,
) -> Simplification:
    """Return a copy in which every layer of units has only the hinges that it needs.

    Hinges that coincide are merged, those without effect dropped, and a layer is cut to the most
    hinges that one of its units needs. A layer of ReLUs becomes ``nn.ReLU``, one of Leaky ReLUs
    ``nn.LeakyReLU`` or ``nn.PReLU``. No curve moves by more than the tolerance: on the whole line,
    or within the ranges if they are given (:func:`observe_ranges`), where hinges that no input
    reaches are dropped, too. Hooks stay in force, and subclasses of the units with a ``forward`` of
    their own are left as they are.

    Args:
        model: Holds units somewhere, or is one.
        tolerance: How far a curve may move; 0 keeps all of them to rounding.
        ranges: The smallest and largest input of each layer by its name, numbers or tensors of the
            layer's unit shape; a single pair for a single unit.
        example_inputs: With these the outputs of both models are compared, and their forward passes
            timed.

    Example:
        >>> curves = APL(8, num_hinges=3, init="leaky")
        >>> model = nn.Sequential(nn.Linear(4, 8), curves, nn.Linear(8, 2))
        >>> result = simplify(model, tolerance=1e-6)
        >>> result.model[1]
        LeakyReLU(negative_slope=0.25)
        >>> print(result)
        layer  became     hinges  parameters  error
        1      LeakyReLU  3 -> 0  48 -> 0     0
        48 parameters saved
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be a number of at least 0, got {tolerance}")
    simple = copy.deepcopy(model)
    given = _by_name(simple, ranges)
    layers = []

    def simplified(name: str, unit: Unit) -> nn.Module:
        module, layer = _simplify_layer(name, unit, tolerance, given.get(name))
        layers.append(layer)
        return module

    simple = replace_units(simple, simplified)
    if example_inputs is None:
        return Simplification(simple, tuple(layers))
    with untouched(model), untouched(simple):
        change = difference(call(model, example_inputs), call(simple, example_inputs))
        seconds = _median_seconds(model, simple, example_inputs)
    return Simplification(simple, tuple(layers), change.largest, change.size, *seconds)


def observe_ranges(model: nn.Module, batches: Iterable[Inputs]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the smallest and largest input of every unit, by layer, over some batches.

    Args:
        model: Is run in evaluation mode, without gradients; mode, buffers and random state stay.
        batches: As in :func:`torchapl.init.align_`.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), APL(8))
        >>> ranges = observe_ranges(model, [torch.randn(100, 4)])
        >>> ranges["1"][0].shape
        torch.Size([8])
    """
    units = dict(named_units(model))
    ranges: dict[str, tuple[Tensor, Tensor]] = {}

    def widen(name: str, input: Tensor) -> None:
        values = by_unit(units[name], input)
        if values.shape[-1] == 0:
            return
        low, high = values.aminmax(dim=-1)
        if name in ranges:
            low, high = torch.minimum(low, ranges[name][0]), torch.maximum(high, ranges[name][1])
        ranges[name] = (low, high)

    watch(model, batches, widen)
    return ranges


@torch.no_grad()
def _simplify_layer(
    name: str, unit: Unit, tolerance: float, given: Range | None
) -> tuple[nn.Module, SimplifiedLayer]:
    inner = inner_unit(unit)
    if not (inner.slope.isfinite().all() and inner.offset.isfinite().all()):
        raise ValueError(f"the slopes and offsets of layer {name!r} must be finite")
    low, high = _bounds(name, inner, given)
    center, scale = 0.0, 1.0
    if isinstance(unit, AffineAPL):
        center, scale = float(unit.center), abs(float(unit.scale)) or 1.0
    shape = inner.num_hinges, math.prod(inner.unit_shape)
    a, b = (p.detach().double().reshape(shape) for p in (inner.slope, inner.offset))
    a, b, spent = reduce_hinges(
        a, b, (low - center).flatten(), (high - center).flatten(), tolerance / scale
    )
    needed = int((a != 0).sum(0).max()) if a.numel() else 0
    if needed == 1 and ((a * b).abs() <= tolerance / scale - spent).all():
        # Single hinges this near to 0 can be at 0, as those of Leaky ReLU.
        b = torch.zeros_like(b)
    simple = _with_hinges(unit, a[: max(needed, 1)], b[: max(needed, 1)])
    change = kinks_of_difference(Kinks.of(unit), Kinks.of(simple))
    # Slopes are rounded when they are stored, which no tolerance on the whole line allows for.
    error = largest_value(change, low, high, rounding=torch.finfo(inner.slope.dtype).eps)
    replaced = simple if isinstance(simple, AffineAPL) else _plain(simple)
    return replaced, SimplifiedLayer(
        name=name,
        became=type(replaced).__name__,
        hinges_before=inner.num_hinges,
        hinges_after=needed if isinstance(replaced, APL | AffineAPL) else 0,
        parameters_before=inner.slope.numel() + inner.offset.numel(),
        parameters_after=sum(p.numel() for p in replaced.parameters()),
        error=float(error.max()) if error.numel() else 0.0,
    )


def _bounds(name: str, inner: APL, given: Range | None) -> tuple[Tensor, Tensor]:
    values = (-torch.inf, torch.inf) if given is None else given
    try:
        low, high = (
            torch.as_tensor(value, dtype=torch.float64, device=inner.slope.device).expand(
                inner.unit_shape
            )
            for value in values
        )
    except RuntimeError:
        raise ValueError(
            f"ranges of layer {name!r} must be numbers or tensors of shape {inner.unit_shape}, got "
            f"{[tuple(torch.as_tensor(value).shape) for value in values]}"
        ) from None
    if not (low <= high).all():
        raise ValueError(f"ranges of layer {name!r} must ascend and not be NaN")
    return low, high


def _with_hinges(unit: Unit, a: Tensor, b: Tensor) -> Unit:
    """Return a copy of the layer with other hinges, of shape ``(S, U)``."""
    shape = (len(a), *inner_unit(unit).unit_shape)
    hinges = Hinges(a.reshape(shape), b.reshape(shape))
    simple = copy.deepcopy(unit)
    inner = inner_unit(simple)
    if parametrize.is_parametrized(inner):
        # Nothing computes the new curves from other numbers.
        inner = _without_parametrization(inner, hinges)
        if not isinstance(simple, AffineAPL):
            return inner
        simple.unit = inner
    for name in ("slope", "offset"):
        old = getattr(inner, name)
        new = getattr(hinges, name).to(old)
        setattr(inner, name, nn.Parameter(new, requires_grad=old.requires_grad))
    return simple


def _without_parametrization(unit: APL, hinges: Hinges) -> APL:
    plain = APL(
        unit.unit_shape,
        len(hinges.slope),
        unit_dim=unit.unit_dim,
        init=hinges,
        device=unit.slope.device,
        dtype=unit.slope.dtype,
    )
    return plain.requires_grad_(any(number.requires_grad for number in unit.parameters()))


def _plain(unit: APL) -> nn.Module:
    """Return the activation function of torch that all units are, or the units."""
    slope, offset = unit.slope.detach(), unit.offset.detach()
    if (slope == 0).all():
        return nn.ReLU().train(unit.training)
    if unit.num_hinges > 1 or ((slope != 0) & (offset != 0)).any():
        return unit
    negative = -slope[0]
    if (negative == negative.flatten()[0]).all():
        return nn.LeakyReLU(float(negative.flatten()[0])).train(unit.training)
    if negative.dim() == 1 and unit.unit_dim == 1:
        prelu = nn.PReLU(len(negative), device=negative.device, dtype=negative.dtype)
        prelu.weight = nn.Parameter(negative, requires_grad=unit.slope.requires_grad)
        return prelu.train(unit.training)
    return unit


def _by_name(model: nn.Module, ranges: Mapping[str, Range] | Range | None) -> Mapping[str, Range]:
    if ranges is None:
        return {}
    names = {name for name, _ in named_units(model, remove_duplicate=False)}
    if isinstance(ranges, tuple):
        if names != {""}:
            raise ValueError("ranges must be a mapping from the names of layers to pairs")
        return {"": ranges}
    if unknown := set(ranges) - names:
        raise ValueError(f"ranges names {sorted(unknown)}, the layers of units are {sorted(names)}")
    return ranges


def _median_seconds(
    first: nn.Module, second: nn.Module, inputs: Inputs, repeats: int = 11
) -> tuple[float, float]:
    """Time forward passes of two models in turn, so that both see the same disturbances."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for model, record in zip((first, second), times, strict=True):
            begin = time.perf_counter()
            call(model, inputs)
            record.append(time.perf_counter() - begin)
    # The first pass of each warms up.
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])
