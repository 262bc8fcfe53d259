"""Optimisers move curves by the slopes of their segments, and see nothing of it.

A hinge slope bends everything to its left: when an optimiser moves all S of them by a step e, the
far left of the curve moves by about S * R * e, R the width of the range that the hinges cover. So
curves with many hinges break at rates that a fixed activation survives. The slope d_s of the
segment left of hinge s is a sum of hinge slopes; for hinges in ascending order

    d_s = -(a_s + a_{s+1} + ... + a_S),        a_s = d_{s+1} - d_s,        d_{S+1} = 0.

In these coordinates the same step moves the curve by R * e however many hinges it has, and each of
them changes the derivative of one segment only.

:func:`torchapl.parameter_groups` marks the group of the slopes, and two hooks that every optimiser
of torch calls around its step do the rest: before it, the gradients of marked parameters become
those of the segment slopes; after it, the change that the optimiser made is taken as one of segment
slopes. So its moments live in segment slopes, while ``slope`` and its gradient are, outside of a
step, what they always are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

# Keys of a marked group: the unit in which its segment slopes are measured, and their decay.
UNIT_KEY, DECAY_KEY = "segment_unit", "slope_decay"
# A step then moves a curve about as far as it moves a bias: hinges cover a range of about 6, and
# half of it lies right of a typical input.
UNIT = 0.3


def segment_settings(decay: float) -> dict[str, float]:
    """Return what marks a group of an optimiser as slopes that move by segments.

    Args:
        decay: Of the slopes. The optimiser's own decay would take them for segments, so it is 0,
            and that of the slopes goes into their gradient.

    Example:
        >>> segment_settings(decay=0.001)
        {'segment_unit': 0.3, 'slope_decay': 0.001, 'weight_decay': 0.0}
    """
    return {UNIT_KEY: UNIT, DECAY_KEY: decay, "weight_decay": 0.0}


class _Visit(NamedTuple):
    """A parameter as it was before the step."""

    parameter: Tensor
    unit: float
    slope: Tensor
    grad: Tensor


_visits: WeakKeyDictionary[Optimizer, list[_Visit]] = WeakKeyDictionary()


def to_segments(slope: Tensor) -> Tensor:
    """Return the slopes of the segments left of each hinge, for hinges in ascending order.

    Example:
        >>> to_segments(torch.tensor([-0.5, -0.25]))
        tensor([0.7500, 0.2500])
    """
    return -slope.flip(0).cumsum(0).flip(0)


def to_hinges(segments: Tensor) -> Tensor:
    """Return the hinge slopes of curves whose segments have these slopes.

    Example:
        >>> to_hinges(torch.tensor([0.75, 0.25]))
        tensor([-0.5000, -0.2500])
    """
    return segments.diff(dim=0, append=torch.zeros_like(segments[:1]))


def _transposed(gradient: Tensor) -> Tensor:
    """Return the gradient by segment slopes, of that by hinge slopes."""
    return -gradient.diff(dim=0, prepend=torch.zeros_like(gradient[:1]))


def _whole(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Apply a function along the hinges, which FSDP shards. There are few of them."""
    if not hasattr(values, "device_mesh"):
        return function(values)
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = values
    result = function(sharded.full_tensor())
    return distribute_tensor(result, sharded.device_mesh, sharded.placements, src_data_rank=None)


@torch.no_grad()
def _turn_gradients(optimizer: Optimizer) -> None:
    visits = _visits.setdefault(optimizer, [])
    for group in optimizer.param_groups:
        if UNIT_KEY not in group:
            continue
        unit, decay = group[UNIT_KEY], group.get(DECAY_KEY, 0.0)
        for parameter in group["params"]:
            grad = parameter.grad
            # An optimiser that calls another's step comes here twice.
            if grad is None or hasattr(grad, "_torchapl_turned"):
                continue
            visits.append(_Visit(parameter, unit, parameter.clone(), grad))
            honest = grad + decay * parameter if decay else grad
            parameter.grad = unit * _whole(_transposed, honest)
            parameter.grad._torchapl_turned = True


@torch.no_grad()
def _turn_changes(optimizer: Optimizer) -> None:
    for parameter, unit, slope, grad in _visits.pop(optimizer, []):
        change = _whole(to_hinges, parameter - slope)
        parameter.copy_(slope + unit * change)
        parameter.grad = grad


def _before_step(
    optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    if not any(UNIT_KEY in group for group in optimizer.param_groups):
        return None
    if isinstance(optimizer, LBFGS):
        raise TypeError("LBFGS finds its own metric: give it model.parameters()")
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        _turn_gradients(optimizer)
        return None
    # The closure computes the gradients, within the step.
    inside = _then_turn(optimizer, closure)
    if len(args) > 1:
        return (args[0], inside, *args[2:]), kwargs
    return args, kwargs | {"closure": inside}


def _then_turn(optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        loss = closure()
        _turn_gradients(optimizer)
        return loss

    return call


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _turn_changes(optimizer)


register_optimizer_step_pre_hook(_before_step)
register_optimizer_step_post_hook(_after_step)
