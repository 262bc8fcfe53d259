"""Units put into a model, by assignment or in a rewritten forward, and taken out again."""

from __future__ import annotations

import copy
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx, nn

from torchapl.curves.replace import keep_hooks
from torchapl.modules import Unit
from torchapl.surgery import functions
from torchapl.surgery.report import Rewrite, Swap
from torchapl.surgery.trace import NotTraceableError, Traced, activation_of, trace

_REPLACED = "_replaced"
_ORIGINAL_CLASS = "_rewritten_from"
# Of a module that was a graph module before; others have none.
_ORIGINAL_GRAPH = "_graph_before_swap"
# The names of the children, in their order, with those that were dropped.
_ORIGINAL_CHILDREN = "_children_before_swap"
_FLAGS = "_flags_before_swap"


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
        self,
        swaps: tuple[Swap, ...],
        rewrites: tuple[Rewrite, ...],
        units: Mapping[str, Unit],
        traced: Mapping[str, Traced],
    ) -> nn.Module:
        """Carry out a plan with the given units, by name; traces that are not given are made."""
        rewritten: set[str] = set()
        for plan in rewrites:
            prefix = f"{plan.module}." if plan.module else ""
            local = {name: units[prefix + name] for _, name in plan.units}
            rewritten |= {prefix + name for name in local}
            owner = self._get(plan.module)
            graph = traced.get(plan.module) or _trace(owner, plan)
            module, replaced = rewrite(owner, plan, graph, local)
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
        flags = {name: old, **vars(module).get(_FLAGS, {})}
        before = dict(vars(module))
        vars(module).update({name: value, _FLAGS: flags})
        self._undo.append(lambda: _put_back(module, before, (name, _FLAGS)))


def replaced_by(unit: Unit) -> Any:
    """Return the module or function whose place the units took."""
    return vars(unit)[_REPLACED]


def like_unit(module: nn.Module, unit: Unit) -> nn.Module:
    """Bring a module that takes the place of units to their device, dtype and mode; keep hooks."""
    keep_hooks(module, unit)
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
        keep_hooks(unit, old)


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


class RewrittenModule(fx.GraphModule):
    """A graph module that keeps parameters, children, hooks and attributes of the original.

    It is an instance of the original class as well, so that its methods, also those that replace
    one of ``nn.Module`` such as ``train``, are in force. It can be copied and pickled.
    """

    def __copy__(self) -> RewrittenModule:
        twin = _empty(self.__dict__[_ORIGINAL_CLASS])
        twin.__setstate__({**self.__getstate__(), "_graph": copy.deepcopy(self.graph)})
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> RewrittenModule:
        twin = memo[id(self)] = _empty(self.__dict__[_ORIGINAL_CLASS])
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return (_empty, (self.__dict__[_ORIGINAL_CLASS],), self.__getstate__())

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.graph.owning_module = self
        self.recompile()


def rewrite(
    module: nn.Module, plan: Rewrite, traced: Traced, units: Mapping[str, nn.Module]
) -> tuple[RewrittenModule, dict[str, nn.Module]]:
    """Return the module with some of its calls replaced by units, and what they replaced.

    Args:
        module: Is not changed; parameters, children and hooks are shared.
        plan: Which calls, and the constants of the trace.
        traced: Its forward, which becomes the new one.
        units: The units by their name in the module.
    """
    nodes = {node.name: node for node in traced.graph.nodes}
    missing = [name for name, _ in plan.units if name not in nodes]
    if missing:
        raise ValueError(
            f"the forward of {plan.module or 'the model'} has no call {missing[0]!r}: it is not "
            "the code that was swapped"
        )
    replaced: dict[str, nn.Module] = {}
    for name, unit in plan.units:
        function = activation_of(nodes[name], module, traced.strangers)
        if function is None:
            raise ValueError(f"the call {name!r} of {plan.module or 'the model'} is no activation")
        _replace_call(nodes[name], unit, in_place=_overwrites(nodes[name], function))
        replaced[unit] = function
    return _assemble(module, traced, plan.dropped, units), replaced


def restore_forward(module: RewrittenModule) -> None:
    """Make a rewritten module what it was: its class, its forward and its children.

    Those that were dropped come back: activations, which :func:`like_unit` has brought up to date.
    """
    state, children = vars(module), module._modules
    before = state.pop(_ORIGINAL_CHILDREN)
    module._modules = {name: children.get(name, dropped) for name, dropped in before.items()}
    original, graph = state.pop(_ORIGINAL_CLASS), state.pop(_ORIGINAL_GRAPH, None)
    if graph is not None:
        # Every graph module has a class of its own, which holds its forward.
        module.__class__ = type(original.__new__(original))
        type(module).__name__ = original.__name__
        module.graph = graph
        return
    for name in set(vars(fx.GraphModule(nn.Module(), fx.Graph()))) - set(vars(nn.Module())):
        state.pop(name, None)
    module.__class__ = original


def _trace(module: nn.Module, plan: Rewrite) -> Traced:
    try:
        return trace(module, dict(plan.constants))
    except NotTraceableError as reason:
        raise ValueError(
            f"the forward of {plan.module or 'the model'} cannot be traced: {reason}; it is not "
            "the code that was swapped"
        ) from reason


def _assemble(
    module: nn.Module, traced: Traced, dropped: Sequence[str], units: Mapping[str, nn.Module]
) -> RewrittenModule:
    original = vars(module).get(_ORIGINAL_CLASS, _class_of(module))
    result = _empty(original)
    # Those that a graph module has beside the attributes of any module.
    result.__dict__.update(fx.GraphModule(nn.Module(), fx.Graph()).__dict__)
    result.__dict__.update(module.__dict__)
    for kind in ("_parameters", "_buffers", "_modules"):
        result.__dict__[kind] = dict(module.__dict__[kind])
    result.__dict__["_load_state_dict_pre_hooks"] = _moved_hooks(module, result)
    before = vars(module).get(_ORIGINAL_CHILDREN, dict.fromkeys(module._modules))
    gone = {name: module._modules[name] for name in dropped}
    result.__dict__[_ORIGINAL_CHILDREN] = {name: gone.get(name, before[name]) for name in before}
    for name in dropped:
        del result._modules[name]
    called = {node.target for node in traced.graph.nodes if node.op == "call_module"}
    for name, stranger in traced.strangers.items():
        if name in called:
            result.add_module(name, stranger)
    for name, unit in units.items():
        result.add_module(name, unit)
    result.__dict__[_ORIGINAL_CLASS] = original
    if isinstance(module, fx.GraphModule) and not isinstance(module, RewrittenModule):
        # A copy, which does not hold the module that it is from.
        result.__dict__[_ORIGINAL_GRAPH] = copy.deepcopy(module.graph)
    result.__dict__["_graph"] = traced.graph
    result.__setstate__({})
    return result


def _overwrites(node: fx.Node, function: nn.Module | None) -> bool:
    if node.op == "call_module":
        return bool(getattr(function, "inplace", False))
    name = node.target if isinstance(node.target, str) else node.target.__name__
    return functions.is_in_place(name, node.args, node.kwargs)


def _replace_call(node: fx.Node, unit: str, *, in_place: bool) -> None:
    graph = node.graph
    input = functions.positional(node.args, node.kwargs)[0][0]
    with graph.inserting_before(node):
        replacement = graph.call_module(unit, (input,))
    node.replace_all_uses_with(replacement)
    if in_place and isinstance(input, fx.Node):
        # Whoever reads the overwritten input later reads the result.
        order = {other: index for index, other in enumerate(graph.nodes)}
        for user in list(input.users):
            if order[user] > order[node]:
                user.replace_input_with(input, replacement)
    graph.erase_node(node)


def _moved_hooks(module: nn.Module, result: nn.Module) -> dict[int, Any]:
    """Return the hooks of load_state_dict, of which some refer to the module that they are for."""
    hooks: dict[int, Any] = type(module._load_state_dict_pre_hooks)()
    for key, hook in module._load_state_dict_pre_hooks.items():
        hooks[key] = copy.copy(hook)
        if getattr(hook, "with_module", False):
            hooks[key].module = weakref.ref(result)
    return hooks


def _class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module, of a graph module the one that others have, too.

    Its own cannot be pickled, and the ``__call__`` there would find itself in a class beneath it.
    """
    own = type(module)
    return own.__mro__[1] if own.__qualname__.endswith("GraphModuleImpl") else own


def _empty(original: type[nn.Module]) -> RewrittenModule:
    # Before the original class, whose forward the graph's replaces.
    mixed = types.new_class(original.__name__, (RewrittenModule, original))
    module: RewrittenModule = fx.GraphModule.__new__(mixed)
    type(module).__name__ = original.__name__
    return module
