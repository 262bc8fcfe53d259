"""CIFAR-10 and CIFAR-100: Tables 1 and 3, and rows of our own beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment, Optim, Preprocessing
from torchapl.paper.experiments import solvers
from torchapl.paper.experiments.key import Key
from torchapl.paper.experiments.published import TABLE1, TABLE3
from torchapl.paper.experiments.rivals import RIVALS
from torchapl.paper.experiments.rows import (
    DEFAULT,
    DEFAULT_FROZEN,
    HINGES,
    LEAKY25,
    OTHERS,
    POSITION_BIAS,
    ActivationRow,
)

COLUMNS = (("cifar10", False), ("cifar100", False), ("cifar10", True), ("cifar100", True))
_ROWS_PER_EPOCH = 50_000
_BATCH = 100

_FILES = "Network and solver as in the authors' Caffe files and paper section 3.1"
_TRAP = (
    "The solver's settings come from whitened inputs; data.preprocessing=gcn-zca or =standard are "
    "the alternatives"
)
_OWN = "Not in the paper: the same network and schedule with another activation"


@dataclass(frozen=True)
class _Recipe:
    """A network on one data set, with the slope and the number of hinges that its authors chose."""

    net: str
    optim: Optim
    epochs: int
    preprocessing: Preprocessing
    provenance: str
    leaky_slope: float = 0.05
    hinges: int = 2


# By the network's part of experiment names, then by data set.
_RECIPES = {
    "cnn": {
        "cifar10": _Recipe("cifar-cnn", solvers.CNN10, 180, "mean-image", _FILES, 0.05, 5),
        "cifar100": _Recipe("cifar-cnn-100", solvers.CNN100, 300, "mean-image", _FILES, -0.05, 2),
    },
    "nin": {
        "cifar10": _Recipe("nin", solvers.NIN10, 640, "mean-image", f"{_FILES}. {_TRAP}", 0.05, 2),
        "cifar100": _Recipe("nin", solvers.NIN100, 660, "mean-image", f"{_FILES}. {_TRAP}", 0.2, 1),
    },
    "resnet": dict.fromkeys(
        ("cifar10", "cifar100"),
        _Recipe("resnet", solvers.RESNET, 200, "standard", "Not in the paper: a modern network"),
    ),
}
NETWORKS_WITH_ROWS = tuple(_RECIPES)
OWN_ROWS = (
    *OTHERS,
    LEAKY25,
    DEFAULT,
    DEFAULT_FROZEN,
    ActivationRow(
        "apl-channel",
        "APL per channel, started as Leaky 0.25",
        Activation.parse("apl:2:channel:leaky"),
    ),
    ActivationRow(
        "apl-unit", "APL per unit, started as Leaky 0.25", Activation.parse("apl:2:leaky")
    ),
    POSITION_BIAS,
)


def _activations(network: str, recipe: _Recipe) -> Iterator[tuple[ActivationRow, str]]:
    """Yield the rows of a network, with their provenance."""
    is_published = network != "resnet"
    for row, text in (
        ("relu", "relu"),
        ("leaky", f"leaky:{recipe.leaky_slope!r}"),
        ("apl", f"apl:{recipe.hinges}"),
    ):
        activation = ActivationRow(row, row, Activation.parse(text))
        yield activation, recipe.provenance if is_published else _OWN
    frozen = Activation.parse(f"apl:{recipe.hinges}:frozen")
    yield ActivationRow("apl-frozen", "apl-frozen", frozen), _OWN
    for own in OWN_ROWS:
        yield own, _OWN


def _with_rows() -> Iterator[Experiment]:
    for data, augmented in COLUMNS:
        for network, recipes in _RECIPES.items():
            recipe = recipes[data]
            for row, provenance in _activations(network, recipe):
                key = Key(data, augmented, network, row.name)
                yield _experiment(key, recipe, row.activation, provenance)


def _experiment(key: Key, recipe: _Recipe, activation: Activation, provenance: str) -> Experiment:
    in_table = TABLE1.get((key.network, key.row), {}).get(key.column)
    return Experiment(
        name=key.name,
        net=recipe.net,
        activation=activation,
        data=Data(key.data, recipe.preprocessing, augment=key.augmented),
        optim=recipe.optim,
        epochs=recipe.epochs,
        batch_size=_BATCH,
        published=in_table,
        provenance=provenance,
        made_for_steps=recipe.epochs * _ROWS_PER_EPOCH // _BATCH,
    )


def _rivals() -> Iterator[Experiment]:
    for data, augmented in COLUMNS:
        for network, recipes in RIVALS.items():
            key = Key(data, augmented, network)
            recipe = recipes[key.column]
            yield Experiment(
                name=key.name,
                net=recipe.net,
                data=Data(
                    data,
                    recipe.preprocessing,
                    augment=augmented,
                    padding=recipe.padding if augmented else Data.padding,
                ),
                optim=recipe.optim,
                epochs=recipe.epochs,
                batch_size=recipe.batch_size,
                test_every=recipe.test_every,
                published=TABLE1[network, ""].get(key.column),
                provenance=recipe.provenance,
                made_for_steps=recipe.epochs * _ROWS_PER_EPOCH // recipe.batch_size,
            )


def _hinge_sweep() -> Iterator[Experiment]:
    """Yield Table 3 but for its first row and S = 5, which Table 1 has too."""
    recipe = _RECIPES["cnn"]["cifar10"]
    rows = {"s1-frozen": "apl:1:frozen"}
    rows |= {f"s{size}": f"apl:{size}" for size in HINGES if size != recipe.hinges}
    for row, text in rows.items():
        key = Key("cifar10", False, "cnn", f"apl-{row}")
        experiment = _experiment(key, recipe, Activation.parse(text), recipe.provenance)
        yield replace(experiment, published=TABLE3[row])


CIFAR: tuple[Experiment, ...] = (*_with_rows(), *_rivals(), *_hinge_sweep())
