"""The graph of one module's own forward, its children left whole."""

from __future__ import annotations

import inspect
import operator
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map

from torchapl.surgery import functions
from torchapl.surgery.record import ONE_AT_A_TIME, Invocation
from torchapl.surgery.report import Constant
from torchapl.watch import same_modes

_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_CONTAINERS = (dict, list, set, deque)
# Also of devices that are not here: the model may be swapped on another one than it is trained on.
_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")
_TORCH_MODES = "the mode of gradients or autocast"


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
    # torch.fx stands in for methods of every module while it traces.
    with ONE_AT_A_TIME, same_modes(module):
        evaluation, training = (_trace_mode(module, constants, mode) for mode in (False, True))
    differing = _differing(evaluation.graph, training.graph, "self.training")
    if differing:
        _use_flag(evaluation.graph, training.graph, differing)
    evaluation.graph.lint()
    return evaluation


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


def _trace_mode(module: nn.Module, constants: Mapping[str, Constant], training: bool) -> Traced:
    """Trace for training or for evaluation."""
    module.train(training)
    traced = []
    # What forward turns on is a change in the one, what it turns off in the other.
    for enabled in (False, True):
        with _without_effects(module), _gradients_and_autocast(enabled):
            tracer = _Tracer(constants)
            try:
                traced.append(Traced(tracer.trace(module), tracer.strangers))
            except Exception as error:  # forward is foreign code: anything may be raised
                raise NotTraceableError(_first_line(error)) from error
    off, on = traced
    if _differing(off.graph, on.graph, _TORCH_MODES):
        raise NotTraceableError(f"forward computes with {_TORCH_MODES}")
    return off


class _Proxy(fx.Proxy):
    """Refuses attributes: a graph would not set them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("node", "tracer"):
            raise NotTraceableError(f"forward sets {name!r} of a tensor, as a graph would not")
        super().__setattr__(name, value)


class _Tracer(fx.Tracer):
    # What forward reads from buffers and writes into them is part of the graph.
    proxy_buffer_attributes = True

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        # A module that was rewritten before checks its arguments: those checks stay whole.
        super().__init__(autowrap_functions=(expect,))
        self.constants = constants
        self.strangers: dict[str, nn.Module] = {}
        self._modes = _torch_modes()
        self._thread = threading.get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if _torch_modes() != self._modes:
            raise NotTraceableError(f"forward changes {_TORCH_MODES}, which a graph would not do")
        return super().create_node(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
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


def _differing(first: fx.Graph, second: fx.Graph, cause: str) -> list[tuple[fx.Node, bool]]:
    """Return the flags that differ between two graphs of a forward, with the values in the first.

    Raises:
        NotTraceableError: If anything else differs, with the cause.
    """
    counterpart: dict[fx.Node, fx.Node] = {}
    differing: list[tuple[fx.Node, bool]] = []
    if len(first.nodes) != len(second.nodes):
        raise NotTraceableError(f"forward branches on {cause}")
    for ours, theirs in zip(first.nodes, second.nodes, strict=True):
        counterpart[theirs] = ours
        (values, form), (others, other_form) = _leaves(ours), _leaves(theirs)
        call, other_call = (ours.op, ours.target, form), (theirs.op, theirs.target, other_form)
        if call != other_call or len(values) != len(others):
            raise NotTraceableError(f"forward branches on {cause}")
        for value, other in zip(values, others, strict=True):
            other = counterpart.get(other, other) if isinstance(other, fx.Node) else other
            if isinstance(value, bool) and isinstance(other, bool) and value != other:
                differing.append((ours, value))
            elif value is not other and value != other:
                raise NotTraceableError(f"forward computes with {cause}")
    return differing


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


def _leaves(node: fx.Node) -> tuple[list[Any], TreeSpec]:
    leaves, form = tree_flatten(
        (node.args, dict(node.kwargs)), is_leaf=lambda leaf: isinstance(leaf, fx.Node)
    )
    # A slice may hold nodes, too.
    opened = [
        (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)
        for leaf in leaves
    ]
    return [leaf for parts in opened for leaf in parts], form


@contextmanager
def _without_effects(module: nn.Module) -> Iterator[None]:
    """Refuse a forward that does more than compute, as a graph would do it once or never."""
    kept = [_Kept(holder) for holder in _holders(module)]
    states, torch_state = _random_states(), torch.get_rng_state()
    try:
        with _ReadOnly():  # type: ignore[no-untyped-call]  # torch's have no types
            yield
    finally:
        new, drew = vars(module).keys() - kept[0].keys, _random_states() != states
        changed = [holder for holder in kept if holder.is_changed()]
        for holder in changed:
            holder.put_back()
        if drew:
            _set_random_states(states, torch_state)
    if any(name.startswith("_tensor_constant") for name in new):
        raise NotTraceableError("forward makes a tensor, which a graph would make once")
    if changed:
        raise NotTraceableError(
            "forward sets attributes or changes what they hold, which a graph would not do again"
        )
    if drew:
        raise NotTraceableError("forward draws random numbers, which a graph would draw once")


class _ReadOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's have no types
    """Refuses what forward does with true tensors, those that the graph does not know, and loses.

    They are attributes that are no buffers, and what it gets from methods such as ``parameters()``.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotTraceableError("forward draws random numbers, which a graph would draw once")
        if func._schema.is_mutable:
            raise NotTraceableError("forward writes into a tensor that is no buffer of its own")
        result = func(*args, **(kwargs or {}))
        if isinstance(result, (bool, int, float, complex)):
            raise NotTraceableError("forward reads a number from a tensor that is no buffer")
        return result


class _Kept:
    """The objects that a container held, in an order that the copy of a set may not have."""

    def __init__(self, holder: Any) -> None:
        self.holder = holder
        self.keys = list(holder)  # the elements, where it is no dictionary
        self.values = list(holder.values()) if isinstance(holder, dict) else []

    def is_changed(self) -> bool:
        """Tell whether it holds other objects now."""
        now = _Kept(self.holder)
        return any(
            len(ours) != len(others) or not all(map(operator.is_, ours, others))
            for ours, others in ((now.keys, self.keys), (now.values, self.values))
        )

    def put_back(self) -> None:
        """Let it hold the same objects again."""
        self.holder.clear()
        if isinstance(self.holder, dict):
            self.holder.update(zip(self.keys, self.values, strict=True))
        elif isinstance(self.holder, set):
            self.holder.update(self.keys)
        else:
            self.holder.extend(self.keys)


def _holders(module: nn.Module) -> list[Any]:
    """Return the attributes of a module and its parts, its own first, and the containers in them.

    An object that is an attribute is looked into as well, but not the objects in it: it may be a
    trainer, which knows everything.
    """
    attributes: list[Any] = [vars(part) for part in module.modules()]
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    objects = [vars(value) for own in attributes for value in own.values() if _is_object(value)]
    held = [value for own in (*map(vars, kinds), *attributes, *objects) for value in own.values()]
    found = {id(holder): holder for holder in (*attributes, *objects)}
    while held:
        value = held.pop()
        if isinstance(value, tuple):
            held += value
        elif isinstance(value, _CONTAINERS) and id(value) not in found:
            found[id(value)] = value
            held += value.values() if isinstance(value, dict) else value
    return list(found.values())


def _is_object(value: object) -> bool:
    """Tell whether a value is one of those objects that may keep others as attributes."""
    return (
        isinstance(getattr(value, "__dict__", None), dict)
        and not callable(value)
        and not isinstance(value, (Tensor, ModuleType))
    )


def _random_states() -> list[Any]:
    """Return the states of what draws random numbers beside tensors, to be compared.

    Of torch the seed alone: draws are refused, and other threads may draw meanwhile.
    """
    states: list[Any] = [random.getstate(), torch.initial_seed()]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        states.append(tree_map(_as_list, numpy.get_state(legacy=False)))
    return states


def _set_random_states(states: list[Any], torch_state: Tensor) -> None:
    random.setstate(states[0])
    torch.set_rng_state(torch_state)
    for state in states[2:]:
        sys.modules["numpy.random"].set_state(state)


def _as_list(leaf: Any) -> Any:
    return leaf.tolist() if hasattr(leaf, "tolist") else leaf


@contextmanager
def _gradients_and_autocast(enabled: bool) -> Iterator[None]:
    before = [torch.is_autocast_enabled(device) for device in _AUTOCAST_DEVICES]
    try:
        with torch.set_grad_enabled(enabled):
            for device in _AUTOCAST_DEVICES:
                torch.set_autocast_enabled(device, enabled)
            yield
    finally:
        for device, was_enabled in zip(_AUTOCAST_DEVICES, before, strict=True):
            torch.set_autocast_enabled(device, was_enabled)


def _torch_modes() -> tuple[object, ...]:
    """Return what torch does with everything that is computed now."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *(torch.is_autocast_enabled(device) for device in _AUTOCAST_DEVICES),
        *(torch.get_autocast_dtype(device) for device in _AUTOCAST_DEVICES),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
