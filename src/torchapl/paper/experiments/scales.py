"""Scales: the same experiments as published, on two CPU cores in minutes, or in seconds for tests.

A scale is a value: the width, epochs, optimiser and data of each family of networks, or of one
network, or of those for one data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torchapl.paper.catalogue import unknown
from torchapl.paper.config import Data, Experiment, Optim, Precision, Preprocessing
from torchapl.paper.data import DATA_SETS
from torchapl.paper.experiments.costs import estimate
from torchapl.paper.nets import NETWORKS


@dataclass(frozen=True)
class Recipe:
    """How a family of networks, or those for a data set, is trained at a scale.

    Without an optimiser and a preprocessing it keeps the published ones, the schedule shortened.
    """

    width: float
    epochs: int
    batch_size: int
    optim: Optim | None = None
    limit: int | None = None
    # Factor on dropout; narrow networks in a short run are far from overfitting.
    dropout: float = 0.0
    # Short recipes want inputs of order 1.
    preprocessing: Preprocessing | None = "standard"
    start: Literal["authors", "he"] = "he"
    # Factors of the learning rate among which validation rows decide, the same for every row: the
    # best one differs by activation, and a common one would favour some.
    rates: tuple[float, ...] = ()
    precision: Precision = "float32"


@dataclass(frozen=True)
class Scale:
    """What replaces the published settings.

    Attributes:
        recipes: By family of networks or, before that, by data set or network; without any,
            everything stays as published.
        chooses: Whether validation rows decide what the paper's authors chose by them.
    """

    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    chooses: bool = True


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
_RATES = (1.0, 2.0, 4.0)

SCALES: dict[str, Scale] = {
    "paper": Scale(),
    "lab": Scale(
        {
            "cnn": Recipe(0.125, 2, 64, _SGD, rates=_RATES),
            # Wider and by smaller steps than the others: at a twelfth of the width, 8 channels are
            # its bottleneck, and with ReLU it hardly leaves the start on 100 classes.
            "nin": Recipe(0.1667, 2, 32, _ADAM, rates=_RATES),
            "maxout": Recipe(0.0625, 2, 64, _SGD, rates=_RATES),
            "resnet": Recipe(0.25, 2, 64, _SGD, rates=_RATES),
            # Its own solver. Three runs to choose a rate would cost half an hour for every row. In
            # half precision, as the speed records: half the time where a CPU has it.
            "fast-resnet": Recipe(0.5, 10, 128, preprocessing=None, precision="bfloat16"),
            # By the AUC of validation rows, one seed: ReLU overfits the small set in 16 epochs.
            "dnn": Recipe(0.4, 8, 128, _ADAM, 100_000, 1.0, "physics", rates=(*_RATES, 8.0)),
            # All events of the set that docs/htautau.md makes; as many rows in all as above.
            "htautau": Recipe(0.4, 3, 128, _ADAM, 350_000, 1.0, "physics", rates=(*_RATES, 8.0)),
        },
    ),
    # The authors' solver, start, dropout and preprocessing, and the shape of their schedule:
    # narrower and shorter, a quarter of an hour of one core, so that three seeds of nine rows are
    # seven hours. A hundred classes take longer: 14 epochs leave ReLU with an error of 89 %.
    "study": Scale(
        {
            "cnn": Recipe(0.25, 14, 100, None, None, 1.0, None, "authors"),
            "cifar-cnn-100": Recipe(0.25, 36, 100, None, None, 1.0, None, "authors"),
            "nin": Recipe(0.25, 8, 100, None, None, 1.0, None, "authors"),
        },
        chooses=False,
    ),
    "smoke": Scale(
        {
            "cnn": Recipe(0.0625, 2, 50, _SGD, limit=100),
            "nin": Recipe(0.0625, 2, 50, _ADAM, limit=100),
            "maxout": Recipe(0.03125, 2, 50, _SGD, limit=50),
            "resnet": Recipe(0.5, 2, 50, _SGD, limit=50),
            "fast-resnet": Recipe(0.0625, 2, 50, limit=100, preprocessing=None),
            "dnn": Recipe(0.125, 2, 50, _ADAM, 1000, 1.0, "physics"),
        },
        chooses=False,
    ),
}


def scaled(experiment: Experiment, scale: str) -> Experiment:
    """Return the experiment at another scale.

    Args:
        experiment: At paper scale, as the registry holds it.
        scale: ``"paper"``, ``"study"``, ``"lab"`` or ``"smoke"``.

    Raises:
        ValueError: If there is no such scale, or it has no recipe for the network.

    Example:
        >>> from torchapl.paper.experiments import get
        >>> scaled(get("cifar10-cnn-apl"), "smoke").epochs
        2
    """
    recipe, data = _recipe_of(experiment, scale), experiment.data
    if recipe is None:
        return replace(experiment, cost=estimate(experiment))
    # Of iterations: batches may have another size than the published ones.
    share = recipe.epochs / recipe.batch_size * experiment.batch_size / experiment.epochs
    optim = recipe.optim or experiment.optim.stretched(share)
    small = replace(
        experiment,
        data=Data(
            DATA_SETS.get(data.name).stand_ins.get(scale, data.name),
            recipe.preprocessing or data.preprocessing,
            augment=data.augment,
            padding=data.padding,
            limit=recipe.limit,
        ),
        optim=optim,
        width=experiment.width * recipe.width,
        start=recipe.start,
        dropout=experiment.dropout * recipe.dropout,
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        precision=recipe.precision,
        scale=scale,
        made_for_steps=_made_for(experiment, share) if recipe.optim is None else None,
    )
    return replace(small, cost=estimate(small))


def _made_for(experiment: Experiment, share: float) -> int | None:
    made_for = experiment.made_for_steps
    return None if made_for is None else round(made_for * share)


def rate_factors(experiment: Experiment, scale: str) -> tuple[float, ...]:
    """Return by what a scale multiplies learning rates, for validation rows to choose one.

    Example:
        >>> from torchapl.paper.experiments import get
        >>> rate_factors(get("cifar10-cnn-relu"), "lab")
        (1.0, 2.0, 4.0)
    """
    recipe = _recipe_of(experiment, scale)
    return () if recipe is None else recipe.rates


def multiplied_rates(experiment: Experiment, factors: Iterable[float]) -> tuple[str, ...]:
    """Return multiples of an experiment's learning rate, as assignments.

    Example:
        >>> multiplied_rates(Experiment("mine", net="nin", optim=Optim(lr=0.02)), [1, 2])
        ('optim.lr=0.02', 'optim.lr=0.04')
    """
    return tuple(f"optim.lr={experiment.optim.lr * factor:g}" for factor in factors)


def has_recipe(experiment: Experiment, scale: str) -> bool:
    """Tell whether a scale says how to train the network of an experiment.

    Example:
        >>> from torchapl.paper.experiments import get
        >>> has_recipe(get("cifar10-cnn-relu"), "study"), has_recipe(get("cifar10-maxout"), "study")
        (True, False)
    """
    recipes = scale_named(scale).recipes
    return not recipes or NETWORKS.get(experiment.net).family in recipes


def _recipe_of(experiment: Experiment, scale: str) -> Recipe | None:
    """Return how a scale trains the network of an experiment; None if as published."""
    recipes = scale_named(scale).recipes
    family = NETWORKS.get(experiment.net).family
    if not has_recipe(experiment, scale):
        raise ValueError(
            f"{scale} scale has no recipe for networks of the family {family!r}, "
            f"such as {experiment.net}; it has some for {', '.join(recipes)}"
        )
    keys = (experiment.data.name, experiment.net, family)
    return next((recipes[key] for key in keys if key in recipes), None)


def scale_named(name: str) -> Scale:
    """Return the scale of this name.

    Raises:
        ValueError: If there is none; the message names those there are.
    """
    if name not in SCALES:
        raise ValueError(unknown("scale", name, list(SCALES)))
    return SCALES[name]
