"""The authors' optimiser, and the one a run asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from torchapl.optim import Steps
from torchapl.paper.config import Optim
from torchapl.paper.schedule import learning_rate, momentum
from torchapl.segments import segment_settings

ParameterKind = Literal["weight", "bias", "curve"]
# By how much a rate of its own has fallen when the part t of a training is over.
_FALL_POWER = 0.75


class ParameterMultiplier(NamedTuple):
    """Factors of a parameter's learning rate and decay.

    They apply to the optimiser's rates for its kind: curves have a decay of their own, 0.001 in
    every network of the paper (the authors' NIN files say 10 times the 0.0001 of the weights).

    Attributes:
        parameter: Whose they are.
        lr: Factor of the learning rate.
        decay: Factor of the decay.
        kind: Of the parameter.
        lr_fall: The learning rate also falls as ``(1 + lr_fall * t) ** -0.75``, with t the part of
            the training that is over, as that of the companions of Lee et al. (2014).
        is_slope: Whether it holds the slopes of hinges, which may move by segments.
    """

    parameter: nn.Parameter
    lr: float = 1.0
    decay: float = 1.0
    kind: ParameterKind = "weight"
    lr_fall: float = 0.0
    is_slope: bool = False


class CaffeSGD(torch.optim.SGD):
    r"""SGD with the learning rate inside the momentum buffer, as Caffe has it.

    .. math::
        V \leftarrow \mu V + \eta (g + \lambda w), \qquad w \leftarrow w - V

    torch keeps :math:`V / \eta`. Its fused kernel gives exactly the above when the momentum of a
    step is multiplied by the previous learning rate over the present one, so no kernel of our own
    is needed.

    Example:
        >>> w = nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = CaffeSGD([w], lr=0.1, momentum=0.5)
        >>> w.grad = torch.tensor([1.0])
        >>> optimizer.step()
        >>> optimizer.param_groups[0]["lr"] = 0.01
        >>> optimizer.step()  # V = 0.5 * 0.1 + 0.01
        >>> print(f"{w.item():.2f}")
        0.84
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch's overloads
        """Take one step; learning rate and momentum may differ from the last one's."""
        asked = [group["momentum"] for group in self.param_groups]
        for group in self.param_groups:
            if group["lr"] <= 0:
                raise ValueError(f"the learning rate must be positive, got {group['lr']}")
            group["momentum"] *= group.get("previous_lr", group["lr"]) / group["lr"]
            group["previous_lr"] = group["lr"]
        try:
            loss: float | None = super().step(closure)
            return loss
        finally:
            for group, value in zip(self.param_groups, asked, strict=True):
                group["momentum"] = value


def build_optimizer(
    multipliers: Sequence[ParameterMultiplier], optim: Optim, steps: Steps = "slopes"
) -> torch.optim.Optimizer:
    """Return the optimiser of a run, its parameters grouped by their multipliers.

    Args:
        multipliers: As ``Net.parameter_multipliers()`` gives them. Frozen parameters are left out.
        optim: The settings. Curves take ``curve_decay`` and ``curve_lr`` in place of
            ``weight_decay`` and 1, times the same factors. AdamW has no use for factors of the
            learning rate: they were found for SGD, and it gives each parameter its own step size.
        steps: How slopes of hinges move, see :mod:`torchapl.segments`.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> weight = ParameterMultiplier(layer.weight)
        >>> bias = ParameterMultiplier(layer.bias, lr=2.0, decay=0.0, kind="bias")
        >>> optimizer = build_optimizer([weight, bias], Optim(weight_decay=1e-4))
        >>> [(group["lr_factor"], group["weight_decay"]) for group in optimizer.param_groups]
        [(1.0, 0.0001), (2.0, 0.0)]
    """
    grouped: dict[tuple[float, float, float, bool], list[nn.Parameter]] = {}
    for parameter, lr_factor, decay_factor, kind, lr_fall, is_slope in multipliers:
        if parameter.requires_grad:
            rate, fall = (1.0, 0.0) if optim.kind == "adamw" else (lr_factor, lr_fall)
            if kind == "curve":
                rate *= optim.curve_lr
            decay = decay_factor * (optim.curve_decay if kind == "curve" else optim.weight_decay)
            by_segments = is_slope and steps == "segments"
            grouped.setdefault((rate, decay, fall, by_segments), []).append(parameter)
    groups: list[dict[str, Any]] = [
        {
            "params": parameters,
            "lr_factor": rate,
            "lr_fall": fall,
            "lr": optim.lr * rate,
            **({"weight_decay": decay} if not by_segments else segment_settings(decay)),
        }
        for (rate, decay, fall, by_segments), parameters in grouped.items()
        if rate > 0
    ]
    if optim.kind == "adamw":
        return torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.momentum, 0.999), fused=True)
    sgd = CaffeSGD if optim.kind == "caffe-sgd" else torch.optim.SGD
    return sgd(groups, lr=optim.lr, momentum=optim.momentum, fused=True)


def set_schedule(
    optimizer: torch.optim.Optimizer, optim: Optim, step: int, total_steps: int
) -> float:
    """Give the optimiser the rates of iteration ``step``; return the learning rate."""
    rate, inertia = learning_rate(optim, step, total_steps), momentum(optim, step)
    for group in optimizer.param_groups:
        fallen = (1 + group["lr_fall"] * step / total_steps) ** -_FALL_POWER
        group["lr"] = rate * group["lr_factor"] * fallen
        if "momentum" in group:
            group["momentum"] = inertia
    return rate
