"""Experiments as frozen, typed values, and typed overrides of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from torchapl.paper.activations import Activation
from torchapl.paper.catalogue import unknown
from torchapl.paper.values import read_value
from torchapl.runs.records import Json

Preprocessing = Literal["mean-image", "standard", "gcn", "gcn-zca", "physics"]
Precision = Literal["float32", "bfloat16"]
Schedule = Literal["list", "exponential", "linear", "inverse", "one-cycle", "cosine", "constant"]
# Part of the training rows that is held out while something is chosen by them.
VALIDATION_SHARE = 0.1
# Sixteen times the paper's widths is what no machine has memory for.
_WIDEST = 16.0
# What no run comes near, and what follows from it still fits 64 bits.
_MOST = 10**9
_DEEPEST = 1000
# Beyond it a crop of 32 x 32 pixels can miss the image altogether.
_WIDEST_PADDING = 32


@dataclass(frozen=True)
class Data:
    """Which rows a run sees, and how they are prepared."""

    name: str = "cifar10"
    preprocessing: Preprocessing = "mean-image"
    augment: bool = False
    # Pixels around an image that is cropped at random.
    padding: int = 4
    # Rows of the training set held out, the same for every seed: a number of them, or below 1 a
    # share of those that there are.
    validation: float = 0
    # Only the first rows of the training set; None takes all.
    limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.validation <= _MOST or (self.validation > 1 and self.validation % 1):
            raise ValueError(
                "validation must be a number of rows, or a share of them below 1, "
                f"got {self.validation}"
            )
        if self.validation % 1 == 0:
            object.__setattr__(self, "validation", int(self.validation))
        _check_range(self, "padding", 0, _WIDEST_PADDING)
        if self.limit is not None:
            _check_range(self, "limit", 1, _MOST)


@dataclass(frozen=True)
class Optim:
    """Optimiser and schedule; a step is one iteration, not one epoch."""

    kind: Literal["caffe-sgd", "sgd", "adamw"] = "caffe-sgd"
    lr: float = 0.01
    schedule: Schedule = "constant"
    # Schedule "list": factors of lr, each valid until (not including) its iteration.
    factors: tuple[tuple[int, float], ...] = ()
    # Schedule "exponential": lr is multiplied by this at every iteration.
    step_factor: float = 1.0
    # Schedule "linear": iterations in which lr falls to its floor; "inverse": to its half.
    fall_steps: int = 0
    # Schedules "linear" and "exponential": the share of lr below which it does not fall.
    floor: float = 0.0
    # Schedules "one-cycle" and "cosine": share of all iterations in which lr rises to the full one.
    warmup: float = 0.0
    momentum: float = 0.9
    # The momentum rises from here to its full value, with time constant momentum_ramp or, linearly,
    # within momentum_ramp iterations.
    momentum_start: float | None = None
    momentum_ramp: float = 10_000.0
    momentum_rise: Literal["exponential", "linear"] = "exponential"
    weight_decay: float = 0.0
    # Of slopes and offsets; their learning rate is lr * curve_lr.
    curve_decay: float = 1e-3
    curve_lr: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lr", "step_factor", "momentum_ramp"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("weight_decay", "curve_decay", "curve_lr"):
            _check_range(self, name, 0.0, math.inf)
        for name in ("warmup", "momentum", "momentum_start", "floor"):
            if getattr(self, name) is not None:
                _check_range(self, name, 0.0, 1.0)
        _check_range(self, "fall_steps", 0, _MOST)
        if not all(step >= 0 and 0 <= factor < math.inf for step, factor in self.factors):
            raise ValueError(
                f"factors must be pairs of an iteration and a factor of lr, got {self.factors}"
            )

    def stretched(self, factor: float) -> Optim:
        """Return the same course of rate and momentum in another number of iterations.

        Args:
            factor: Of their number; below 1 the schedule is shortened.

        Example:
            >>> long = Optim(schedule="list", factors=((60_000, 1.0), (90_000, 0.1)))
            >>> long.stretched(0.1).factors
            ((6000, 1.0), (9000, 0.1))
        """
        return dataclasses.replace(
            self,
            factors=tuple((round(until * factor), rate) for until, rate in self.factors),
            step_factor=self.step_factor ** (1 / factor),
            # Not to 0, which is no schedule.
            fall_steps=math.ceil(self.fall_steps * factor),
            momentum_ramp=self.momentum_ramp * factor,
        )


@dataclass(frozen=True)
class Published:
    """A number of the paper's tables: error in percent or AUC, with spread where it has one."""

    mean: float
    std: float | None = None
    trials: int | None = None
    significance: float | None = None
    significance_std: float | None = None


@dataclass(frozen=True)
class Cost:
    """Expected seconds of one run: on one CPU core, and on one data-centre GPU (A100 class)."""

    cpu: float
    gpu: float


@dataclass(frozen=True)
class Experiment:
    """One cell of a table: everything a run depends on but its seed and its machine.

    Example:
        >>> experiment = Experiment("mine", net="cifar-cnn", activation=Activation.parse("apl:5"))
        >>> override(experiment, "optim.lr=0.02").optim.lr
        0.02
    """

    name: str
    net: str
    activation: Activation = field(default_factory=lambda: Activation.parse("relu"))
    data: Data = field(default_factory=Data)
    optim: Optim = field(default_factory=Optim)
    epochs: int = 1
    batch_size: int = 100
    width: float = 1.0
    # Number of hidden layers; None is the network's own.
    depth: int | None = None
    # Weights start as the network's authors had them, or by fan-in (He), which short runs need.
    start: Literal["authors", "he"] = "authors"
    # Factor on every dropout rate of the network.
    dropout: float = 1.0
    # Part of a training row's probability that is spread evenly over all classes.
    label_smoothing: float = 0.0
    precision: Precision = "float32"
    # Epochs between two evaluations on the test set; the last epoch always has one.
    test_every: int = 1
    scale: str = "paper"
    published: Published | None = None
    provenance: str = ""
    cost: Cost | None = None
    # Iterations that the schedule was made for; in a run of far fewer it is shortened.
    made_for_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "test_every"):
            _check_range(self, name, 1, _MOST)
        if self.depth is not None:
            _check_range(self, "depth", 1, _DEEPEST)
        for name in ("dropout", "label_smoothing"):
            _check_range(self, name, 0.0, 1.0)
        if not 0 < self.width <= _WIDEST:
            raise ValueError(
                f"width must be a factor of the published width, above 0 and at most {_WIDEST:g}, "
                f"got {self.width:g}"
            )


def _check_range(value: object, name: str, low: float, high: float) -> None:
    number = getattr(value, name)
    # NaN is in no range, and infinity no setting.
    if not low <= number <= high or math.isinf(number):
        fits = f"between {low:.12g} and {high:.12g}" if high < math.inf else f"{low:g} or more"
        raise ValueError(f"{name} must be {fits}, got {number}")


# What a run's numbers do not depend on; not to be overridden either.
_DESCRIPTIVE = ("name", "published", "provenance", "cost", "scale", "made_for_steps")
# What counts iterations.
_SCHEDULE = tuple(
    f"optim.{name}"
    for name in ("schedule", "factors", "step_factor", "fall_steps", "momentum_ramp")
)
# What decides how many iterations there are.
_LENGTH = ("epochs", "batch_size")
# Of older versions.
_GONE = ("title", "choices")

Frozen = TypeVar("Frozen", bound=Experiment | Data | Optim | Activation)


def override(experiment: Experiment, assignment: str) -> Experiment:
    """Return the experiment with one setting changed.

    A schedule that counts iterations is stretched with their number.

    Args:
        experiment: Stays as it is.
        assignment: Such as ``"optim.lr=0.02"``, ``"activation=apl:2:channel"`` or ``"epochs=3"``.

    Raises:
        ValueError: If there is no such setting (the message names the nearest) or the value does
            not fit its type.

    Example:
        >>> override(Experiment("mine", net="nin"), "optm.lr=0.02")
        Traceback (most recent call last):
        ValueError: unknown setting 'optm', did you mean 'optim'?
    """
    key, separator, text = assignment.partition("=")
    if not separator:
        raise ValueError(f"a setting must look like optim.lr=0.02, got {assignment!r}")
    changed = _set(experiment, key.strip().split("."), text.strip(), key.strip())
    if key.strip() in _SCHEDULE:
        # Whoever sets a schedule means it for the run at hand.
        return dataclasses.replace(changed, made_for_steps=None)
    if key.strip() in _LENGTH and changed.made_for_steps is not None:
        # Else a search for a batch size would be one for a schedule.
        factor = changed.epochs / experiment.epochs * experiment.batch_size / changed.batch_size
        return dataclasses.replace(
            changed,
            optim=changed.optim.stretched(factor),
            made_for_steps=round(changed.made_for_steps * factor),
        )
    return changed


def override_all(experiment: Experiment, assignments: Iterable[str]) -> Experiment:
    """Return the experiment with some settings changed, wholes before their parts.

    Example:
        >>> mine = Experiment("mine", net="nin")
        >>> changed = override_all(mine, ["activation.num_hinges=5", "activation=apl:2"])
        >>> str(changed.activation)
        'apl:5'
    """
    for assignment in sorted(assignments, key=lambda text: text.partition("=")[0].count(".")):
        experiment = override(experiment, assignment)
    return experiment


def _set(value: Frozen, path: list[str], text: str, key: str) -> Frozen:
    annotations = typing.get_type_hints(type(value))
    hints = {field.name: annotations[field.name] for field in dataclasses.fields(value)}
    name, *rest = path
    # A data set's name is a setting, the experiment's is not.
    fixed = _DESCRIPTIVE if isinstance(value, Experiment) else ()
    if name not in hints or (not rest and name in fixed):
        above = key.removesuffix(".".join(path))
        known = [hint for hint in hints if hint not in fixed]
        if isinstance(value, Experiment):
            known += [
                setting for setting in _training_settings(value) if setting.endswith(f".{name}")
            ]
        raise ValueError(unknown("setting", name, known, above))
    changed: object
    if rest:
        current = getattr(value, name)
        if not isinstance(current, Data | Optim | Activation):
            raise ValueError(f"setting {name!r} has no parts, got {key!r}")
        changed = _set(current, rest, text, key)
    elif hints[name] is Activation:
        changed = Activation.parse(text)
    else:
        changed = read_value(text, hints[name], key)
    changes: dict[str, typing.Any] = {name: changed}
    return dataclasses.replace(value, **changes)


def to_dict(value: Experiment) -> dict[str, Json]:
    """Return the experiment as nested plain values, as config.json holds it.

    Example:
        >>> from_dict(to_dict(Experiment("mine", net="nin"))) == Experiment("mine", net="nin")
        True
    """
    plain = dataclasses.asdict(value) | {"activation": value.activation.to_dict()}
    return typing.cast("dict[str, Json]", _plain(plain))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def from_dict(values: Mapping[str, Json]) -> Experiment:
    """Read an experiment back from what :func:`to_dict` returned."""
    parts: dict[str, typing.Any] = {k: item for k, item in values.items() if k not in _GONE}
    for name, kind in (("data", Data), ("published", Published), ("cost", Cost)):
        if parts.get(name) is not None:
            parts[name] = kind(**parts[name])
    parts["activation"] = Activation.from_dict(parts["activation"])
    optim = dict(parts["optim"])
    optim["factors"] = tuple((int(step), float(factor)) for step, factor in optim["factors"])
    return Experiment(**{**parts, "optim": Optim(**optim)})


def assignments(overrides: Iterable[str]) -> dict[str, str]:
    """Return changed settings by key.

    Example:
        >>> assignments(["optim.lr=0.02", "activation=apl:2"])
        {'optim.lr': '0.02', 'activation': 'apl:2'}
    """
    pairs = (text.partition("=") for text in overrides)
    return {key: value for key, _, value in pairs}


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Json, Json]]:
    """Return the settings in which two experiments would train differently.

    Example:
        >>> mine = Experiment("mine", net="nin")
        >>> differences(mine, override(mine, "optim.lr=0.02"))
        {'optim.lr': (0.01, 0.02)}
    """
    left, right = _training_settings(first), _training_settings(second)
    return {
        key: (left.get(key), right.get(key))
        for key in left | right
        if left.get(key) != right.get(key)
    }


def _training_settings(experiment: Experiment) -> dict[str, Json]:
    """Return what decides how an experiment trains, as one level."""
    nested = to_dict(experiment)
    return flat({key: value for key, value in nested.items() if key not in _DESCRIPTIVE})


def fingerprint(experiment: Experiment) -> str:
    """Return a short name of everything that decides how an experiment trains.

    Settings at their defaults do not count, so that new ones leave old names alone.

    Example:
        >>> mine = Experiment("mine", net="nin")
        >>> fingerprint(mine) == fingerprint(dataclasses.replace(mine, provenance="Mine"))
        True
        >>> fingerprint(mine) == fingerprint(override(mine, "optim.lr=0.02"))
        False
    """
    # The defaults of the same activation, and of ReLU's kind.
    plain = Experiment("", net="", activation=type(experiment.activation)())
    defaults = _training_settings(plain) | {"activation.kind": "relu"}
    changed = {
        key: value
        for key, value in _training_settings(experiment).items()
        if value != defaults[key]
    }
    text = json.dumps(changed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def flat(values: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return nested settings as one level, ``optim.lr`` and so on."""
    result: dict[str, Json] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result
