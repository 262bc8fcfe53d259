"""CIFAR-10 by a network of today in minutes: not in the paper, one row for each activation."""

from __future__ import annotations

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment
from torchapl.paper.experiments import solvers
from torchapl.paper.experiments.key import Key
from torchapl.paper.experiments.rows import DEFAULT, DEFAULT_FROZEN, OTHERS, ActivationRow

NET = "fast-resnet"
# 12 % more weights; what curves of eight hinges add is 2 %.
_WIDER = 1.0625
_WIDE = ActivationRow("relu-wide", "ReLU, wider", Activation.parse("relu"))
# The default's leak is for networks without normalisation, which this one has.
_NEAR_SILU = ActivationRow(
    "apl-near-silu",
    "APL per channel, started near SiLU",
    Activation.parse("apl:8:channel:silu:segments"),
)

ROWS = (
    ActivationRow("relu", "ReLU", Activation.parse("relu")),
    _WIDE,
    ActivationRow("leaky", "Leaky ReLU 0.1", Activation.parse("leaky:0.1")),
    *OTHERS,
    DEFAULT,
    _NEAR_SILU,
    DEFAULT_FROZEN,
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
        width=_WIDER if row is _WIDE else 1.0,
        start="he",
        label_smoothing=0.2,
        # The last epoch's: a test costs a fifteenth of an epoch and would choose nothing.
        test_every=10,
        provenance="Not in the paper: after public speed records of CIFAR-10",
    )
    for row in ROWS
)
