"""Training helpers: curves have a learning rate and a weight decay of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from torchapl.form import whole
from torchapl.modules import APL, inner_unit
from torchapl.segments import segment_settings
from torchapl.watch import named_units

Steps = Literal["segments", "slopes"]
_Tensor = TypeVar("_Tensor", bound=Tensor)


def parameter_groups(
    model: nn.Module,
    *,
    lr: float | None = None,
    weight_decay: float | None = None,
    curve_lr: float | None = None,
    curve_decay: float = 0.0,
    steps: Steps = "segments",
) -> list[dict[str, Any]]:
    """Split the trainable parameters into weights, slopes and offsets, for any torch optimiser.

    Slopes move by the slopes of the segments between hinges, see :mod:`torchapl.segments`: curves
    then survive larger rates, however many hinges they have.

    Args:
        model: Holds :class:`APL` units somewhere.
        lr: Learning rate of the weights; the optimiser's own by default.
        weight_decay: Decay of everything but the curves; the optimiser's own by default.
        curve_lr: Learning rate of the curves; ``lr`` by default.
        curve_decay: Decay of slopes and offsets, whatever that of the weights; the paper's is
            0.001.
        steps: ``"slopes"`` moves every hinge slope by itself, as the paper's authors did; also for
            optimisers that keep copies of parameters, and for LBFGS.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), APL(8))
        >>> groups = parameter_groups(model, lr=0.1, weight_decay=5e-4)
        >>> [len(group["params"]) for group in groups]
        [2, 1, 1]
        >>> optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)

        What is not given comes from the optimiser:

        >>> optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, weight_decay=0.05)
        >>> [group["weight_decay"] for group in optimizer.param_groups]
        [0.05, 0.0, 0.0]
    """
    if steps not in get_args(Steps):
        raise ValueError(f"steps must be 'segments' or 'slopes', got {steps!r}")
    curves = list(curve_parameters(model))
    slopes = _once(_own_slopes(model)) if steps == "segments" else []
    weights = _without(model.parameters(), curves)
    rate = lr if curve_lr is None else curve_lr
    groups = [
        _group(weights, lr=lr, weight_decay=weight_decay),
        _group(slopes, lr=rate, **segment_settings(curve_decay)),
        _group(_without(curves, slopes), lr=rate, weight_decay=curve_decay),
    ]
    return [group for group in groups if group["params"]]


def curve_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield every slope and offset of the model once.

    Example:
        >>> sum(p.numel() for p in curve_parameters(nn.Sequential(APL(8, 2), nn.Linear(8, 2))))
        32
    """
    seen: set[int] = set()
    for unit in _units(model):
        # Not slope and offset: under torch.nn.utils.parametrize those are computed from parameters.
        for parameter in unit.parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def l2_penalty(model: nn.Module, factor: float = 1e-3) -> Tensor:
    r"""Return the paper's penalty :math:`\frac{1}{2} \lambda \sum (a^2 + b^2)` over all curves.

    To be added to the loss where the optimiser's own decay (``curve_decay``) is not used.

    Example:
        >>> model = APL(3, num_hinges=1, init="leaky")
        >>> print(f"{l2_penalty(model, factor=1.0).item():.5f}")  # 3 * 0.25 ** 2 / 2
        0.09375
    """
    values = _once(value for unit in _units(model) for value in (unit.slope, unit.offset))
    return 0.5 * factor * _total([value.square().sum() for value in values])


def slope_penalty(model: nn.Module) -> Tensor:
    r"""Return :math:`\sum |a_s|` over all units: the total variation of their derivatives.

    Added to the loss with a factor it favours curves with few bends: many slopes become nearly 0.

    Example:
        >>> model = APL(3, num_hinges=1, init="leaky")
        >>> print(f"{slope_penalty(model).item():.2f}")  # 3 * 0.25
        0.75
    """
    return _total([slope.abs().sum() for slope in _once(unit.slope for unit in _units(model))])


def _own_slopes(model: nn.Module) -> Iterator[nn.Parameter]:
    for unit in _units(model):
        # Under torch.nn.utils.parametrize the slope is computed from a parameter of another shape.
        if isinstance(unit.slope, nn.Parameter):
            yield unit.slope


def _group(parameters: Iterable[nn.Parameter], **settings: float | None) -> dict[str, Any]:
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    given = {name: value for name, value in settings.items() if value is not None}
    return {"params": trainable, **given}


def _without(
    parameters: Iterable[nn.Parameter], others: Iterable[nn.Parameter]
) -> list[nn.Parameter]:
    known = set(map(id, others))
    return [parameter for parameter in parameters if id(parameter) not in known]


def _units(model: nn.Module) -> Iterator[APL]:
    return (inner_unit(unit) for _, unit in named_units(model))


def _once(tensors: Iterable[_Tensor]) -> list[_Tensor]:
    return list({id(tensor): tensor for tensor in list(tensors)}.values())


def _total(terms: list[Tensor]) -> Tensor:
    if not terms:
        return torch.zeros(())
    # Sums over parameters that FSDP has sharded are DTensors, which do not go with plain tensors.
    sums = [whole(term) for term in terms]
    # A model may be spread over several devices.
    return torch.stack([term.to(sums[0].device) for term in sums]).sum()
