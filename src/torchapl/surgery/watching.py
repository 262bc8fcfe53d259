"""Stand-ins for calls that torch's function mode does not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch import nn


@contextmanager
def watched_modules(stand_in: Callable[..., Any]) -> Iterator[None]:
    """Call ``stand_in(original, module, *args, **kwargs)`` wherever a module is called."""
    original = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return stand_in(original, module, *args, **kwargs)

    nn.Module.__call__ = call  # type: ignore[method-assign]  # as torch.fx does
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


@contextmanager
def watched_attributes(model: nn.Module, stand_in: Callable[..., Any]) -> Iterator[None]:
    """Call ``stand_in(owner, name, function, *args)`` for functions kept as attributes."""
    kept = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, (FunctionType, BuiltinFunctionType, partial)) and name != "forward"
    ]
    try:
        for module, name, value in kept:
            vars(module)[name] = partial(stand_in, module, name, value)
        yield
    finally:
        for module, name, value in kept:
            vars(module)[name] = value
