"""From recorded calls to a plan: which units go where, with which shape and curve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

import torch
from torch import nn

from torchapl.form import build
from torchapl.functional import FLOATING
from torchapl.modules import APL, Sharing, Start, Unit, default_start
from torchapl.surgery.functions import Forms, discontinuity, kind_of, largest_error
from torchapl.surgery.record import Call, Invocation
from torchapl.surgery.report import Constant, Left, Rewrite, Swap
from torchapl.surgery.trace import NotTraceableError, Traced, activation_of, constants_of, trace
from torchapl.theorem import AffineForm

Match = Callable[[str, nn.Module], bool]
UnitDim = int | Callable[[str, tuple[int, ...]], int | None]
_NORMALISATIONS = (
    nn.modules.batchnorm._BatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


@dataclass
class Site:
    """One place in the code where an activation is called, with all its calls in the dry run.

    A loop over time calls one place with the input of one layer many times: that is one site. A
    loop over layers calls it with the input of another layer each time: those are several.
    """

    calls: list[Call]
    names: list[str] = field(default_factory=list)

    @property
    def function(self) -> nn.Module:
        """The module that computes what is called."""
        return self.calls[0].function

    @property
    def kind(self) -> str:
        """What is called, as a word."""
        return kind_of(self.function)

    @property
    def place(self) -> str:
        """File and line."""
        file, line, _ = self.calls[0].location
        return f"{PurePath(file).name}:{line}"

    @property
    def interval(self) -> tuple[float, float]:
        """The smallest and the largest input that the example brought."""
        interval = self._interval
        if interval is None:
            raise ValueError(
                f"example_inputs bring no finite number to {self.names[0]} ({self.kind}, "
                f"{self.place}): give inputs that are not empty or NaN, or leave the call out with "
                "match"
            )
        return interval

    @property
    def jump(self) -> str | None:
        """Where the function jumps within that interval, if it does."""
        return None if self._interval is None else discontinuity(self.function, self._interval)

    @property
    def _interval(self) -> tuple[float, float] | None:
        intervals = [call.interval for call in self.calls if call.interval is not None]
        if not intervals:
            return None
        return min(low for low, _ in intervals), max(high for _, high in intervals)


@dataclass
class Plan:
    """The sites with the names that their units get, the rewrites they need, and what is left."""

    sites: list[Site]
    rewrites: list[Rewrite]
    traced: dict[str, Traced]  # by the module that is rewritten
    left: list[Left]


class Planner:
    """Sorts the calls into sites and finds a place for the units of each.

    Args:
        model: Where the calls are.
        invocations: All of them.
        match: Which are swapped.
        imitates: Whether units have to start as the functions that they replace.
    """

    def __init__(
        self, model: nn.Module, invocations: list[Invocation], match: Match, imitates: bool
    ) -> None:
        self.model = model
        self.match = match
        self.imitates = imitates
        self.paths: dict[int, list[str]] = defaultdict(list)
        for name, module in model.named_modules(remove_duplicate=False):
            self.paths[id(module)].append(name)
        self.invocations: dict[int, list[Invocation]] = defaultdict(list)
        for invocation in invocations:
            self.invocations[id(invocation.owner)].append(invocation)
        self.left: list[Left] = []
        self.traced: dict[str, Traced] = {}
        self.sites = self._sites()

    def plan(self) -> Plan:
        """Return the plan."""
        traced: dict[int, list[Site]] = defaultdict(list)
        placed: list[Site] = []
        for group in self._by_callee():
            for site in group:
                site.names = self._names(site, group)
                if site.names:
                    placed.append(site)
                else:
                    traced[id(site.calls[0].owner)].append(site)
        rewrites = []
        for sites in traced.values():
            try:
                rewrites.append(self._rewrite(sites))
                placed += sites
            except NotTraceableError as reason:
                self._leave(sites, f"cannot be traced: {reason}")
        placed.sort(key=lambda site: site.calls[0].order)
        return Plan(placed, rewrites, self.traced, self.left)

    def path(self, module: nn.Module) -> str:
        """Return the first name of a module in the model."""
        return self.paths[id(module)][0]

    def _sites(self) -> list[Site]:
        sites: dict[object, Site] = {}
        for invocations in self.invocations.values():
            for invocation in invocations:
                for call, child in zip(invocation.calls, _positions(invocation), strict=True):
                    # A module that forward makes anew is another object in every call.
                    known = id(call.module) in self.paths
                    callee = id(call.module) if known else kind_of(call.function)
                    feeder = id(call.channels.feeder)
                    key = (id(call.owner), callee, call.location, feeder, child)
                    sites.setdefault(key, Site([])).calls.append(call)
        selected = []
        for site in sites.values():
            name, dtypes = self._label(site), {call.dtype for call in site.calls}
            if not self.match(name, site.function):
                self._leave([site], "not selected by match")
            elif not dtypes <= set(FLOATING):
                self._leave([site], f"its input is {', '.join(map(str, dtypes))}")
            elif any(call.escapes for call in site.calls):
                self._leave([site], "overwrites an input that another module reads afterwards")
            elif self.imitates and (jump := site.jump) is not None:
                self._leave([site], jump)
            else:
                selected.append(site)
        return selected

    def _label(self, site: Site) -> str:
        """Return a name for a site that has no unit yet."""
        call = site.calls[0]
        if call.module is not None and id(call.module) in self.paths:
            return self.path(call.module)
        return _join(self.path(call.owner), call.attribute or _word(site.kind))

    def _leave(self, sites: Iterable[Site], reason: str) -> None:
        self.left += [Left(self._label(site), site.kind, site.place, reason) for site in sites]

    def _by_callee(self) -> list[list[Site]]:
        """Group the sites that call the same module, or the same attribute of a module."""
        groups: dict[object, list[Site]] = defaultdict(list)
        for site in self.sites:
            call = site.calls[0]
            key: object = id(site)
            if call.module is not None and id(call.module) in self.paths:
                key = id(call.module)
            elif call.attribute is not None:
                key = (id(call.owner), call.attribute)
            groups[key].append(site)
        return list(groups.values())

    def _names(self, site: Site, group: list[Site]) -> list[str]:
        """Return the names under which units replace a module or attribute, none if they cannot."""
        call = site.calls[0]
        owners = self.paths[id(call.owner)]
        if any(call.rewires for call in site.calls):
            return []
        if call.attribute is not None:
            return [_join(path, call.attribute) for path in owners] if len(group) == 1 else []
        if call.module is None or id(call.module) not in self.paths:
            return []
        if len(group) == 1:
            return self.paths[id(call.module)]
        position = _position_of(call, self.invocations[id(call.owner)])
        if position is not None:
            return [_join(path, position) for path in owners]
        if sum(other.calls[0].owner is call.owner for other in group) > 1:
            return []
        children = [name for name, child in call.owner._modules.items() if child is call.module]
        return [_join(path, child) for path in owners for child in children]

    def _rewrite(self, sites: list[Site]) -> Rewrite:
        owner = sites[0].calls[0].owner
        invocations = self.invocations[id(owner)]
        traced, constants = _trace(owner, invocations)
        nodes = self._match_nodes(owner, invocations, traced)
        paths = self.paths[id(owner)]
        self.traced[paths[0]] = traced
        taken = set(dir(owner))
        units = []
        for site in sites:
            name = self._unit_name(site, taken)
            taken.add(name)
            site.names = [_join(path, name) for path in paths]
            units += [
                (node, name) for node, call in nodes if any(call is own for own in site.calls)
            ]
        order = [node for node, _ in nodes]
        units.sort(key=lambda unit: order.index(unit[0]))
        return Rewrite(
            module=paths[0],
            units=tuple(units),
            constants=tuple(constants.items()),
            dropped=self._dropped(owner, sites, traced, {node for node, _ in units}),
            aliases=tuple(paths[1:]),
        )

    def _match_nodes(
        self, owner: nn.Module, invocations: list[Invocation], traced: Traced
    ) -> list[tuple[str, Call]]:
        """Pair the nodes of the graph with the calls that the dry run saw, in order."""
        known = {
            id(call.module) for run in invocations for call in run.calls if call.module is not None
        }
        nodes = []
        for node in traced.graph.nodes:
            function = activation_of(node, owner, traced.strangers)
            is_call = (
                node.op != "call_module" or id(function) in known or node.target in traced.strangers
            )
            if function is not None and is_call:
                nodes.append((node.name, kind_of(function)))
        pairs = []
        for run in invocations:
            seen = [kind_of(call.function) for call in run.calls]
            if seen != [kind for _, kind in nodes]:
                raise NotTraceableError(
                    f"its graph calls {[kind for _, kind in nodes]}, the run with the example "
                    f"called {seen}"
                )
            pairs += [(name, call) for (name, _), call in zip(nodes, run.calls, strict=True)]
        return pairs

    def _unit_name(self, site: Site, taken: set[str]) -> str:
        call = site.calls[0]
        children = [name for name, child in call.owner._modules.items() if child is call.module]
        base = children[0] if call.module is not None and children else _word(site.kind)
        count = 1
        while f"{base}_{count}" in taken:
            count += 1
        return f"{base}_{count}"

    def _dropped(
        self, owner: nn.Module, sites: list[Site], traced: Traced, replaced: set[str]
    ) -> tuple[str, ...]:
        """Return the children that are called nowhere any more."""
        callees = {id(site.calls[0].module) for site in sites}
        still = {
            id(activation_of(node, owner, traced.strangers))
            for node in traced.graph.nodes
            if node.op == "call_module" and node.name not in replaced
        }
        names = [name for name, child in owner._modules.items() if id(child) in callees - still]
        return tuple(names)


def make_units(
    site: Site,
    forms: Forms,
    per: Sharing,
    unit_dim: UnitDim | None,
    init: Start | str | None,
    model: nn.Module,
) -> tuple[Swap, Unit]:
    """Return the units of a site and their entry in the report."""
    call = site.calls[0]
    shapes = {_unit_axes(site, call, per, unit_dim) for call in site.calls}
    if len(shapes) > 1:
        raise ValueError(
            f"{site.names[0]} ({site.kind}, {site.place}) is called with inputs of shapes "
            f"{sorted({tuple(call.shape) for call in site.calls})}, which per={per!r} units do not "
            "all fit: use per='channel' or per='layer', or leave it out with match"
        )
    ((unit_shape, axis),) = shapes
    dtype = _parameter_dtype(call, model)
    interval = site.interval
    unit: Unit
    if init is None:
        form = forms.of(site.function, interval, dtype)
        if form.slope.dim() > 1 and form.slope.shape[1:] != unit_shape[:1]:
            raise ValueError(
                f"{site.names[0]} has slopes for {form.slope.shape[1]} channels, which units of "
                f"shape {unit_shape} cannot keep: use per='channel' or per='unit'"
            )
        unit = build(form, unit_shape, axis, device=call.device, dtype=dtype)
    else:
        unit = APL(
            unit_shape,
            forms.num_hinges,
            unit_dim=axis,
            init=_default_start(call, axis) if init == "default" else init,
            device=call.device,
            dtype=dtype,
        )
        form = _first_curve(unit, site.function)
    error = largest_error(
        form, site.function, interval, parameter_dtype=dtype, input_dtype=call.dtype
    )
    swap = Swap(
        name=site.names[0],
        kind=site.kind,
        unit_shape=unit_shape,
        unit_dim=axis,
        num_hinges=len(form.slope),
        num_parameters=sum(parameter.numel() for parameter in unit.parameters()),
        error=error,
        interval=interval,
        affine=not isinstance(unit, APL),
        dtype=str(dtype).removeprefix("torch."),
        aliases=tuple(site.names[1:]),
    )
    return swap, unit


def _default_start(call: Call, axis: int) -> str:
    return default_start(
        # The last of two axes may be any dense layer's.
        in_transformer=axis == -1 and len(call.shape) > 2,
        normalised=isinstance(call.channels.feeder, _NORMALISATIONS),
    )


def _first_curve(unit: APL, function: nn.Module) -> AffineForm:
    """Return the curve of the first unit, as often as the function has slopes."""
    slope, offset = (p.detach().cpu().double().flatten(1)[:, 0] for p in (unit.slope, unit.offset))
    if isinstance(function, nn.PReLU) and function.weight.numel() > 1:
        slope = slope[:, None].expand(-1, function.weight.numel())
    return AffineForm(slope, offset)


def _unit_axes(
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


def _trace(owner: nn.Module, invocations: list[Invocation]) -> tuple[Traced, dict[str, Constant]]:
    try:
        constants = constants_of(invocations, numbers=False)
        return trace(owner, constants), constants
    except NotTraceableError:
        # Perhaps forward branches on a number; then that number is built in.
        constants = constants_of(invocations, numbers=True)
        return trace(owner, constants), constants


def _positions(invocation: Invocation) -> list[str | None]:
    """Return the child that each call of an ``nn.Sequential`` goes to; it calls them in order."""
    if type(invocation.owner).forward is not nn.Sequential.forward:
        return [None] * len(invocation.calls)
    names: list[str | None] = []
    children = iter(invocation.owner._modules.items())
    for call in invocation.calls:
        names.append(next(name for name, child in children if child is call.module))
    return names


def _position_of(call: Call, invocations: list[Invocation]) -> str | None:
    for invocation in invocations:
        for other, name in zip(invocation.calls, _positions(invocation), strict=True):
            if other is call:
                return name
    return None


def _word(kind: str) -> str:
    return kind.lower().removesuffix("activation")


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)
