"""A finished model gets APL units: the public functions."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeGuard

import torch
from torch import nn

from torchapl.curves import simplify
from torchapl.init import STARTS
from torchapl.modules import APL, AffineAPL, Sharing, Start, Unit, inner_unit
from torchapl.surgery.apply import (
    Placement,
    RewrittenModule,
    like_unit,
    replaced_by,
    restore_flags,
    restore_forward,
)
from torchapl.surgery.functions import EXACT, Forms, is_activation, kind_of
from torchapl.surgery.plan import Match, Plan, Planner, UnitDim, make_units
from torchapl.surgery.record import record
from torchapl.surgery.report import Swap, SwapReport
from torchapl.surgery.verify import check_outputs, verify
from torchapl.watch import Difference, Inputs

Fixed = Literal["original", "relu", "simplified"]

# A difference of the outputs, as a part of the largest, that the user is told.
DIFFERENT = 0.01
# Inputs this near to each other say nothing about a curve.
NARROW = 0.1

_REPORT = "_swap_report"
_FUSED = "_fused_from_units"
# Marks a save_pretrained that writes the description.
_DESCRIBES = "_describes_swaps"


def swap_activations(
    model: nn.Module,
    example_inputs: Inputs,
    *,
    tolerance: float = 3e-4,
    num_hinges: int | None = None,
    per: Sharing = "channel",
    match: Match = is_activation,
    unit_dim: UnitDim | None = None,
    init: Start | str | None = None,
) -> nn.Module:
    """Give a finished model APL units that start as the activation functions they replace.

    One forward pass in evaluation mode finds every call: modules, functions and tensor methods,
    wherever they are. Each call site gets units of its own. Where only modules are replaced the
    model is changed in place; a module whose own ``forward`` calls a function becomes a graph
    module that shares its parameters, children, hooks and attributes. Parameters stay the same
    objects.

    ReLU, Leaky ReLU and PReLU are reproduced bit for bit, ReLU6, Hardtanh and Softshrink up to
    rounding. Every other function is approximated within the tolerance, on the range of inputs that
    the example showed and a quarter of its width beyond on either side. :func:`describe` tells what
    was done, how far off it is and what was left. A warning says where the outputs on the example
    differ by more than 1 % of the largest, where the example shows too little to judge, and where
    there was nothing to swap.

    Args:
        model: Not yet compiled, scripted or wrapped for distributed training.
        example_inputs: A tensor, a tuple of arguments, a dict of keyword arguments, or the
            ``(x, y)`` of a data loader. They should be typical: fits are made on the range of
            values that they cause.
        tolerance: How far units may be from a function that they cannot be exactly; it decides how
            many hinges they have, at most 128. By default 43 for GELU and 54 for SiLU, which
            leaves the predictions of a GPT-2 of six layers as they were. Units in bfloat16 take
            0.001 at least: rounding would undo a finer fit.
        num_hinges: Fixes the number of hinges in place of the tolerance: units with few are faster,
            and learn as well, but start further from the old function. The ReLU family takes
            eight by default.
        per: ``"channel"`` gives every channel a curve, ``"layer"`` the whole layer one, ``"unit"``
            every position from the channels' axis on: (C, H, W) for a convolution, and the D
            features of a (B, T, D) sequence, whose length may vary.
        match: Sees the name and the module of each call (for a function the module of the same
            kind) and says whether it is swapped. By default all but sigmoids, which are gates.
        unit_dim: The axis of the channels, or a function of a call's name and input shape that
            returns it (or None). By default it is followed from the layer that feeds the units;
            where that is ambiguous an error asks for it.
        init: For a model that is to be trained from scratch: units start with this curve, not as
            the function that they replace. ``"default"`` is what learned best: near SiLU after a
            normalisation, near GELU on the last of three axes or more, elsewhere near a SiLU with a
            leak; or see :class:`APL`.

    Returns:
        The model, or a new graph module where the model's own forward had to be rewritten.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
        >>> model = swap_activations(model, torch.randn(2, 3, 8, 8), num_hinges=3)
        >>> model[1]
        APL((8,), num_hinges=3, unit_dim=1)
    """
    _check(model, tolerance, num_hinges, per, init)
    recording = record(model, example_inputs)
    check_outputs(recording.output)
    plan = Planner(model, recording.invocations, match, imitates=init is None).plan()
    swaps, units, forms = [], {}, Forms(num_hinges, tolerance)
    for site in plan.sites:
        forms.note(site.function, site.interval)
    for site in plan.sites:
        swap, unit = make_units(site, forms, per, unit_dim, init, model)
        swaps.append(swap)
        units[swap.name] = unit
    placement = Placement(model)
    try:
        swapped = placement.apply(tuple(swaps), tuple(plan.rewrites), units, plan.traced)
        change = verify(swapped, example_inputs, recording.output, units)
    except Exception:
        placement.undo()
        raise
    report = SwapReport(
        tuple(swaps), tuple(plan.rewrites), tuple(plan.left), change.largest, change.size
    )
    _keep(vars(model).get(_REPORT, SwapReport()).then(report), swapped)
    # Another curve is what init asked for.
    for message in _doubts(plan, change) if init is None else _nothing_found(plan):
        warnings.warn(message, stacklevel=2)
    return swapped


def describe(model: nn.Module) -> SwapReport:
    """Return what :func:`swap_activations` did to a model or to parts of it.

    A part that the model has under several names is described once, with the others as aliases.

    Example:
        >>> model = swap_activations(nn.Sequential(nn.Linear(4, 8), nn.Tanh()), torch.randn(64, 4))
        >>> [(swap.name, swap.kind, swap.error < 0.1) for swap in describe(model).swaps]
        [('1', 'Tanh', True)]
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    names: dict[int, list[str]] = defaultdict(list)
    for name, module in modules.items():
        names[id(module)].append(name)

    def names_of(name: str) -> Sequence[str]:
        return names[id(modules[name])] if name in modules else ()

    whole = SwapReport()
    for name, module in model.named_modules():
        report = vars(module).get(_REPORT)
        if report is not None:
            # The report of a part knows no names that its modules have outside of it.
            whole = whole.beside(report.under(name).also_named(names_of))
    swaps = (_as_it_is(swap, modules.get(swap.name)) for swap in whole.swaps)
    return replace(whole, swaps=tuple(swaps))


def _as_it_is(swap: Swap, module: nn.Module | None) -> Swap:
    """Return a swap with the hinges that its units have by now: they may have been simplified."""
    if not isinstance(module, Unit) or inner_unit(module).num_hinges == swap.num_hinges:
        return swap
    return replace(
        swap,
        num_hinges=inner_unit(module).num_hinges,
        num_parameters=sum(parameter.numel() for parameter in module.parameters()),
        affine=isinstance(module, AffineAPL),
    )


def rebuild_swapped(model: nn.Module, description: SwapReport | str) -> nn.Module:
    """Put units into a fresh model as :func:`swap_activations` did, ready to load a ``state_dict``.

    Args:
        model: From the constructor of the model that was swapped.
        description: What :func:`describe` returned, or its JSON text.

    Example:
        >>> def build():
        ...     return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
        >>> trained = swap_activations(build(), torch.randn(64, 4))
        >>> saved = describe(trained).to_json(), trained.state_dict()
        >>> model = rebuild_swapped(build(), saved[0])
        >>> model.load_state_dict(saved[1])
        <All keys matched successfully>
    """
    report = SwapReport.from_json(description) if isinstance(description, str) else description
    placement = Placement(model)
    try:
        rebuilt = placement.apply(report.swaps, report.rewrites, _new_units(report, model), {})
    except Exception:
        placement.undo()
        raise
    _keep(report, rebuilt)
    return rebuilt


def can_rebuild(model: nn.Module, report: SwapReport) -> bool:
    """Tell whether a model has the modules and calls that a report names; it stays as it is."""
    units = _new_units(report, model)
    placement = Placement(model)
    try:
        placement.apply(report.swaps, report.rewrites, units, {})
    except (ValueError, KeyError):
        # Other code of the same name may lack calls or children.
        return False
    finally:
        placement.undo()
    return all(_was(replaced_by(units[swap.name]), swap.kind) for swap in report.swaps)


def restore_activations(
    model: nn.Module, to: Fixed = "original", *, tolerance: float = 0.0
) -> nn.Module:
    """Put fixed functions in the place of the units that :func:`swap_activations` made.

    Args:
        model: Is changed in place.
        to: ``"original"`` puts back what was there, and rewritten modules are what they were;
            ``"relu"`` puts ReLU everywhere, the paper's test of how much a network relies on its
            learned curves; ``"simplified"`` keeps the curves, frozen, with the hinges that matter
            (:func:`torchapl.curves.simplify`).
        tolerance: How far a simplified curve may move.

    Example:
        >>> model = swap_activations(nn.Sequential(nn.Linear(4, 8), nn.GELU()), torch.randn(64, 4))
        >>> restore_activations(model)[1]
        GELU(approximate='none')
    """
    if to not in ("original", "relu", "simplified"):
        raise ValueError(f"to must be 'original', 'relu' or 'simplified', got {to!r}")
    placement = Placement(model)
    for swap in describe(model).swaps:
        unit = model.get_submodule(swap.name)
        if isinstance(unit, Unit):
            fixed = _fixed(unit, to, tolerance)
            for path in (swap.name, *swap.aliases):
                placement.put(path, fixed)
    if to == "original":
        for module in list(model.modules()):
            if isinstance(module, RewrittenModule):
                restore_forward(module)
        # The fused kernel computes what was there, whatever is there now.
        restore_flags(model)
    forget(model)
    return model


def forget(model: nn.Module) -> None:
    """Remove what :func:`describe` knows of a model and its parts, also from configurations."""
    for module in model.modules():
        vars(module).pop(_REPORT, None)
    _remove_from_configs(model)


def mark_fused(module: nn.Module) -> None:
    """Note that a module is what became of units, which transformers could not build again."""
    vars(module)[_FUSED] = True


def describe_when_saved() -> None:
    """Let transformers save every model with what :func:`describe` says of it at that time.

    At the time of a swap it may not be known: parts are swapped before there is a whole, and models
    and parts share configurations.
    """
    # Whoever has a model of transformers has imported it.
    modeling: Any = sys.modules.get("transformers.modeling_utils")
    save = getattr(getattr(modeling, "PreTrainedModel", None), "save_pretrained", None)
    if save is None or hasattr(save, _DESCRIBES):
        return

    @functools.wraps(save)
    def save_pretrained(self: nn.Module, *args: Any, **options: Any) -> Any:
        _refuse_fused(self)
        _describe_in_config(self)
        return save(self, *args, **options)

    setattr(save_pretrained, _DESCRIBES, True)
    modeling.PreTrainedModel.save_pretrained = save_pretrained


def _keep(report: SwapReport, model: nn.Module) -> None:
    vars(model)[_REPORT] = report
    describe_when_saved()
    if _has_config(model):
        # Also for a process that saves a copy of the model and swaps nothing.
        _describe_in_config(model)


def _describe_in_config(model: Any) -> None:
    _remove_from_configs(model)
    report = describe(model)
    if report != SwapReport():
        model.config.torchapl = json.loads(report.to_json())


def _remove_from_configs(model: nn.Module) -> None:
    for module in model.modules():
        if _has_config(module):
            vars(module.config).pop("torchapl", None)


def _refuse_fused(model: nn.Module) -> None:
    fused = [name for name, module in model.named_modules() if _FUSED in vars(module)]
    if fused:
        raise ValueError(
            f"the curves of {and_more(fused)} are fused, which from_pretrained could not load: "
            "save the model that was given to torchapl.fuse, and fuse it again after loading; or "
            "save the state_dict of this one"
        )


def and_more(names: Sequence[str]) -> str:
    """Name the first and say how many others there are."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _has_config(model: nn.Module) -> TypeGuard[Any]:
    """Tell whether a model has a configuration that transformers saves beside its weights."""
    return hasattr(getattr(model, "config", None), "save_pretrained")


def _nothing_found(plan: Plan) -> Iterator[str]:
    if not plan.sites:
        left = f"; describe(model) says why {len(plan.left)} were left" if plan.left else ""
        yield f"swap_activations found no activation to swap, the model is as it was{left}"


def _doubts(plan: Plan, change: Difference) -> Iterator[str]:
    """Yield what the user of a swapped model should know."""
    yield from _nothing_found(plan)
    narrow = [
        f"{site.names[0]} ({site.kind}) from {site.interval[0]:.3g} to {site.interval[1]:.3g}"
        for site in plan.sites
        if not isinstance(site.function, EXACT) and site.interval[1] - site.interval[0] < NARROW
    ]
    if narrow:
        yield (
            f"the example shows too little of the inputs of {narrow[0]}"
            f"{f' and {len(narrow) - 1} more calls' if len(narrow) > 1 else ''}, where the new "
            "units were fitted: give a typical batch"
        )
    if change.largest > max(DIFFERENT, change.rounding) * change.size:
        yield (
            f"the outputs differ by {change.largest:.2g} on the example, where the largest is "
            f"{change.size:.2g}: give a smaller tolerance or more num_hinges; describe(model) has "
            "the error of each call"
        )


def _check(
    model: nn.Module,
    tolerance: float,
    num_hinges: int | None,
    per: str,
    init: Start | str | None,
) -> None:
    if per not in ("unit", "channel", "layer"):
        raise ValueError(f"per must be 'unit', 'channel' or 'layer', got {per!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be above 0, got {tolerance}")
    if num_hinges is not None and num_hinges < 1:
        raise ValueError(f"num_hinges must be at least 1, got {num_hinges}")
    if isinstance(init, str) and init not in (names := ("default", *STARTS)):
        raise ValueError(f"init must be one of {', '.join(map(repr, names))}, got {init!r}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name, module in model.named_modules():
        if _is_wrapped(module):
            subject = f"its part {name!r}" if name else "model"
            raise ValueError(
                f"{subject} is a {type(module).__name__} that is compiled, scripted or "
                "distributed: swap the plain model first, then wrap it"
            )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError(
            "model has parameters on the meta device, which have no values to run with: give it "
            "weights first, or swap another and use rebuild_swapped"
        )


def _is_wrapped(module: nn.Module) -> bool:
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel, torch.jit.ScriptModule)
    if isinstance(module, wrappers) or "_orig_mod" in module._modules:
        return True
    own = module.parameters(recurse=False)
    return module._compiled_call_impl is not None or any(
        type(parameter).__name__ == "DTensor" for parameter in own
    )


def _new_units(report: SwapReport, model: nn.Module) -> dict[str, Unit]:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return {
        swap.name: (AffineAPL if swap.affine else APL)(
            swap.unit_shape,
            swap.num_hinges,
            unit_dim=swap.unit_dim,
            init="relu",
            device=device,
            dtype=getattr(torch, swap.dtype),
        )
        for swap in report.swaps
    }


def _was(replaced: object, kind: str) -> bool:
    """Tell whether units took the place of this kind of module, or of a function."""
    return kind_of(replaced) == kind if isinstance(replaced, nn.Module) else callable(replaced)


def _fixed(unit: Unit, to: Fixed, tolerance: float) -> Any:
    if to == "relu":
        return like_unit(nn.ReLU(), unit)
    if to == "simplified":
        return like_unit(simplify(unit, tolerance).model.requires_grad_(False), unit)
    old = replaced_by(unit)
    return like_unit(old, unit) if isinstance(old, nn.Module) else old
