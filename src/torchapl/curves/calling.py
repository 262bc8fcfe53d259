"""Example inputs of a model, in any of the forms that functions of this package take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


def call(model: nn.Module, inputs: Inputs) -> Any:
    """Run the model on a tensor, a tuple of arguments or keyword arguments."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    raise TypeError(
        "example_inputs must be a tensor, a tuple of arguments or a dict of keyword arguments, got "
        f"{type(inputs).__name__}"
    )
