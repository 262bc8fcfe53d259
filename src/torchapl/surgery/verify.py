"""Two more runs: is everything connected as before, and how much did the outputs change?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from torchapl.modules import Unit
from torchapl.surgery.apply import replaced_by
from torchapl.watch import Difference, Inputs, call, difference, tensors_of, untouched


def check_outputs(outputs: Any) -> None:
    """Refuse outputs that say nothing about a model: without a single finite number."""
    tensors = tensors_of(outputs)
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
    change = difference(before, wired)
    if change.largest > change.rounding * change.size:
        raise RuntimeError(
            f"the outputs changed by {change.largest:.3g} although every function was kept; the "
            "model was put back. It may read a tensor that an in-place activation overwrote "
            "through a view, or not be deterministic"
        )
    with untouched(model):
        after = call(model, example_inputs)
    return difference(before, after)


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
