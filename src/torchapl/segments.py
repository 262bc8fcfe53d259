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
from torch.nn import Parameter
from torch.optim import LBFGS, Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from torchapl.form import whole
from torchapl.ops import extension
from torchapl.ops.schema import segment_gradients_operator, segment_step_operator

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
    """The parameters of a group, their slopes before the step, the gradients before and in it."""

    parameters: list[Tensor]
    unit: float
    before: list[Tensor] | Tensor
    grads: list[Tensor]
    turned: list[Tensor]


_visits: WeakKeyDictionary[Optimizer, list[_Visit]] = WeakKeyDictionary()


# All parameters of a group at once, and on the CPU in one operator before the step and one after
# it: as operations on single tensors they took a tenth of the step of a small network.
def _turned(
    slopes: list[Tensor], grads: list[Tensor], unit: float, decay: float | Tensor
) -> tuple[list[Tensor], list[Tensor] | Tensor]:
    """Return the gradients by segment slopes, and a copy of the slopes in a form for _move_."""
    if _has_operators(slopes, grads):
        with torch._C._AutoDispatchBelowAutograd():
            turned, before = segment_gradients_operator(grads, slopes, unit, float(decay))
        return turned, before
    with torch.no_grad():
        honest = _decayed(slopes, grads, decay)
        turned = list(torch._foreach_mul(honest, -unit))
        torch._foreach_add_([t[1:] for t in turned], [grad[:-1] for grad in honest], alpha=unit)
        return turned, [slope.detach().clone() for slope in slopes]


def _decayed(slopes: list[Tensor], grads: list[Tensor], decay: float | Tensor) -> list[Tensor]:
    if isinstance(decay, Tensor):
        # As alpha its value would have to come from the device.
        pulls = [slope * decay.to(slope.device, non_blocking=True) for slope in slopes]
        return list(torch._foreach_add(grads, pulls))
    return list(torch._foreach_add(grads, slopes, alpha=decay)) if decay else grads


def _move_(slopes: list[Tensor], before: list[Tensor] | Tensor, unit: float) -> None:
    """Take the change of the slopes since then for one of segment slopes."""
    if isinstance(before, Tensor):
        with torch._C._AutoDispatchBelowAutograd():
            segment_step_operator(slopes, before, unit)
        torch.autograd.graph.increment_version(slopes)
        return
    with torch.no_grad():
        changes = torch._foreach_sub(slopes, before)
        moved = torch._foreach_add(before, changes, alpha=-unit)
        torch._foreach_add_([m[:-1] for m in moved], [change[1:] for change in changes], alpha=unit)
        torch._foreach_copy_(slopes, moved)


def _has_operators(slopes: list[Tensor], grads: list[Tensor]) -> bool:
    return (
        extension.has_kernels()
        and all((type(slope) is Parameter or type(slope) is Tensor) for slope in slopes)
        and all(type(grad) is Tensor for grad in grads)
        and all(slope.is_cpu for slope in slopes)
        and not torch.compiler.is_compiling()
    )


# FSDP shards along the hinges, hence whole tensors; they are few.
def _whole(tensors: list[Tensor]) -> list[Tensor]:
    return [whole(t.detach()) if hasattr(t, "full_tensor") else t for t in tensors]


def _sharded_like(values: Tensor, like: Tensor) -> Tensor:
    if not hasattr(like, "device_mesh"):
        return values
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(values, sharded.device_mesh, sharded.placements, src_data_rank=None)


def _turn_gradients(optimizer: Optimizer) -> None:
    visits = _visits.setdefault(optimizer, [])
    # A step that failed has left its visits, which are over if there are other gradients by now.
    visits[:] = [visit for visit in visits if _goes_on(visit)]
    for group in optimizer.param_groups:
        if UNIT_KEY not in group:
            continue
        # An optimiser that calls another's step comes here twice.
        parameters = [
            parameter
            for parameter in group["params"]
            if parameter.grad is not None and not hasattr(parameter.grad, "_torchapl_turned")
        ]
        if not parameters:
            continue
        unit, grads = group[UNIT_KEY], [parameter.grad for parameter in parameters]
        decay = _decay_of(group, getattr(optimizer, "grad_scale", None))
        turned, before = _turned(_whole(parameters), _whole(grads), unit, decay)
        turned = [*map(_sharded_like, turned, parameters)]
        visits.append(_Visit(parameters, unit, before, grads, turned))
        for parameter, grad in zip(parameters, turned, strict=True):
            parameter.grad = grad
            grad._torchapl_turned = True  # type: ignore[attr-defined]  # a mark of our own


def _decay_of(group: dict[str, Any], grad_scale: Tensor | None) -> float | Tensor:
    """Return the decay that, as a part of the gradient, the step takes for its own decay."""
    decay: float = group.get(DECAY_KEY, 0.0)
    # The step turns gradients around, and fused ones divide them by the scale of a GradScaler.
    if group.get("maximize", False):
        decay = -decay
    return decay if grad_scale is None or not decay else decay * grad_scale


def _goes_on(visit: _Visit) -> bool:
    return all(p.grad is turned for p, turned in zip(visit.parameters, visit.turned, strict=True))


def _turn_changes(optimizer: Optimizer) -> None:
    for parameters, unit, before, grads, _ in _visits.pop(optimizer, []):
        slopes = _whole(parameters)
        _move_(slopes, before, unit)
        for parameter, slope, grad in zip(parameters, slopes, grads, strict=True):
            if slope is not parameter:
                with torch.no_grad():
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
