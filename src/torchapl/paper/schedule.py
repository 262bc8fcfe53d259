"""Learning rate and momentum as functions of the iteration."""

from __future__ import annotations

import math

from torchapl.paper.config import Optim


def learning_rate(optim: Optim, step: int, total_steps: int) -> float:
    """Return the learning rate of iteration ``step``, counted from 0.

    Example:
        >>> optim = Optim(lr=0.01, schedule="list", factors=((60_000, 1.0), (80_000, 0.1)))
        >>> learning_rate(optim, 59_999, 80_000), learning_rate(optim, 60_000, 80_000)
        (0.01, 0.001)
    """
    if optim.schedule == "list":
        return optim.lr * _listed(optim, step)
    if optim.schedule == "exponential":
        return optim.lr * max(optim.floor, optim.step_factor**step)
    if optim.schedule == "linear":
        return optim.lr * (1 - (1 - optim.floor) * min(1.0, step / _fall_steps(optim)))
    if optim.schedule == "inverse":
        return optim.lr / (1 + step / _fall_steps(optim))
    if optim.schedule == "constant":
        return optim.lr
    rise = optim.warmup * total_steps
    if step < rise:
        return optim.lr * (step + 1) / (rise + 1)
    left = (total_steps - step) / max(1.0, total_steps - rise)
    if optim.schedule == "one-cycle":
        return optim.lr * left
    return optim.lr * 0.5 * (1 - math.cos(math.pi * left))


def _listed(optim: Optim, step: int) -> float:
    if not optim.factors:
        raise ValueError("schedule 'list' needs optim.factors, pairs of iteration and factor")
    for until, factor in optim.factors:
        if step < until:
            return factor
    return optim.factors[-1][1]


def _fall_steps(optim: Optim) -> int:
    if optim.fall_steps < 1:
        raise ValueError(
            f"schedule {optim.schedule!r} needs optim.fall_steps, a number of iterations, "
            f"got {optim.fall_steps}"
        )
    return optim.fall_steps


def momentum(optim: Optim, step: int) -> float:
    """Return the momentum of iteration ``step``: constant, the authors' ramp, or a line.

    Example:
        >>> momentum(Optim(momentum=0.9, momentum_start=0.5), 0)
        0.5
    """
    if optim.momentum_start is None:
        return optim.momentum
    missing = max(0.0, 1 - step / optim.momentum_ramp)
    if optim.momentum_rise == "exponential":
        missing = math.exp(-step / optim.momentum_ramp)
    return optim.momentum - (optim.momentum - optim.momentum_start) * missing
