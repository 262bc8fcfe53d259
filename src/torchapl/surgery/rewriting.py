"""A module whose forward is a graph, and which is otherwise the module that it was."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx, nn

from torchapl.surgery import functions
from torchapl.surgery.report import Rewrite
from torchapl.surgery.tracing import Traced, activation_of, trace

_ORIGINAL_CLASS = "_rewritten_from"


class RewrittenModule(fx.GraphModule):
    """A graph module that keeps parameters, children, hooks and attributes of the original.

    Methods and properties of the original class work on it as well. It can be copied and pickled.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            original = self.__dict__.get(_ORIGINAL_CLASS, nn.Module)
            found = inspect.getattr_static(original, name, None)
            if found is None:
                raise
            return found.__get__(self, original) if hasattr(found, "__get__") else found

    def __deepcopy__(self, memo: dict[int, Any]) -> RewrittenModule:
        twin = fx.GraphModule.__new__(RewrittenModule)
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return (_empty, (), self.__getstate__())

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _name_class(self)
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
    traced = trace(module, dict(plan.constants))
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
    result = RewrittenModule(nn.Module(), fx.Graph())
    result.__dict__.update(module.__dict__)
    for kind in ("_parameters", "_buffers", "_modules"):
        result.__dict__[kind] = dict(module.__dict__[kind])
    for name in dropped:
        del result._modules[name]
    called = {node.target for node in traced.graph.nodes if node.op == "call_module"}
    for name, stranger in traced.strangers.items():
        if name in called:
            result.add_module(name, stranger)
    for name, unit in units.items():
        result.add_module(name, unit)
    result.__dict__.setdefault(_ORIGINAL_CLASS, type(module))
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
    input = node.args[0]
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


def _empty() -> RewrittenModule:
    return fx.GraphModule.__new__(RewrittenModule)


def _name_class(module: RewrittenModule) -> None:
    type(module).__name__ = module.__dict__[_ORIGINAL_CLASS].__name__
