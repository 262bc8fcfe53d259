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

from torchapl.form import whole

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
    """The parameters of a group as they were before the step."""

    parameters: list[Tensor]
    unit: float
    slopes: list[Tensor]
    grads: list[Tensor]


_visits: WeakKeyDictionary[Optimizer, list[_Visit]] = WeakKeyDictionary()


def _turned(grads: list[Tensor], unit: float) -> list[Tensor]:
    """Return the gradients by segment slopes, of those by hinge slopes."""
    turned = list(torch._foreach_mul(grads, -unit))
    torch._foreach_add_([t[1:] for t in turned], [grad[:-1] for grad in grads], alpha=unit)
    return turned


def _moved(slopes: list[Tensor], changes: list[Tensor], unit: float) -> list[Tensor]:
    """Return the hinge slopes after changes of segment slopes."""
    moved = list(torch._foreach_add(slopes, changes, alpha=-unit))
    torch._foreach_add_([m[:-1] for m in moved], [change[1:] for change in changes], alpha=unit)
    return moved


def _sharded_like(values: Tensor, like: Tensor) -> Tensor:
    if not hasattr(like, "device_mesh"):
        return values
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(values, sharded.device_mesh, sharded.placements, src_data_rank=None)


# All parameters of a group at once: one by one, a dozen small operations for each of them took a
# tenth of the step of a small network. FSDP shards along the hinges, hence whole tensors; they are
# few.
@torch.no_grad()
def _turn_gradients(optimizer: Optimizer) -> None:
    visits = _visits.setdefault(optimizer, [])
    for group in optimizer.param_groups:
        if UNIT_KEY not in group:
            continue
        unit, decay = group[UNIT_KEY], group.get(DECAY_KEY, 0.0)
        # An optimiser that calls another's step comes here twice.
        parameters = [
            parameter
            for parameter in group["params"]
            if parameter.grad is not None and not hasattr(parameter.grad, "_torchapl_turned")
        ]
        if not parameters:
            continue
        grads = [parameter.grad for parameter in parameters]
        visits.append(_Visit(parameters, unit, [p.detach().clone() for p in parameters], grads))
        honest = torch._foreach_add(grads, parameters, alpha=decay) if decay else grads
        for parameter, turned in zip(
            parameters, _turned([whole(grad) for grad in honest], unit), strict=True
        ):
            parameter.grad = _sharded_like(turned, parameter)
            parameter.grad._torchapl_turned = True


@torch.no_grad()
def _turn_changes(optimizer: Optimizer) -> None:
    for parameters, unit, slopes, grads in _visits.pop(optimizer, []):
        changes = torch._foreach_sub(parameters, slopes)
        moved = _moved([whole(s) for s in slopes], [whole(c) for c in changes], unit)
        for parameter, slope, grad in zip(parameters, moved, grads, strict=True):
            parameter.copy_(_sharded_like(slope, parameter))
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
