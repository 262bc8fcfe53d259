"""Scales: the same experiments as published, on two CPU cores in minutes, or in seconds for tests.

A scale is a value: the width, epochs, optimiser and data of each family of networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torchapl.paper.config import Data, Experiment, Optim
from torchapl.paper.experiments.costs import estimate

_FAMILIES = {
    "cifar-cnn": "cnn",
    "cifar-cnn-100": "cnn",
    "dropout-cnn": "cnn",
    "nin": "nin",
    "nin-lin": "nin",
    "nin-dsn": "nin",
    "maxout": "maxout",
    "channel-out": "maxout",
    "probout": "maxout",
    "dasnet": "maxout",
    "resnet": "resnet",
    "higgs-dnn": "dnn",
}


@dataclass(frozen=True)
class Recipe:
    """How a family of networks is trained at a scale."""

    width: float
    epochs: int
    batch_size: int
    optim: Optim
    limit: int | None = None
    # Factor on dropout; narrow networks in a short run are far from overfitting.
    dropout: float = 0.0


@dataclass(frozen=True)
class Scale:
    """What replaces the published settings; an empty one leaves them as they are."""

    name: str
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    # Data sets that others stand in for.
    data: Mapping[str, str] = field(default_factory=dict)


# Factors of a recipe's learning rate among which validation rows decide, the same for every row.
GRID = (1.0, 2.0, 4.0)

_SGD = Optim(
    kind="sgd",
    lr=0.02,
    schedule="one-cycle",
    warmup=0.2,
    momentum=0.9,
    weight_decay=5e-4,
    curve_decay=0.0,
)
# Deep and without batch norm: NIN with ReLU after its logits dies in a short run of SGD.
_ADAM = replace(_SGD, kind="adamw", lr=2e-3, weight_decay=1e-2)

SCALES: dict[str, Scale] = {
    "paper": Scale("paper"),
    "lab": Scale(
        "lab",
        recipes={
            "cnn": Recipe(0.125, 2, 64, _SGD),
            # Wider and by smaller steps than the others: at a twelfth of the width, 8 channels are
            # its bottleneck, and with ReLU it hardly leaves the start on 100 classes.
            "nin": Recipe(0.1667, 2, 32, _ADAM),
            "maxout": Recipe(0.0625, 2, 64, _SGD),
            "resnet": Recipe(0.25, 2, 64, _SGD),
            # By the AUC of validation rows, one seed: ReLU overfits the small set in 16 epochs.
            "dnn": Recipe(0.4, 8, 128, _ADAM, limit=100_000, dropout=1.0),
        },
        data={"atlas-higgs-2014": "atlas-higgs-embedded"},
    ),
    "smoke": Scale(
        "smoke",
        recipes={
            "cnn": Recipe(0.0625, 2, 50, _SGD, limit=200),
            "nin": Recipe(0.0625, 2, 50, _ADAM, limit=200),
            "maxout": Recipe(0.03125, 2, 50, _SGD, limit=100),
            "resnet": Recipe(0.25, 2, 50, _SGD, limit=100),
            "dnn": Recipe(0.125, 2, 50, _ADAM, limit=1000, dropout=1.0),
        },
        data={
            "cifar10": "toy-images",
            "cifar100": "toy-images",
            "htautau": "toy-events",
            "atlas-higgs-2014": "atlas-higgs-embedded",
            "uci-higgs": "toy-events",
            "uci-susy": "toy-events",
        },
    ),
}


def scaled(experiment: Experiment, scale: str) -> Experiment:
    """Return the experiment at another scale.

    Args:
        experiment: At paper scale, as the registry holds it.
        scale: ``"paper"``, ``"lab"`` or ``"smoke"``.

    Example:
        >>> from torchapl.paper.experiments import get
        >>> scaled(get("cifar10-cnn-apl"), "smoke").epochs
        2
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    chosen = SCALES[scale]
    if not chosen.recipes:
        return replace(experiment, cost=estimate(experiment))
    family = _FAMILIES[experiment.net]
    recipe = chosen.recipes[family]
    data = experiment.data
    small = replace(
        experiment,
        data=Data(
            chosen.data.get(data.name, data.name),
            # Short recipes want inputs of order 1.
            "physics" if family == "dnn" else "standard",
            augment=data.augment,
            limit=recipe.limit,
        ),
        optim=recipe.optim,
        width=recipe.width,
        start="he",
        dropout=experiment.dropout * recipe.dropout,
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        scale=scale,
    )
    return replace(small, cost=estimate(small))
