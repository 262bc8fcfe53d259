"""The authors' solvers, as their Caffe files have them."""

from __future__ import annotations

from torchapl.paper.config import Optim


def listed(decay: float, momentum_start: float, *rates: tuple[int, float]) -> Optim:
    """Return Caffe SGD with a list of learning rates, each until its iteration.

    Example:
        >>> listed(1e-3, 0.5, (60_000, 0.01), (80_000, 0.001)).factors
        ((60000, 1.0), (80000, 0.1))
    """
    first = rates[0][1]
    return Optim(
        kind="caffe-sgd",
        lr=first,
        schedule="list",
        factors=tuple((until, rate / first) for until, rate in rates),
        momentum=0.9,
        momentum_start=momentum_start,
        weight_decay=decay,
        curve_decay=1e-3,
    )


CNN10 = listed(1e-3, 0.5, (60_000, 0.01), (80_000, 0.001), (85_000, 1e-4), (90_000, 1e-5))
CNN100 = listed(1e-3, 0.5, (80_000, 0.001), (100_000, 5e-4), (120_000, 1e-4), (150_000, 1e-5))
_NIN = ((200_000, 0.05), (300_000, 0.01), (310_000, 0.001), (320_000, 1e-4))
NIN10 = listed(1e-4, 0.1, *_NIN)
NIN100 = listed(1e-4, 0.1, *_NIN, (330_000, 1e-5))
HIGGS = Optim(
    kind="caffe-sgd",
    lr=0.006,
    schedule="exponential",
    step_factor=0.9999999606,
    momentum=0.5,
    weight_decay=0.0,
    curve_decay=1e-3,
)
# Not the authors': a residual network by the recipe of its time.
RESNET = Optim(
    kind="sgd", lr=0.1, schedule="cosine", warmup=0.05, weight_decay=5e-4, curve_decay=0.0
)
# For ten epochs with batch norm.
FAST = Optim(
    kind="sgd", lr=0.15, schedule="one-cycle", warmup=0.2, weight_decay=1e-3, curve_decay=0.0
)
