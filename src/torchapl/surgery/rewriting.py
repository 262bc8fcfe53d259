"""A module whose forward is a graph, and which is otherwise the module that it was."""

from __future__ import annotations

import copy
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx, nn

from torchapl.surgery import functions
from torchapl.surgery.report import Rewrite
from torchapl.surgery.tracing import NotTraceableError, Traced, activation_of, trace

_ORIGINAL_CLASS = "_rewritten_from"


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
    module: nn.Module, plan: Rewrite, units: Mapping[str, nn.Module]
) -> tuple[RewrittenModule, dict[str, nn.Module]]:
    """Return the module with some of its calls replaced by units, and what they replaced.

    Args:
        module: Is not changed; parameters, children and hooks are shared.
        plan: Which calls, and the constants of the trace.
        units: The units by their name in the module.
    """
    try:
        traced = trace(module, dict(plan.constants))
    except NotTraceableError as reason:
        raise ValueError(
            f"the forward of {plan.module or 'the model'} cannot be traced: {reason}; it is not "
            "the code that was swapped"
        ) from reason
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


def _assemble(
    module: nn.Module, traced: Traced, dropped: Sequence[str], units: Mapping[str, nn.Module]
) -> RewrittenModule:
    original = vars(module).get(_ORIGINAL_CLASS, type(module))
    result = _empty(original)
    # Those that a graph module has beside the attributes of any module.
    result.__dict__.update(fx.GraphModule(nn.Module(), fx.Graph()).__dict__)
    result.__dict__.update(module.__dict__)
    for kind in ("_parameters", "_buffers", "_modules"):
        result.__dict__[kind] = dict(module.__dict__[kind])
    result.__dict__["_load_state_dict_pre_hooks"] = _moved_hooks(module, result)
    for name in dropped:
        del result._modules[name]
    called = {node.target for node in traced.graph.nodes if node.op == "call_module"}
    for name, stranger in traced.strangers.items():
        if name in called:
            result.add_module(name, stranger)
    for name, unit in units.items():
        result.add_module(name, unit)
    result.__dict__[_ORIGINAL_CLASS] = original
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
        order = {other: place for place, other in enumerate(graph.nodes)}
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


def _empty(original: type[nn.Module]) -> RewrittenModule:
    # Before the original class, whose forward the graph's replaces.
    mixed = types.new_class(original.__name__, (RewrittenModule, original))
    module: RewrittenModule = fx.GraphModule.__new__(mixed)
    type(module).__name__ = original.__name__
    return module
