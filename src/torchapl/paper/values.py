"""Values read from text by their type: what ``--set`` and the texts of activations are made of."""

from __future__ import annotations

import ast
import types
import typing
from typing import Literal


def read_value(text: str, hint: object, key: str) -> object:
    """Read ``text`` as a value of type ``hint``; ``key`` is for the message.

    Example:
        >>> read_value("0.5", float, "optim.lr"), read_value("none", int | None, "data.limit")
        (0.5, None)
    """
    if hint is str:
        return text
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if text in arguments:
            return text
        raise ValueError(f"{key} must be one of {', '.join(map(str, arguments))}, got {text!r}")
    if origin in (types.UnionType, typing.Union):
        if type(None) in arguments and text.lower() == "none":
            return None
        hint = next(argument for argument in arguments if argument is not type(None))
        return read_value(text, hint, key)
    try:
        # bool is an int to Python, but epochs=True is a mistake.
        if hint is int:
            return int(text)
        if hint is float:
            return float(text)
        if origin is tuple:
            return tuple((int(step), float(factor)) for step, factor in ast.literal_eval(text))
    # Deeply nested text exhausts the parser's memory.
    except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
        pass
    raise ValueError(f"{key} must be {_describe(hint)}, got {text!r}")


def _describe(hint: object) -> str:
    if hint is int:
        return "a whole number"
    if hint is float:
        return "a number"
    if hint is bool:
        return "true or false"
    if typing.get_origin(hint) is tuple:
        return "pairs such as ((60000, 1.0), (80000, 0.1))"
    return "set part by part"
