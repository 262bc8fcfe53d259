"""CIFAR-10 by a network of today in minutes: not in the paper, one row for each activation."""

from __future__ import annotations

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment
from torchapl.paper.experiments import solvers
from torchapl.paper.experiments.key import Key
from torchapl.paper.experiments.rows import (
    DEFAULT,
    DEFAULT_FROZEN,
    OTHERS,
    WIDER,
    ActivationRow,
)

NET = "fast-resnet"
# 12 % more weights; what curves of eight hinges add is 2 %.
_WIDTH_OF_WIDER = 1.0625
# What ``swap_activations(model, batch, init="default")`` chooses after batch norm, and its control.
_DEFAULT = ActivationRow(
    DEFAULT.name,
    f"{DEFAULT.title} after batch norm",
    Activation.parse("apl:8:channel:silu:segments"),
)
_DEFAULT_FROZEN = ActivationRow(
    DEFAULT_FROZEN.name, DEFAULT_FROZEN.title, Activation.parse("apl:8:channel:silu:frozen")
)
# What it chooses elsewhere.
_LEAK = ActivationRow("apl-leak", "APL per channel, started with a leak", DEFAULT.activation)

ROWS = (
    ActivationRow("relu", "ReLU", Activation.parse("relu")),
    WIDER,
    ActivationRow("leaky", "Leaky ReLU 0.1", Activation.parse("leaky:0.1")),
    *OTHERS,
    _DEFAULT,
    _LEAK,
    _DEFAULT_FROZEN,
)


def key(row: str) -> Key:
    """Return the identity of the experiment of a row."""
    return Key("cifar10", True, "fast", row)


MODERN: tuple[Experiment, ...] = tuple(
    Experiment(
        name=key(row.name).name,
        net=NET,
        activation=row.activation,
        data=Data("cifar10", "standard", augment=True, padding=2),
        optim=solvers.FAST,
        epochs=10,
        batch_size=128,
        width=_WIDTH_OF_WIDER if row is WIDER else 1.0,
        start="he",
        label_smoothing=0.2,
        # The last epoch's: a test costs a fifteenth of an epoch and would choose nothing.
        test_every=10,
        provenance="Not in the paper: after public speed records of CIFAR-10",
    )
    for row in ROWS
)
