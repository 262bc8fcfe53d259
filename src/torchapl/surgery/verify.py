"""Two more runs: is everything connected as before, and how much did the outputs change?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchapl.modules import Unit
from torchapl.surgery.apply import replaced_by
from torchapl.watch import Inputs, call, untouched


class Difference(NamedTuple):
    """Of the outputs of a model in two runs."""

    largest: float
    size: float  # of the largest output in the first run
    rounding: float  # the part of it that may be rounding alone


def check_outputs(outputs: Any) -> None:
    """Refuse outputs that say nothing about a model: without a single finite number."""
    tensors = _tensors(outputs)
    if tensors and not any(bool(tensor.isfinite().any()) for tensor in tensors):
        what = "empty" if all(tensor.numel() == 0 for tensor in tensors) else "NaN or infinite"
        raise ValueError(
            f"with these example_inputs all outputs of the model are {what}: give inputs that are "
            "typical of the data"
        )


def verify(
    model: nn.Module, example_inputs: Inputs, before: Any, units: Mapping[str, Unit]
) -> Difference:
    """Return the change of the outputs that the units cause.

    Raises:
        RuntimeError: If the model does not compute the same with the old functions in the units'
            places, or does not call a unit.
    """
    called: Counter[str] = Counter()
    with untouched(model), _as_before(units, called):
        wired = call(model, example_inputs)
    unused = [name for name in units if not called[name]]
    if unused:
        raise RuntimeError(
            f"{unused[0]} is not called after the swap; the model was put back. Leave it out with "
            "match"
        )
    change = _difference(before, wired)
    if change.largest > change.rounding * change.size:
        raise RuntimeError(
            f"the outputs changed by {change.largest:.3g} although every function was kept; the "
            "model was put back. It may read a tensor that an in-place activation overwrote "
            "through a view, or not be deterministic"
        )
    with untouched(model):
        after = call(model, example_inputs)
    return _difference(before, after)


@contextmanager
def _as_before(units: Mapping[str, Unit], called: Counter[str]) -> Iterator[None]:
    """Let every unit compute what it replaced, and count its calls."""

    def make(name: str, old: Any) -> Any:
        def forward(input: Tensor) -> Tensor:
            called[name] += 1
            function = old.forward if isinstance(old, nn.Module) else old
            result: Tensor = function(input.clone())
            return result

        return forward

    try:
        for name, unit in units.items():
            vars(unit)["forward"] = make(name, replaced_by(unit))
        yield
    finally:
        for unit in units.values():
            vars(unit).pop("forward", None)


def _difference(before: Any, after: Any) -> Difference:
    firsts, seconds = _tensors(before), _tensors(after)
    shapes = [[tensor.shape for tensor in tensors] for tensors in (firsts, seconds)]
    if type(before) is not type(after) or shapes[0] != shapes[1]:
        return Difference(float("inf"), 1.0, 0.0)
    largest, size, rounding = 0.0, 0.0, 1e-4
    for first, second in zip(firsts, seconds, strict=True):
        if first.numel() == 0:
            continue
        gap = (first.double() - second.double()).abs()
        # Infinities and NaN in the same places are no difference, elsewhere they are infinite.
        same = (first == second) | (first.isnan() & second.isnan())
        gap = torch.where(same, 0.0, gap.nan_to_num(torch.inf, torch.inf))
        largest = max(largest, float(gap.max()))
        size = max(size, float(first.double().nan_to_num(0.0, 0.0, 0.0).abs().max()))
        if first.dtype in (torch.float16, torch.bfloat16):
            rounding = 2e-2
    return Difference(largest, size, rounding)


def _tensors(value: Any, depth: int = 3) -> list[Tensor]:
    """Return the tensors in a model's output, also those in attributes of an object."""
    tensors: list[Tensor] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            tensors.append(torch.view_as_real(leaf) if leaf.is_complex() else leaf)
        elif depth and hasattr(leaf, "__dict__") and not callable(leaf):
            # A dataclass or a distribution.
            tensors += _tensors(dict(vars(leaf)), depth - 1)
    return tensors
