"""Putting modules into a model, and taking them out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from torchapl.surgery.report import Rewrite, Swap
from torchapl.surgery.rewriting import rewrite
from torchapl.surgery.units import Unit

_REPLACED = "_replaced"
_FLAGS = "_flags_before_swap"
# Those of the module that is replaced stay in force, and their handles keep working.
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


class Placement:
    """Changes a model step by step and can go back all of them."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._original = model
        self._undo: list[Callable[[], None]] = []

    def put(self, path: str, value: Any) -> Any:
        """Set the attribute or child at a dotted path and return what was there."""
        if not path:
            self.model, old = value, self.model
            return old
        parent, name = self._parent(path)
        old = getattr(parent, name)
        _assign(parent, name, value)
        self._undo.append(lambda: _assign(parent, name, old))
        return old

    def apply(
        self, swaps: tuple[Swap, ...], rewrites: tuple[Rewrite, ...], units: dict[str, Unit]
    ) -> nn.Module:
        """Carry out a plan with the given units, by name."""
        rewritten: set[str] = set()
        for plan in rewrites:
            prefix = f"{plan.module}." if plan.module else ""
            local = {name: units[prefix + name] for _, name in plan.units}
            rewritten |= {prefix + name for name in local}
            owner = self._get(plan.module)
            module, replaced = rewrite(owner, plan, local)
            for name, function in replaced.items():
                _take_over(local[name], function, owner)
            for path in (plan.module, *plan.aliases):
                self.put(path, module)
        for swap in swaps:
            if swap.name not in rewritten:
                for path in (swap.name, *swap.aliases):
                    unit = units[swap.name]
                    parent, _ = self._parent(path)
                    old = self.put(path, unit)
                    if old is not unit:
                        _take_over(unit, old, parent)
        self._leave_fused_kernels()
        return self.model

    def undo(self) -> nn.Module:
        """Take everything back and return the original model."""
        self.model = self._original
        for step in reversed(self._undo):
            step()
        return self.model

    def _get(self, path: str) -> nn.Module:
        try:
            return self.model.get_submodule(path)
        except AttributeError:
            raise ValueError(
                f"the model has no module {path!r}: it does not come from the constructor of the "
                "model that was described"
            ) from None

    def _parent(self, path: str) -> tuple[nn.Module, str]:
        prefix, _, name = path.rpartition(".")
        parent = self._get(prefix)
        if not hasattr(parent, name):
            raise ValueError(
                f"the model has no {path!r}: it does not come from the constructor of the model "
                "that was described"
            )
        return parent, name

    def _leave_fused_kernels(self) -> None:
        # In evaluation torch's encoder may run a fused kernel that knows ReLU and GELU alone.
        for module in self.model.modules():
            if isinstance(module, nn.TransformerEncoderLayer) and isinstance(
                module.activation, Unit
            ):
                self._set_flag(module, "activation_relu_or_gelu", 0)
            if isinstance(module, nn.TransformerEncoder):
                layers = [layer for layer in module.layers if hasattr(layer, "activation")]
                if any(isinstance(layer.activation, Unit) for layer in layers):
                    self._set_flag(module, "use_nested_tensor", False)

    def _set_flag(self, module: nn.Module, name: str, value: object) -> None:
        old = getattr(module, name)
        # After a second swap the first value is still the one to go back to.
        kept = {name: old, **vars(module).get(_FLAGS, {})}
        before = dict(vars(module))
        vars(module).update({name: value, _FLAGS: kept})
        self._undo.append(lambda: _put_back(module, before, (name, _FLAGS)))


def replaced_by(unit: Unit) -> Any:
    """Return the module or function whose place the units took."""
    return vars(unit)[_REPLACED]


def like_unit(module: nn.Module, unit: Unit) -> nn.Module:
    """Bring a module that takes the place of units to their device, dtype and mode; keep hooks."""
    for name in _HOOKS:
        vars(module)[name] = vars(unit)[name]
    parameter = next(unit.parameters())
    return module.to(parameter.device, parameter.dtype).train(unit.training)


def restore_flags(model: nn.Module) -> None:
    """Allow torch's encoder its fused kernel again."""
    for module in model.modules():
        vars(module).update(vars(module).pop(_FLAGS, {}))


def _take_over(unit: Unit, old: Any, owner: nn.Module) -> None:
    unit.train(owner.training)
    # Not a child: its parameters, if it had any, are no longer the model's.
    vars(unit)[_REPLACED] = old
    if isinstance(old, nn.Module):
        for name in _HOOKS:
            vars(unit)[name] = vars(old)[name]


def _put_back(module: nn.Module, before: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        vars(module).pop(name, None)
        if name in before:
            vars(module)[name] = before[name]


def _assign(parent: nn.Module, name: str, value: Any) -> None:
    if isinstance(value, nn.Module):
        setattr(parent, name, value)
    else:
        parent._modules.pop(name, None)
        vars(parent)[name] = value
