"""One forward pass that writes down every activation call and leaves the model as it was."""

from __future__ import annotations

import inspect
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from torchapl.modules import Unit
from torchapl.surgery import functions
from torchapl.surgery.channels import Channels, ChannelTracker
from torchapl.watch import Inputs, call, same_random_state, untouched

# Frames of torch between a call in forward() and the recorder.
_TORCH_FILES = ("overrides.py", "nn/functional.py", "nn/modules/module.py", "_tensor.py")
_BETWEEN = {__file__, *(str(Path(torch.__file__).parent / file) for file in _TORCH_FILES)}
# Stands for a tensor in recorded arguments: those of all modules at once would fill the memory.
_TENSOR = torch.empty(0)
# Recording and tracing stand in for methods of every module, whichever thread calls them.
ONE_AT_A_TIME = threading.RLock()
_LOOK_AT_SHAPE = ("__get__", "size", "dim", "numel", "stride")


@dataclass
class Call:
    """One activation call."""

    owner: nn.Module
    function: nn.Module  # computes it; the called module itself if there is one
    module: nn.Module | None
    attribute: str | None  # where the owner keeps the function, if it is not a module
    location: tuple[str, int, int]  # file, line, instruction
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    interval: tuple[float, float] | None  # of its finite inputs, None if there are none
    channels: Channels
    order: int  # counts the calls of the run
    rewires: bool = False  # in place, and the overwritten input is used again
    escapes: bool = False  # it is used again by another module, which cannot be told


@dataclass
class Invocation:
    """One run of a module's forward: its arguments and its own activation calls in order."""

    owner: nn.Module
    arguments: dict[str, Any] | None  # without tensors; None where they do not fit the signature
    calls: list[Call] = field(default_factory=list)


@dataclass
class Recording:
    """What a dry run saw."""

    invocations: list[Invocation]
    output: Any


class OverwrittenInputs:
    """Inputs that an in-place activation has overwritten: using one again is using the result.

    Tells a call whether its input is used again, and by whom.
    """

    def __init__(self, tracker: ChannelTracker) -> None:
        self._tracker = tracker
        self._calls: dict[int, tuple[weakref.ref[Tensor], Call]] = {}

    def note(self, input: Tensor, call: Call) -> None:
        """Remember that a call has overwritten its input."""
        self._calls[id(input)] = (weakref.ref(input), call)

    def check(self, values: object, reader: nn.Module | None) -> None:
        """Mark the calls whose input is among the values that a module's forward uses."""
        for leaf in tree_leaves(values) if self._calls else ():
            call = self._call_of(leaf)
            if call is not None and call.owner is reader:
                call.rewires = True
            elif call is not None:
                call.escapes = True

    def renewed(self, values: Any) -> Any:
        """Return what goes from module to module, with results for overwritten inputs."""
        if not any(self._call_of(leaf) for leaf in tree_leaves(values) if self._calls):
            return values
        return tree_map(self._renewed, values)

    def _renewed(self, leaf: Any) -> Any:
        if self._call_of(leaf) is None:
            return leaf
        # Another tensor of the same values, which is not known as overwritten.
        view = leaf.view_as(leaf)
        self._tracker.rename(leaf, view)
        return view

    def _call_of(self, leaf: object) -> Call | None:
        reference, call = self._calls.get(id(leaf), (None, None))
        return call if reference is not None and reference() is leaf else None


class Recorder(TorchFunctionMode):
    """Sees every torch function and, through ``nn.Module.__call__``, every module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.invocations: list[Invocation] = []
        self._registered = {id(module) for module in model.modules()}
        self._stack: list[Invocation] = []
        self._layers: list[nn.Module] = []
        self._tracker = ChannelTracker()
        self._candidates: dict[int, tuple[object, nn.Module | None]] = {}
        self._overwritten = OverwrittenInputs(self._tracker)
        self._count = 0
        self._paused = 0
        self._thread = threading.get_ident()

    def call_module(
        self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for ``nn.Module.__call__``."""
        if self._looks_away():
            return original(module, *args, **kwargs)
        self._check_reuse((args, kwargs))
        if type(module) in functions.KINDS:
            args, kwargs = functions.positional(args, kwargs)
        if isinstance(module, Unit):
            return self._unit(partial(original, module), *args, **kwargs)
        function = self._as_activation(module, args, kwargs)
        if function is not None and self._stack:
            in_place = bool(getattr(module, "inplace", False))
            run = partial(original, module)
            return self._activation(run, function, args[0], in_place, module=module)
        return self._enter(partial(original, module), module, args, kwargs)

    def call_attribute(
        self, owner: nn.Module, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for a function that a module keeps as an attribute."""
        if self._looks_away() or not self._stack or self._stack[-1].owner is not owner:
            return function(*args, **kwargs)
        self._check_reuse((args, kwargs))
        plain = self._as_activation(function, args, kwargs)
        if plain is None:
            return function(*args, **kwargs)
        return self._activation(function, plain, args[0], False, attribute=name)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        if func.__name__ not in _LOOK_AT_SHAPE:
            self._check_reuse((args, kwargs))
        function = functions.of_call(func, args, kwargs) if self._stack else None
        if function is not None:
            (input, *rest), named = functions.positional(args, kwargs)
            in_place = functions.is_in_place(func.__name__, args, kwargs)
            run = partial(_with_input, func, rest, named)
            return self._activation(run, function, input, in_place)
        result = func(*args, **kwargs)
        layer = self._layers[-1] if self._layers else None
        self._tracker.follow(func, args, kwargs, result, layer)
        return result

    def _unit(self, run: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """Run the units of an earlier swap without looking into them."""
        with self._pause():
            output = run(*args, **kwargs)
        self._tracker.rename(functions.positional(args, kwargs)[0][0], output)
        return output

    def _enter(
        self,
        run: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        registered = id(module) in self._registered
        if registered:
            args, kwargs = self._renewed((args, kwargs))
            self._stack.append(Invocation(module, _bind(module, args, kwargs)))
            self.invocations.append(self._stack[-1])
        self._layers.append(module)
        try:
            result = run(*args, **kwargs)
            self._check_reuse(result)
        finally:
            self._layers.pop()
            if registered:
                self._stack.pop()
        return self._renewed(result) if registered else result

    def _activation(
        self,
        run: Callable[[Tensor], Tensor],
        function: nn.Module,
        input: Tensor,
        in_place: bool,
        *,
        module: nn.Module | None = None,
        attribute: str | None = None,
    ) -> Tensor:
        invocation = self._stack[-1]
        with self._pause():
            call = Call(
                owner=invocation.owner,
                function=function,
                module=module,
                attribute=attribute,
                location=_location(),
                shape=input.shape,
                dtype=input.dtype,
                device=input.device,
                interval=_interval(input),
                channels=self._tracker.find(input),
                order=self._count,
            )
            self._count += 1
            invocation.calls.append(call)
            output = run(input)
            if in_place:
                # A second tensor of the same values tells the result from the overwritten input.
                output = output.view_as(output)
                self._overwritten.note(input, call)
            self._tracker.rename(input, output)
        return output

    def _as_activation(
        self, candidate: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> nn.Module | None:
        """Return the module that stands for a called module or function if it is an activation."""
        if (
            kwargs
            or len(args) != 1
            or not isinstance(args[0], Tensor)
            or not args[0].is_floating_point()
        ):
            return None
        if id(candidate) not in self._candidates:
            with self._pause(), same_random_state([args[0].device]):
                self._candidates[id(candidate)] = (candidate, _examine(candidate, args[0]))
        return self._candidates[id(candidate)][1]

    def _looks_away(self) -> bool:
        """Tell whether a call is one of the recorder's own or of another thread."""
        return self._paused > 0 or threading.get_ident() != self._thread

    def _check_reuse(self, values: object) -> None:
        self._overwritten.check(values, self._stack[-1].owner if self._stack else None)

    def _renewed(self, values: Any) -> Any:
        with self._pause():
            return self._overwritten.renewed(values)

    @contextmanager
    def _pause(self) -> Iterator[None]:
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1


def record(model: nn.Module, example_inputs: Inputs) -> Recording:
    """Run the model once in evaluation mode and return its activation calls."""
    recorder = Recorder(model)
    attributes = _seen_attributes(model, recorder.call_attribute)
    with ONE_AT_A_TIME, attributes, _seen_modules(recorder.call_module), untouched(model), recorder:
        output = call(model, example_inputs)
    return Recording(recorder.invocations, output)


@contextmanager
def _seen_modules(stand_in: Callable[..., Any]) -> Iterator[None]:
    """Call ``stand_in(original, module, *args, **kwargs)`` wherever a module is called."""
    original = nn.Module.__call__

    def call_module(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return stand_in(original, module, *args, **kwargs)

    nn.Module.__call__ = call_module  # type: ignore[method-assign]  # as torch.fx does
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


@contextmanager
def _seen_attributes(model: nn.Module, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Call ``stand_in(owner, name, function, *args)`` for functions that are attributes."""
    attributes = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, (FunctionType, BuiltinFunctionType, partial)) and name != "forward"
    ]
    try:
        for module, name, value in attributes:
            vars(module)[name] = partial(stand_in, module, name, value)
        yield
    finally:
        for module, name, value in attributes:
            vars(module)[name] = value


def _with_input(
    func: Callable[..., Any], rest: list[Any], kwargs: dict[str, Any], input: Tensor
) -> Any:
    return func(input, *rest, **kwargs)


def _examine(candidate: Any, input: Tensor) -> nn.Module | None:
    if isinstance(candidate, nn.Module):
        if isinstance(candidate, nn.PReLU) or type(candidate) in functions.KINDS:
            return candidate
        state = (*candidate.parameters(), *candidate.buffers(), *candidate.children())
        if state or not functions.is_elementwise(functions.in_both_modes(candidate), input):
            return None
        return candidate
    known = functions.of_call(candidate, (input,), {})
    if known is not None:
        return known
    return (
        functions.PlainFunction(candidate) if functions.is_elementwise(candidate, input) else None
    )


def _interval(input: Tensor) -> tuple[float, float] | None:
    if input.is_complex() or input.numel() == 0:
        return None
    low, high = map(float, input.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    finite = input[input.isfinite()]
    if finite.numel() == 0:
        return None
    low, high = map(float, finite.aminmax())
    return low, high


def _location() -> tuple[str, int, int]:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_lasti)


def _bind(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    return {
        name: tree_map(lambda leaf: _TENSOR if isinstance(leaf, Tensor) else leaf, value)
        for name, value in bound.arguments.items()
    }
