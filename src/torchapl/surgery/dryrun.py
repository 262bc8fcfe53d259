"""One forward pass that writes down every activation call and leaves the model as it was."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from torchapl.surgery import functions
from torchapl.surgery.channels import Channels, ChannelTracker

ExampleInputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]

# Frames of torch between a call in forward() and the recorder.
_BETWEEN = tuple(
    str(Path(torch.__file__).parent / file)
    for file in ("overrides.py", "nn/functional.py", "nn/modules/module.py", "_tensor.py")
)


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
    interval: tuple[float, float]
    channels: Channels
    rewires: bool = False  # in place, and the overwritten input is used again


@dataclass
class Invocation:
    """One run of a module's forward: its arguments and its own activation calls in order."""

    owner: nn.Module
    arguments: dict[str, Any] | None  # None where they do not fit the signature
    calls: list[Call] = field(default_factory=list)


@dataclass
class Recording:
    """What a dry run saw."""

    invocations: list[Invocation]
    output: Any


class PlainFunction(nn.Module):
    """A function that is kept as an attribute, in the form of a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input)

    def _get_name(self) -> str:
        function = self.function.func if isinstance(self.function, partial) else self.function
        return str(getattr(function, "__name__", "function"))


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
        # Inputs that an in-place activation has overwritten: using one again is using the result.
        self._overwritten: dict[int, tuple[Tensor, Call]] = {}
        self._paused = 0

    def call_module(
        self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for ``nn.Module.__call__``."""
        if self._paused:
            return original(module, *args, **kwargs)
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
        plain = (
            None if self._paused or not self._stack else self._as_activation(function, args, kwargs)
        )
        if plain is None or self._stack[-1].owner is not owner:
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
        self._check_reuse((args, kwargs))
        function = functions.of_call(func, args, kwargs) if self._stack and args else None
        if function is not None and isinstance(args[0], Tensor):
            in_place = functions.is_in_place(func.__name__, args, kwargs)
            run = partial(_with_input, func, args[1:], kwargs)
            return self._activation(run, function, args[0], in_place)
        result = func(*args, **kwargs)
        layer = self._layers[-1] if self._layers else None
        self._tracker.follow(func, args, kwargs, result, layer)
        return result

    def _enter(
        self,
        run: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        registered = id(module) in self._registered
        if registered:
            self._stack.append(Invocation(module, _bind(module, args, kwargs)))
            self.invocations.append(self._stack[-1])
        self._layers.append(module)
        try:
            result = run(*args, **kwargs)
        finally:
            self._layers.pop()
            if registered:
                self._stack.pop()
        self._check_reuse(result)
        return result

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
            )
            invocation.calls.append(call)
            output = run(input)
            if in_place:
                # A second tensor of the same values tells the result from the overwritten input.
                output = output.view_as(output)
                self._overwritten[id(input)] = (input, call)
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
            with self._pause():
                self._candidates[id(candidate)] = (candidate, _examine(candidate, args[0]))
        return self._candidates[id(candidate)][1]

    def _check_reuse(self, values: object) -> None:
        if self._overwritten:
            for leaf in tree_leaves(values):
                if id(leaf) in self._overwritten:
                    self._overwritten[id(leaf)][1].rewires = True

    @contextmanager
    def _pause(self) -> Iterator[None]:
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1


def record(model: nn.Module, example_inputs: ExampleInputs) -> Recording:
    """Run the model once in evaluation mode and return its activation calls."""
    recorder = Recorder(model)
    original = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return recorder.call_module(original, module, *args, **kwargs)

    with marked_attributes(model, recorder), mock.patch.object(nn.Module, "__call__", call):
        with untouched(model), recorder:
            output = run_model(model, example_inputs)
    return Recording(recorder.invocations, output)


def run_model(model: nn.Module, example_inputs: ExampleInputs) -> Any:
    """Call the model on copies of the inputs: it may overwrite them."""
    inputs = tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, example_inputs
    )
    if isinstance(inputs, Tensor):
        return model(inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    raise TypeError(
        "example_inputs must be a tensor, a tuple of arguments or a dict of keyword arguments, got "
        f"{type(example_inputs).__name__}"
    )


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients; put back modes, buffers and random state at the end."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    accelerators = [device for device in devices if device.type not in ("cpu", "meta")]
    kind = accelerators[0].type if accelerators else "cuda"
    try:
        with torch.random.fork_rng(accelerators, device_type=kind), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                # copy_ only where needed: it would count as a change of the buffer's version.
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


@contextmanager
def marked_attributes(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let the recorder see calls of plain functions that modules keep as attributes."""
    kept: list[tuple[nn.Module, str, Any]] = []
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, (FunctionType, BuiltinFunctionType, partial)):
                kept.append((module, name, value))
    try:
        for module, name, value in kept:
            vars(module)[name] = partial(recorder.call_attribute, module, name, value)
        yield
    finally:
        for module, name, value in kept:
            vars(module)[name] = value


def _with_input(
    func: Callable[..., Any], rest: tuple[Any, ...], kwargs: dict[str, Any], input: Tensor
) -> Any:
    return func(input, *rest, **kwargs)


def _examine(candidate: Any, input: Tensor) -> nn.Module | None:
    if isinstance(candidate, nn.PReLU):
        return candidate
    if isinstance(candidate, nn.Module):
        state = (*candidate.parameters(), *candidate.buffers(), *candidate.children())
        if state or not functions.is_elementwise(functions.in_both_modes(candidate), input):
            return None
        return candidate
    known = functions.of_call(candidate, (input,), {})
    if known is not None:
        return known
    return PlainFunction(candidate) if functions.is_elementwise(candidate, input) else None


def _interval(input: Tensor) -> tuple[float, float]:
    """Return the smallest and largest finite value."""
    finite = input[input.isfinite()]
    if finite.numel() == 0:
        return (-1.0, 1.0)
    low, high = finite.aminmax()
    return (float(low), float(high))


def _location() -> tuple[str, int, int]:
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if (
            file not in _BETWEEN
            and file != __file__
            and not file.endswith(("contextlib.py", "mock.py"))
        ):
            break
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
    return dict(bound.arguments)
