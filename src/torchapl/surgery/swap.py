"""A finished model gets APL units: the public functions."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from torchapl.curves import simplify
from torchapl.modules import APL, AffineAPL, Sharing, Unit
from torchapl.surgery.apply import Placement, like_unit, replaced_by, restore_flags
from torchapl.surgery.functions import Forms, is_activation
from torchapl.surgery.plan import Match, Planner, UnitDim, make_units
from torchapl.surgery.record import record
from torchapl.surgery.report import SwapReport
from torchapl.surgery.verify import check_outputs, verify
from torchapl.watch import Inputs

Fixed = Literal["original", "relu", "simplified"]

_REPORT = "_swap_report"


def swap_activations(
    model: nn.Module,
    example_inputs: Inputs,
    *,
    num_hinges: int = 8,
    per: Sharing = "channel",
    match: Match = is_activation,
    unit_dim: UnitDim | None = None,
) -> nn.Module:
    """Give a finished model APL units that start as the activation functions they replace.

    One forward pass in evaluation mode finds every call: modules, functions and tensor methods,
    wherever they are. Each call site gets units of its own. Where only modules are replaced the
    model is changed in place; a module whose own ``forward`` calls a function becomes a graph
    module that shares its parameters, children, hooks and attributes. Parameters stay the same
    objects.

    ReLU, Leaky ReLU and PReLU are reproduced bit for bit, ReLU6, Hardtanh and Softshrink up to
    rounding, and every other function by the best fit on the range of inputs that the example
    showed. :func:`describe` tells what was done, how far off it is and what was left.

    Args:
        model: Not yet compiled, scripted or wrapped for distributed training.
        example_inputs: A tensor, a tuple of arguments, or a dict of keyword arguments. They should
            be typical: fits are made on the range of values that they cause.
        num_hinges: Hinges of each unit.
        per: ``"channel"`` gives every channel a curve, ``"layer"`` the whole layer one, ``"unit"``
            every position from the channels' axis on: (C, H, W) for a convolution, and the D
            features of a (B, T, D) sequence, whose length may vary.
        match: Sees the name and the module of each call (for a function the module of the same
            kind) and says whether it is swapped. By default all but sigmoids, which are gates.
        unit_dim: The axis of the channels, or a function of a call's name and input shape that
            returns it (or None). By default it is followed from the layer that feeds the units;
            where that is ambiguous an error asks for it.

    Returns:
        The model, or a new graph module where the model's own forward had to be rewritten.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
        >>> model = swap_activations(model, torch.randn(2, 3, 8, 8), num_hinges=3)
        >>> model[1]
        APL((8,), num_hinges=3, unit_dim=1)
    """
    _check(model, num_hinges, per)
    recording = record(model, example_inputs)
    check_outputs(recording.output)
    plan = Planner(model, recording.invocations, match).plan()
    swaps, units, forms = [], {}, Forms(num_hinges)
    for site in plan.sites:
        swap, unit = make_units(site, forms, num_hinges, per, unit_dim, model)
        swaps.append(swap)
        units[swap.name] = unit
    placement = Placement(model)
    try:
        swapped = placement.apply(tuple(swaps), tuple(plan.rewrites), units)
        error = verify(swapped, example_inputs, recording.output, units)
    except Exception:
        placement.undo()
        raise
    report = SwapReport(tuple(swaps), tuple(plan.rewrites), tuple(plan.left), error)
    vars(swapped)[_REPORT] = vars(model).get(_REPORT, SwapReport()) + report
    return swapped


def describe(model: nn.Module) -> SwapReport:
    """Return what :func:`swap_activations` did to a model or to parts of it.

    Example:
        >>> model = swap_activations(nn.Sequential(nn.Linear(4, 8), nn.Tanh()), torch.randn(64, 4))
        >>> [(swap.name, swap.kind, swap.error < 0.1) for swap in describe(model).swaps]
        [('1', 'Tanh', True)]
    """
    whole = SwapReport()
    for name, module in model.named_modules():
        report = vars(module).get(_REPORT)
        if report is not None:
            moved = report.under(name)
            whole = SwapReport(
                whole.swaps + moved.swaps,
                whole.rewrites + moved.rewrites,
                whole.left + moved.left,
                max(whole.output_error, moved.output_error),
            )
    return whole


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
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    units = {
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
    placement = Placement(model)
    try:
        rebuilt = placement.apply(report.swaps, report.rewrites, units)
    except Exception:
        placement.undo()
        raise
    vars(rebuilt)[_REPORT] = report
    return rebuilt


def restore_activations(
    model: nn.Module, to: Fixed = "original", *, tolerance: float = 0.0
) -> nn.Module:
    """Put fixed functions in the place of the units that :func:`swap_activations` made.

    Args:
        model: Is changed in place.
        to: ``"original"`` puts back what was there; ``"relu"`` puts ReLU everywhere, the paper's
            test of how much a network relies on its learned curves; ``"simplified"`` keeps the
            curves, frozen, with the hinges that matter (:func:`torchapl.curves.simplify`).
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
    # The fused kernel computes what was there, whatever is there now.
    if to == "original":
        restore_flags(model)
    for module in model.modules():
        vars(module).pop(_REPORT, None)
    return model


def _check(model: nn.Module, num_hinges: int, per: str) -> None:
    if per not in ("unit", "channel", "layer"):
        raise ValueError(f"per must be 'unit', 'channel' or 'layer', got {per!r}")
    if num_hinges < 1:
        raise ValueError(f"num_hinges must be at least 1, got {num_hinges}")
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


def _fixed(unit: Unit, to: Fixed, tolerance: float) -> Any:
    if to == "relu":
        return like_unit(nn.ReLU(), unit)
    if to == "simplified":
        return like_unit(simplify(unit, tolerance).model.requires_grad_(False), unit)
    old = replaced_by(unit)
    return like_unit(old, unit) if isinstance(old, nn.Module) else old
