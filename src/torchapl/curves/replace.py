"""Other modules in the place of units, with what others have hung on these."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from torchapl.modules import APL, AffineAPL, Unit, inner_unit
from torchapl.watch import named_units

_FORWARDS = (APL.forward, AffineAPL.forward)
# A module in the place of another keeps these, and their handles keep working.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


def put(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """Set the submodule of this name and return the model; the module itself for the empty name."""
    if not name:
        return module
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
    return model


def computes_its_curves(unit: Unit) -> bool:
    """Tell whether what the units answer is known from their curves alone."""
    # Also that of one object may have been replaced.
    forwards = {getattr(part.forward, "__func__", None) for part in (unit, inner_unit(unit))}
    is_changed_inside = isinstance(unit, AffineAPL) and has_hooks(unit.unit)
    return forwards <= set(_FORWARDS) and not is_changed_inside


def has_hooks(module: nn.Module) -> bool:
    """Tell whether hooks see, or change, what goes into a module or comes out of it."""
    return any(vars(module)[name] for name in _HOOKS if name != "_is_full_backward_hook")


def keep_hooks(module: nn.Module, old: nn.Module) -> None:
    """Keep the hooks of a module in force on the one that takes its place."""
    for name in _HOOKS:
        vars(module)[name] = vars(old)[name]


def replace_units(model: nn.Module, make: Callable[[str, Unit], nn.Module]) -> nn.Module:
    """Put modules in the place of units, with their hooks and mode, and return the model.

    Units with a ``forward`` of their own compute something else than their curves, and stay.

    Args:
        model: Is changed; what is returned is another module if it is a unit itself.
        make: Gets name and units of a layer, once for layers with several names.
    """
    made: dict[int, nn.Module] = {}
    for name, unit in list(named_units(model, remove_duplicate=False)):
        if not computes_its_curves(unit):
            continue
        if id(unit) not in made:
            made[id(unit)] = make(name, unit).train(unit.training)
            keep_hooks(made[id(unit)], unit)
        model = put(model, name, made[id(unit)])
    return model
