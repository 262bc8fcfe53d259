"""Networks of APL units as networks of Linear, Conv2d and ReLU alone."""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import nn

from torchapl.curves.layers import Hidden, combined, dense, expanded, grouped
from torchapl.curves.replace import computes_its_curves, has_hooks, replace_units
from torchapl.modules import Unit, inner_unit
from torchapl.watch import Inputs, call, hooked, untouched


def to_relu_network(
    model: nn.Module, example_inputs: Inputs, *, max_parameters: int = 50_000_000
) -> nn.Module:
    """Return a copy with ``Linear`` / ``Conv2d`` and ``ReLU`` alone in place of units.

    A layer of units on feature maps becomes two 1x1 convolutions, one group for each unit, with a
    ReLU in between; where every position has its own curve the positions are made channels first
    (``Flatten``, ``Unflatten``). On the last axis it becomes two ``Linear``, absorbed by ``Linear``
    neighbours in a ``Sequential``; without such neighbours they are block-diagonal matrices of
    which most is zero. Hooks stay in force, and subclasses of the units with a ``forward`` of their
    own are left as they are.

    Args:
        model: Holds units somewhere, or is one.
        example_inputs: Arguments of the model, which show the shapes that the units see.
        max_parameters: How many numbers a block-diagonal matrix may have; a larger one is refused.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), APL(8, num_hinges=1), nn.Linear(8, 2))
        >>> to_relu_network(model, torch.randn(1, 4))
        Sequential(
          (0): Linear(in_features=4, out_features=16, bias=True)
          (1): ReLU()
          (2): Linear(in_features=16, out_features=2, bias=True)
        )
    """
    return _convert(model, example_inputs, max_parameters, absorb_convolutions=False)


def to_mlpconv(
    model: nn.Module, example_inputs: Inputs, *, max_parameters: int = 50_000_000
) -> nn.Module:
    """Return a copy with the paper's MLPConv layers in place of units.

    A convolution followed by units that are shared over the map becomes one with ``S + 1`` times
    the channels, whose weights are c*w with c = 1 or -1 (the paper's tying), a ReLU, and a 1x1
    convolution that sums each channel's ReLUs. All else is as in :func:`to_relu_network`.

    Args:
        model: Holds units somewhere, or is one.
        example_inputs: Arguments of the model, which show the shapes that the units see.
        max_parameters: As in :func:`to_relu_network`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 5), APL(8, num_hinges=2))
        >>> print(to_mlpconv(model, torch.randn(1, 3, 9, 9))[0])
        Conv2d(3, 24, kernel_size=(5, 5), stride=(1, 1))
    """
    return _convert(model, example_inputs, max_parameters, absorb_convolutions=True)


def _convert(
    model: nn.Module, example_inputs: Inputs, max_parameters: int, *, absorb_convolutions: bool
) -> nn.Module:
    converted = copy.deepcopy(model)
    layouts, calls = _layouts(converted, example_inputs)
    for module in list(converted.modules()):
        # Parts that are also called from elsewhere, or alone, have to stay what they are.
        once = len({calls[id(child)] for child in (module, *module.children())}) == 1
        if type(module) is nn.Sequential and once:
            _absorb(module, layouts, absorb_convolutions)

    def block(name: str, unit: Unit) -> nn.Module:
        if id(unit) not in layouts:
            raise ValueError(f"the example inputs do not reach the units of {name!r}")
        return _block(name, unit, layouts[id(unit)], max_parameters)

    return replace_units(converted, block)


@dataclass(frozen=True)
class _Layout:
    """The input of a layer of units: its shape, and which axes the units have."""

    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def on_last_axis(self) -> bool:
        return self.stop == len(self.shape) and self.stop - self.start == 1

    @property
    def on_channels(self) -> bool:
        return self.start == 1 and self.stop == 2 and len(self.shape) == 4

    @property
    def units(self) -> int:
        return math.prod(self.shape[self.start : self.stop])


def _layouts(model: nn.Module, example_inputs: Inputs) -> tuple[dict[int, _Layout], Counter[int]]:
    """Run the model: what do its units see, and how often is each module called?"""
    layouts: dict[int, _Layout] = {}
    calls: Counter[int] = Counter()
    modules = dict(model.named_modules())

    def see(name: str, input: Any, output: Any) -> None:
        module = modules[name]
        calls[id(module)] += 1
        if not isinstance(module, Unit):
            return
        seen = _layout(name, module, tuple(input.shape))
        before = layouts.setdefault(id(module), seen)
        if before.shape[1:] != seen.shape[1:]:
            raise ValueError(
                f"units {name!r} are called with inputs of shapes {before.shape} and "
                f"{seen.shape}: give each call a layer of its own"
            )

    with untouched(model), hooked(modules, see):
        call(model, example_inputs)
    return layouts, calls


def _layout(name: str, unit: Unit, shape: tuple[int, ...]) -> _Layout:
    inner = inner_unit(unit)
    if inner.unit_shape:
        start = inner.unit_dim % len(shape)
        return _Layout(shape, start, start + len(inner.unit_shape))
    if not shape:
        raise ValueError(f"units {name!r} have an input without axes, which no layer takes")
    start = 1 if len(shape) >= 4 else len(shape) - 1
    return _Layout(shape, start, start + 1)


def _absorb(module: nn.Sequential, layouts: dict[int, _Layout], convolutions: bool) -> None:
    """Let the neighbours of units in a Sequential take over their affine maps."""
    for i, unit in enumerate(module):
        layout = layouts.get(id(unit))
        before = module[i - 1] if i > 0 else None
        if layout is None or not isinstance(unit, Unit) or not computes_its_curves(unit):
            continue
        # A hook would see, or change, other values than before.
        if any(layer is not None and has_hooks(layer) for layer in (before, unit)):
            continue
        hidden = Hidden.of(unit).flat(layout.units)
        j = _next_layer(module, i)
        after = module[j] if j < len(module) else None
        if layout.on_last_axis and type(before) is nn.Linear and type(after) is nn.Linear:
            if has_hooks(after):
                continue
            module[i - 1], module[i] = expanded(before, hidden), nn.ReLU()
            module[j] = combined(after, hidden)
        elif layout.on_channels and convolutions and type(before) is nn.Conv2d:
            module[i - 1] = expanded(before, hidden)
            module[i] = nn.Sequential(nn.ReLU(), grouped(hidden, before.weight)[1])


def _next_layer(module: nn.Sequential, i: int) -> int:
    """Return the index after ``i`` and after layers that do nothing in evaluation."""
    j = i + 1
    while j < len(module) and (
        isinstance(module[j], nn.Identity)
        or (isinstance(module[j], nn.Dropout) and not module[j].training)
    ):
        j += 1
    return j


def _block(name: str, unit: Unit, layout: _Layout, max_parameters: int) -> nn.Module:
    hidden = Hidden.of(unit).flat(layout.units)
    like = inner_unit(unit).slope
    fits = hidden.weight.shape[0] * layout.units**2 <= max_parameters
    if layout.on_last_axis and (fits or layout.start != 1):
        expand, combine = dense(name, hidden, like, max_parameters)
        return nn.Sequential(expand, nn.ReLU(), combine)
    if layout.start == 1:
        return _as_channels(layout, *grouped(hidden, like))
    if layout.stop == len(layout.shape):
        expand, combine = dense(name, hidden, like, max_parameters)
        apart = nn.Unflatten(layout.start, layout.shape[layout.start :])
        return nn.Sequential(nn.Flatten(layout.start), expand, nn.ReLU(), combine, apart)
    raise ValueError(
        f"units {name!r} on axes {layout.start} to {layout.stop - 1} of an input of shape "
        f"{layout.shape} have no Linear or Conv2d: they must start at axis 1 or end at the last one"
    )


def _as_channels(layout: _Layout, expand: nn.Conv2d, combine: nn.Conv2d) -> nn.Sequential:
    """Reshape to (N, units, height, width) around the layers, whatever axes the units have."""
    units, rest = layout.shape[layout.start : layout.stop], layout.shape[layout.stop :]
    before: list[nn.Module] = []
    after: list[nn.Module] = []
    if len(units) > 1:
        before.append(nn.Flatten(1, len(units)))
        after.append(nn.Unflatten(1, units))
    if len(rest) == 0:
        before.append(nn.Unflatten(1, (layout.units, 1, 1)))
        after.insert(0, nn.Flatten(1))
    elif len(rest) != 2:
        before += [nn.Flatten(2), nn.Unflatten(2, (math.prod(rest), 1))]
        after = [nn.Flatten(2), nn.Unflatten(2, rest), *after]
    return nn.Sequential(*before, expand, nn.ReLU(), combine, *after)
