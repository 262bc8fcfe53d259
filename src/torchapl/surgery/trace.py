"""The graph of one module's own forward, its children left whole."""

from __future__ import annotations

import inspect
import operator
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from torchapl.surgery import functions
from torchapl.surgery.record import Invocation
from torchapl.surgery.report import Constant
from torchapl.watch import same_modes

_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


class NotTraceableError(Exception):
    """A module whose forward cannot be rewritten; the message says why."""


@dataclass(frozen=True)
class Traced:
    """A graph, and the modules that forward makes or finds outside of the module."""

    graph: fx.Graph
    strangers: dict[str, nn.Module]


def expect(value: object, expected: object, argument: str) -> None:
    """Refuse an argument that differs from the value which is built into a rewritten forward."""
    if value is expected:
        return
    if isinstance(value, Tensor) or value != expected:
        given = "Tensor" if isinstance(value, Tensor) else repr(value)
        raise ValueError(
            f"{argument}={given} does not fit: this module was rewritten for "
            f"{argument}={expected!r}. Swap the original model with example inputs that use the "
            "other value"
        )


def trace(module: nn.Module, constants: Mapping[str, Constant]) -> Traced:
    """Trace a module's forward for training and evaluation alike.

    Args:
        module: Its children are not entered.
        constants: Arguments that keep a value; a call with another one is refused.

    Raises:
        NotTraceableError: With the reason.
    """
    if "forward" in vars(module):
        raise NotTraceableError("its forward was replaced on the instance")
    hidden = [name for name in ("graph", "code") if hasattr(module, name)]
    if hidden and not isinstance(module, fx.GraphModule):
        raise NotTraceableError(f"its {hidden[0]!r} would be hidden by that of a graph module")
    graphs = []
    with same_modes(module):
        for mode in (False, True):
            module.train(mode)
            tracer = _Tracer(constants)
            with _without_effects(module):
                try:
                    graphs.append(tracer.trace(module))
                except Exception as error:  # forward is foreign code: anything may be raised
                    raise NotTraceableError(_first_line(error)) from error
    _merge_modes(*graphs)
    graphs[0].lint()
    return Traced(graphs[0], tracer.strangers)


def constants_of(invocations: list[Invocation], *, numbers: bool) -> dict[str, Constant]:
    """Return the arguments that were no tensors, with the value that they had in every call.

    Args:
        invocations: The calls of one module.
        numbers: Whether numbers are kept too; without them forward must not branch on one.
    """
    if any(invocation.arguments is None for invocation in invocations):
        raise NotTraceableError("its call does not fit the signature of its forward")
    calls = [invocation.arguments or {} for invocation in invocations]
    constants: dict[str, Constant] = {}
    for name, parameter in inspect.signature(invocations[0].owner.forward).parameters.items():
        values = [call[name] for call in calls]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if any(values):
                raise NotTraceableError(f"it is called with further arguments in {parameter}")
        elif any(isinstance(leaf, Tensor) for leaf in tree_leaves(values)):
            if any(value is None for value in values):
                raise NotTraceableError(
                    f"its argument {name} is a tensor in one call and None in another"
                )
        elif all(_is_number(value) for value in values):
            if numbers and all(value == values[0] for value in values):
                constants[name] = values[0]
        elif not all(value is None or isinstance(value, (bool, str)) for value in values):
            raise NotTraceableError(f"its argument {name} is a {type(values[0]).__name__}")
        elif all(value == values[0] for value in values):
            constants[name] = values[0]
        else:
            raise NotTraceableError(f"its argument {name} changes from call to call")
    return constants


def activation_of(
    node: fx.Node, module: nn.Module, strangers: Mapping[str, nn.Module]
) -> nn.Module | None:
    """Return the module that computes a node, where it may be an activation call."""
    if node.op == "call_function":
        return functions.of_call(node.target, node.args, node.kwargs)
    if node.op == "call_method":
        return functions.of_method(str(node.target), node.args, node.kwargs)
    if node.op == "call_module":
        target = str(node.target)
        return strangers[target] if target in strangers else module.get_submodule(target)
    return None


class _Tracer(fx.Tracer):
    def __init__(self, constants: Mapping[str, Constant]) -> None:
        # A module that was rewritten before checks its arguments: those checks stay whole.
        super().__init__(autowrap_functions=(expect,))
        self.constants = constants
        self.strangers: dict[str, nn.Module] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        try:
            self.path_of_module(m)
        except NameError:
            # nn.ReLU()(x) in forward, or a global: a module without state gets a name.
            if any(True for _ in (*m.parameters(), *m.buffers(), *m.children())):
                return m.forward(*args, **kwargs)
            name = f"stranger_{len(self.strangers)}"
            self.strangers[name] = m
            return self.create_proxy("call_module", name, args, kwargs)
        return super().call_module(m, forward, args, kwargs)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in list(inspect.signature(root_fn).parameters.values())[1:]:
            value = self._argument(parameter)
            if (
                parameter.kind is parameter.VAR_KEYWORD
                or parameter.kind is parameter.VAR_POSITIONAL
            ):
                continue
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = value
            else:
                positional.append(value)

        def forward(*args: Any) -> Any:
            return root_fn(*args, **keywords)

        return forward, [self.root, *positional]

    def _argument(self, parameter: inspect.Parameter) -> Any:
        name, default = parameter.name, parameter.default
        stars = _STARS.get(parameter.kind, "")
        defaults = () if stars or default is parameter.empty else (default,)
        if parameter.kind is parameter.KEYWORD_ONLY and not defaults:
            defaults = (None,)  # in the graph it has a position, behind others with defaults
        proxy = self.create_proxy("placeholder", stars + name, defaults, {})
        if stars:
            empty: Any = () if stars == "*" else {}
            self.create_proxy("call_function", expect, (proxy, empty, stars + name), {})
            return None
        if name not in self.constants:
            return proxy
        value = self.constants[name]
        self.create_proxy("call_function", expect, (proxy, value, name), {})
        return value

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, dict) and type(a) is not dict:
            raise NotTraceableError(
                f"forward makes a {type(a).__name__}, which a graph cannot hold"
            )
        return super().create_arg(a)


def _merge_modes(evaluation: fx.Graph, training: fx.Graph) -> None:
    """Turn constants that differ between the two graphs back into ``self.training``."""
    counterpart: dict[fx.Node, fx.Node] = {}
    differing: list[tuple[fx.Node, bool]] = []
    if len(evaluation.nodes) != len(training.nodes):
        raise NotTraceableError("forward branches on self.training")
    for ours, theirs in zip(evaluation.nodes, training.nodes, strict=True):
        counterpart[theirs] = ours
        if (ours.op, ours.target) != (theirs.op, theirs.target):
            raise NotTraceableError("forward branches on self.training")
        for value, other in zip(_leaves(ours), _leaves(theirs), strict=True):
            other = counterpart.get(other, other) if isinstance(other, fx.Node) else other
            if isinstance(value, bool) and isinstance(other, bool) and value != other:
                differing.append((ours, value))
            elif value is not other and value != other:
                raise NotTraceableError("forward computes with self.training")
    if differing:
        _use_flag(evaluation, training, differing)


def _use_flag(
    evaluation: fx.Graph, training: fx.Graph, differing: list[tuple[fx.Node, bool]]
) -> None:
    first = next(node for node in evaluation.nodes if node.op != "placeholder")
    with evaluation.inserting_before(first):
        flag = evaluation.create_node("get_attr", "training")
        negated = evaluation.call_function(operator.not_, (flag,))
    others = {ours.name: ours for ours in training.nodes}
    for node in {node for node, _ in differing}:
        twin = others[node.name]
        node.args = _replaced(node.args, twin.args, flag, negated)
        node.kwargs = _replaced(node.kwargs, twin.kwargs, flag, negated)
    if not negated.users:
        evaluation.erase_node(negated)


def _replaced(value: Any, other: Any, flag: fx.Node, negated: fx.Node) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(
            _replaced(*pair, flag, negated) for pair in zip(value, other, strict=True)
        )
    if isinstance(value, Mapping):
        return {key: _replaced(value[key], other[key], flag, negated) for key in value}
    if isinstance(value, bool) and isinstance(other, bool) and value != other:
        return negated if value else flag
    return value


def _leaves(node: fx.Node) -> list[Any]:
    return tree_leaves(
        (node.args, dict(node.kwargs)), is_leaf=lambda leaf: isinstance(leaf, fx.Node)
    )


@contextmanager
def _without_effects(module: nn.Module) -> Iterator[None]:
    """Refuse a forward that does more than compute, as a graph would do it once or never."""
    attributes, states = dict(vars(module)), (random.getstate(), torch.get_rng_state())
    try:
        yield
        changed = {
            name
            for name, value in vars(module).items()
            if name not in attributes or value is not attributes[name]
        }
        if any(name.startswith("_tensor_constant") for name in changed):
            raise NotTraceableError("forward makes a tensor, which a graph would make once")
        if changed or len(vars(module)) != len(attributes):
            raise NotTraceableError("forward sets attributes, which a graph would not do again")
        if random.getstate() != states[0] or not torch.equal(torch.get_rng_state(), states[1]):
            raise NotTraceableError("forward draws random numbers, which a graph would draw once")
    finally:
        vars(module).clear()
        vars(module).update(attributes)
        random.setstate(states[0])
        torch.set_rng_state(states[1])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
