"""CIFAR-10 and CIFAR-100: Tables 1 and 3, and rows of our own beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment, Optim, Preprocessing, Published
from torchapl.paper.experiments.published import TABLE1, TABLE3

DATA_SETS = ("cifar10", "cifar100")
COLUMNS = ("cifar10", "cifar100", "cifar10-aug", "cifar100-aug")
LEAKY_SLOPES = (0.01, 0.05, 0.1, 0.2, -0.01, -0.05, -0.1, -0.2)
# The slope that was best for the authors, by network and data set.
_BEST_LEAKY = {
    ("cnn", "cifar10"): 0.05,
    ("cnn", "cifar100"): -0.05,
    ("nin", "cifar10"): 0.05,
    ("nin", "cifar100"): 0.2,
}
# Hinges per unit, chosen by the authors on a validation set.
_HINGES = {
    ("cnn", "cifar10"): 5,
    ("cnn", "cifar100"): 2,
    ("nin", "cifar10"): 2,
    ("nin", "cifar100"): 1,
}
_STEPS_PER_EPOCH = 500


def _listed(decay: float, start: float, *rates: tuple[int, float]) -> Optim:
    """Return Caffe SGD with a list of learning rates, given as the authors' files have them."""
    first = rates[0][1]
    return Optim(
        kind="caffe-sgd",
        lr=first,
        schedule="list",
        factors=tuple((until, rate / first) for until, rate in rates),
        momentum=0.9,
        momentum_start=start,
        weight_decay=decay,
        curve_decay=1e-3,
    )


_CNN10 = _listed(1e-3, 0.5, (60_000, 0.01), (80_000, 0.001), (85_000, 1e-4), (90_000, 1e-5))
_CNN100 = _listed(1e-3, 0.5, (80_000, 0.001), (100_000, 5e-4), (120_000, 1e-4), (150_000, 1e-5))
_NIN_RATES = ((200_000, 0.05), (300_000, 0.01), (310_000, 0.001), (320_000, 1e-4))
_NIN10 = _listed(1e-4, 0.1, *_NIN_RATES)
_NIN100 = _listed(1e-4, 0.1, *_NIN_RATES, (330_000, 1e-5))
_RIVALS = _listed(5e-4, 0.5, (60_000, 0.05), (80_000, 0.005), (85_000, 5e-4), (90_000, 5e-5))
_RESNET = Optim(
    kind="sgd", lr=0.1, schedule="cosine", warmup=0.05, weight_decay=5e-4, curve_decay=0.0
)

_FILES = "Network and solver as in the authors' Caffe files and paper section 3.1"
_TRAP = (
    "The solver's settings come from whitened inputs; data.preprocessing=gcn-zca or =standard are "
    "the alternatives"
)
_RIVAL = "Architecture as its authors describe it; the schedule is our choice, no source settles it"
_OWN = "Not in the paper: the same network and schedule with another activation"


@dataclass(frozen=True)
class _Family:
    """A network with its recipe on one data set."""

    net: str
    optim: Optim
    preprocessing: Preprocessing
    provenance: str


def _family(name: str, data: str) -> _Family:
    is_ten = data == "cifar10"
    if name == "cnn":
        net = "cifar-cnn" if is_ten else "cifar-cnn-100"
        return _Family(net, _CNN10 if is_ten else _CNN100, "mean-image", _FILES)
    if name == "nin":
        return _Family("nin", _NIN10 if is_ten else _NIN100, "mean-image", f"{_FILES}. {_TRAP}")
    if name == "resnet":
        return _Family("resnet", _RESNET, "standard", "Not in the paper: a modern network")
    net = {"maxout-stollenga": "maxout"}.get(name, name)
    optim = (_NIN10 if is_ten else _NIN100) if name.startswith("nin") else _RIVALS
    return _Family(net, optim, "gcn-zca", _RIVAL)


def _activations(family: str, data: str) -> dict[str, tuple[Activation, tuple[str, ...], str]]:
    """Return the rows of a family: activation, choices of the validation set, provenance."""
    hinges = _HINGES.get((family, data), 2)
    slopes = tuple(f"activation=leaky:{slope!r}" for slope in LEAKY_SLOPES)
    sizes = tuple(f"activation.num_hinges={size}" for size in (1, 2, 5, 10))
    best = _BEST_LEAKY.get((family, data), 0.05)
    paper = "" if (family, data) in _HINGES else _OWN
    return {
        "relu": (Activation("relu"), (), paper),
        "leaky": (Activation("leaky", negative_slope=best), slopes, paper),
        "apl": (Activation("apl", num_hinges=hinges), sizes, paper),
        "apl-frozen": (Activation("apl", num_hinges=hinges, frozen=True), (), _OWN),
        "apl-channel": (Activation.parse("apl:2:channel:leaky"), (), _OWN),
        "apl-unit": (Activation.parse("apl:2:unit:leaky"), (), _OWN),
        "leaky25": (Activation("leaky", negative_slope=0.25), (), _OWN),
        "prelu": (Activation("prelu"), (), _OWN),
        "silu": (Activation("silu"), (), _OWN),
        "gelu": (Activation("gelu"), (), _OWN),
    }


def _experiment(
    family: str,
    column: str,
    row: str,
    activation: Activation,
    *,
    choices: tuple[str, ...] = (),
    provenance: str = "",
    published: Published | None = None,
) -> Experiment:
    data = column.removesuffix("-aug")
    recipe = _family(family, data)
    epochs = 200
    if recipe.optim.schedule == "list":
        epochs = recipe.optim.factors[-1][0] // _STEPS_PER_EPOCH
    return Experiment(
        name=f"{column}-{row}",
        net=recipe.net,
        activation=activation,
        data=Data(data, recipe.preprocessing, augment=column.endswith("-aug")),
        optim=recipe.optim,
        epochs=epochs,
        batch_size=50_000 // _STEPS_PER_EPOCH,
        choices=choices,
        published=published,
        provenance=provenance or recipe.provenance,
    )


def _all() -> list[Experiment]:
    experiments = []
    for column in COLUMNS:
        data = column.removesuffix("-aug")
        for family in ("cnn", "nin", "resnet"):
            for name, (activation, choices, source) in _activations(family, data).items():
                row = f"{family}-{name}"
                published = TABLE1.get(row, {}).get(column)
                experiments.append(
                    _experiment(
                        family,
                        column,
                        row,
                        activation,
                        choices=choices,
                        provenance=source,
                        published=published,
                    )
                )
        for row in (
            "dropout-cnn",
            "channel-out",
            "maxout",
            "probout",
            "maxout-stollenga",
            "dasnet",
            "nin-lin",
            "nin-dsn",
        ):
            published = TABLE1[row].get(column)
            experiments.append(_experiment(row, column, row, Activation(), published=published))
    return experiments + _hinge_sweep()


def _hinge_sweep() -> list[Experiment]:
    """Return Table 3 but for its first row and S = 5, which Table 1 has too."""
    base = {"cifar10-cnn-apl-s1-frozen": Activation("apl", num_hinges=1, frozen=True)}
    base |= {f"cifar10-cnn-apl-s{size}": Activation("apl", num_hinges=size) for size in (1, 2, 10)}
    results = []
    for name, activation in base.items():
        row = name.removeprefix("cifar10-")
        published = TABLE3[row.removeprefix("cnn-apl-")]
        results.append(_experiment("cnn", "cifar10", row, activation, published=published))
    return results


CIFAR: dict[str, Experiment] = {
    experiment.name: replace(experiment, title=experiment.name) for experiment in _all()
}
