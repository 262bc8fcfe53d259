"""The authors' optimiser, and the one a run asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from torchapl.paper.config import Optim
from torchapl.paper.schedule import learning_rate, momentum

Multiplier = tuple[nn.Parameter, float, float, Literal["weight", "bias", "curve"]]


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


def build_optimizer(multipliers: Sequence[Multiplier], optim: Optim) -> torch.optim.Optimizer:
    """Return the optimiser of a run, its parameters grouped by their multipliers.

    Args:
        multipliers: Of each parameter: itself, factors of learning rate and decay, and its kind, as
            ``Net.parameter_multipliers()`` gives them. Frozen parameters are left out.
        optim: The settings. Curves take ``curve_decay`` and ``curve_lr`` in place of
            ``weight_decay`` and 1, times the same factors. AdamW has no use for factors of the
            learning rate: they were found for SGD, and it gives each parameter its own step size.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> settings = [(layer.weight, 1.0, 1.0, "weight"), (layer.bias, 2.0, 0.0, "bias")]
        >>> optimizer = build_optimizer(settings, Optim(weight_decay=1e-4))
        >>> [(group["lr_factor"], group["weight_decay"]) for group in optimizer.param_groups]
        [(1.0, 0.0001), (2.0, 0.0)]
    """
    grouped: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter, lr_factor, decay_factor, kind in multipliers:
        if parameter.requires_grad:
            rate = 1.0 if optim.kind == "adamw" else lr_factor
            if kind == "curve":
                rate *= optim.curve_lr
            decay = decay_factor * (optim.curve_decay if kind == "curve" else optim.weight_decay)
            grouped.setdefault((rate, decay), []).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr_factor": rate, "lr": optim.lr * rate, "weight_decay": decay}
        for (rate, decay), parameters in grouped.items()
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
        group["lr"] = rate * group["lr_factor"]
        if "momentum" in group:
            group["momentum"] = inertia
    return rate
