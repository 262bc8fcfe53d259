"""What a search varies: architecture, dropout, start and training settings of an experiment.

The physics baseline of the paper's Table 2 was found that way (with Spearmint), and the authors'
networks in part.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchapl.paper.config import Experiment, flat, to_dict
from torchapl.paper.experiments.rows import HINGES
from torchapl.paper.nets import NETWORKS
from torchapl.runs.records import Json


@dataclass(frozen=True)
class Range:
    """A setting that may be any number between two.

    Attributes:
        setting: As ``--set`` names it.
        low: The least.
        high: The largest.
        log: Whether ratios count, not differences.
    """

    setting: str
    low: float
    high: float
    log: bool = True

    def __str__(self) -> str:
        return f"{self.setting} from {self.low:g} to {self.high:g}" + (", log" if self.log else "")

    def holds(self, value: Json) -> bool:
        """Return whether a value lies in the range."""
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """A setting that has one of a few values.

    Attributes:
        setting: As ``--set`` names it.
        values: All of them.
    """

    setting: str
    values: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.setting} one of {', '.join(map(str, self.values))}"

    def holds(self, value: Json) -> bool:
        """Return whether a value is one of them."""
        return value in self.values


Dimension = Range | Choice


def search_space(experiment: Experiment) -> tuple[Dimension, ...]:
    """Return what a search for better settings of an experiment varies.

    Ranges lie around the experiment's own values; what it does not have (a decay of 0, a network of
    fixed depth, curves) is left alone.

    Example:
        >>> from torchapl.paper.experiments import get
        >>> for dimension in search_space(get("higgs-dnn-relu"))[:3]:
        ...     print(dimension)
        depth one of 3, 4, 5, 6, 7, 8, 9, 10
        width from 0.5 to 2, log
        dropout from 0 to 1
    """
    optim, own_width = experiment.optim, experiment.width
    network = NETWORKS.get(experiment.net)
    space: list[Dimension] = []
    if network.depths:
        space.append(Choice("depth", network.depths))
    space.append(Range("width", own_width / 2, own_width * 2))
    if network.drops:
        # A factor on the network's own rates.
        space.append(Range("dropout", 0.0, 1.0, log=False))
    space.append(Choice("start", ("authors", "he")))
    space.append(Range("optim.lr", optim.lr / 10, optim.lr * 10))
    if optim.weight_decay > 0:
        space.append(
            Range("optim.weight_decay", optim.weight_decay / 100, optim.weight_decay * 100)
        )
    if optim.kind != "adamw":
        space.append(Range("optim.momentum", 0.5, 0.98, log=False))
    batches = (experiment.batch_size // 2, experiment.batch_size, experiment.batch_size * 2)
    space.append(Choice("batch_size", batches))
    return (*space, *_of_the_activation(experiment))


def _of_the_activation(experiment: Experiment) -> list[Dimension]:
    settings = experiment.activation.to_dict()
    space: list[Dimension] = []
    if "negative_slope" in settings:
        space.append(Range("activation.negative_slope", -0.2, 0.3, log=False))
    if "num_hinges" in settings:
        space.append(Choice("activation.num_hinges", HINGES))
    if "slope_bound" in settings and settings["start"] == "authors":
        space.append(Range("activation.slope_bound", 0.05, 0.5))
    if experiment.activation.is_learned:
        space.append(Range("optim.curve_lr", 0.03, 3.0))
        space.append(Range("optim.curve_decay", 1e-5, 1e-2))
    return space


def own_settings(experiment: Experiment) -> dict[str, Json]:
    """Return the experiment's own values of what a search varies, where they lie inside.

    Example:
        >>> from torchapl.paper.experiments import get
        >>> own_settings(get("higgs-dnn-relu"))["depth"]
        7
    """
    values = flat(to_dict(experiment))
    if values["depth"] is None:
        values["depth"] = NETWORKS.get(experiment.net).depth
    if "activation.slope_bound" in values and values["activation.slope_bound"] is None:
        # The default of the authors' start.
        values["activation.slope_bound"] = min(0.5, 1 / int(str(values["activation.num_hinges"])))
    return {
        dimension.setting: values[dimension.setting]
        for dimension in search_space(experiment)
        if dimension.holds(values[dimension.setting])
    }
