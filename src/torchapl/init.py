"""Starting curves: fixed ones, in place, and the data-driven placing of hinges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torchapl.modules import APL
from torchapl.starts import authors_, has_equal_hinges, leaky_, piecewise_linear_, relu_

__all__ = ["align_", "authors_", "leaky_", "piecewise_linear_", "relu_"]

Batch = Tensor | tuple[Tensor, ...] | list[Tensor] | Mapping[str, Tensor]


@torch.no_grad()
def align_(model: nn.Module, batches: Iterable[Batch]) -> dict[str, int]:
    """Move the free hinges of every unit to where its inputs fall; the functions stay as they are.

    A hinge outside the range of a unit's inputs learns nothing. One pass over ``batches`` collects
    the range of the pre-activations of every unit (mean +- 2 standard deviations, within the
    extremes), and the hinges whose slope is exactly 0, which can be moved without changing the
    function, are spread evenly inside it. So align a model after the starts ``relu_`` and
    ``leaky_`` or after a swap; the authors' random start has no free hinge.

    Args:
        model: Is run in evaluation mode, without gradients; mode, buffers and random state stay.
        batches: A few batches: a tensor; a tuple or list whose first element is the input, as data
            loaders give; or a mapping of keyword arguments.

    Returns:
        How many hinges were moved, by the name of the layer.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), APL(8, num_hinges=3))
        >>> align_(net, [torch.randn(64, 4)])
        {'1': 16}
    """
    if isinstance(batches, Tensor | Mapping):
        raise TypeError(
            f"batches must be an iterable of batches, such as [batch], got a "
            f"{type(batches).__name__}"
        )
    units = {name: module for name, module in model.named_modules() if isinstance(module, APL)}
    ranges = {name: _Range() for name in units}
    # After the unit has seen its input, so that one that does not fit is refused with its reason.
    hooks = [
        unit.register_forward_hook(ranges[name].collect, with_kwargs=True)
        for name, unit in units.items()
    ]
    try:
        with _evaluation(model):
            for batch in batches:
                if isinstance(batch, Mapping):
                    model(**batch)
                else:
                    model(batch if isinstance(batch, Tensor) else batch[0])
    finally:
        for hook in hooks:
            hook.remove()
    return {name: _spread_free_hinges(unit, ranges[name]) for name, unit in units.items()}


class _Range:
    """The running range of the inputs of one layer's units."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    def collect(
        self, unit: APL, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
    ) -> None:
        # (*unit_shape, samples) in double: squares of large float16 values would overflow.
        input = inputs[0] if inputs else named["input"]
        shape = unit.unit_shape
        start = unit.unit_dim % input.dim() if shape else 0
        order = list(range(start, start + len(shape)))
        rest = [dim for dim in range(input.dim()) if dim not in order]
        samples = math.prod(input.shape[dim] for dim in rest)
        if samples == 0:
            return
        x = input.permute(order + rest).reshape(*shape, samples).double()
        low, high = x.aminmax(dim=-1)
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)
        self.count += samples
        self.total = self.total + x.sum(-1)
        self.squares = self.squares + x.square().sum(-1)

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        if self.low is None or self.high is None:
            return None
        mean = torch.as_tensor(self.total) / self.count
        spread = (
            2 * (torch.as_tensor(self.squares) / self.count - mean.square()).clamp(min=0).sqrt()
        )
        return torch.maximum(self.low, mean - spread), torch.minimum(self.high, mean + spread)


def _spread_free_hinges(unit: APL, observed: _Range) -> int:
    bounds = observed.bounds()
    if bounds is None:
        return 0
    low, high = bounds
    free = unit.slope == 0
    place = free.cumsum(0) / (free.sum(0) + 1)
    offset = torch.where(free, low + (high - low) * place, unit.offset.double()).to(unit.offset)
    # Constant inputs, or a range too narrow for the dtype, would make free hinges coincide. Those
    # that stay count as NaN, equal to nothing: their slopes tell them apart.
    coincide = has_equal_hinges(torch.where(free, offset, float("nan")))
    usable = offset.isfinite().all(0) & ~coincide
    moved = free & usable
    unit.offset.copy_(torch.where(moved, offset, unit.offset))
    return int(moved.sum())


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    devices = list({parameter.device for parameter in model.parameters() if parameter.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            model.eval()
            yield
    finally:
        for module, training in modes.items():
            module.training = training
