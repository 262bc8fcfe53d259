"""Experiments as frozen, typed values, and typed overrides of them."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import hashlib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from torchapl.paper.activations import Activation

Preprocessing = Literal["mean-image", "standard", "gcn-zca", "physics"]
Schedule = Literal["list", "exponential", "linear", "inverse", "one-cycle", "cosine", "constant"]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class Data:
    """Which rows a run sees, and how they are prepared."""

    name: str = "cifar10"
    preprocessing: Preprocessing = "mean-image"
    augment: bool = False
    # Rows of the training set held out; the same rows for every seed.
    validation: int = 0
    # Only the first rows of the training set; None takes all.
    limit: int | None = None


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
        if not self.momentum_ramp > 0:
            raise ValueError(f"momentum_ramp must be positive, got {self.momentum_ramp}")


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
    activation: Activation = field(default_factory=Activation)
    data: Data = field(default_factory=Data)
    optim: Optim = field(default_factory=Optim)
    epochs: int = 1
    batch_size: int = 100
    width: float = 1.0
    # Weights start as the network's authors had them, or by fan-in (He), which short runs need.
    start: Literal["authors", "he"] = "authors"
    # Factor on every dropout rate of the network.
    dropout: float = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    # Epochs between two evaluations on the test set; the last epoch always has one.
    test_every: int = 1
    # Assignments among which the validation rows decide, such as the slopes of a leaky ReLU.
    choices: tuple[str, ...] = ()
    scale: str = "paper"
    title: str = ""
    published: Published | None = None
    provenance: str = ""
    cost: Cost | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "test_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


# What a run's numbers do not depend on; not to be overridden either.
_DESCRIPTIVE = ("name", "title", "published", "provenance", "cost", "scale", "choices")

Frozen = TypeVar("Frozen", bound=Experiment | Data | Optim | Activation)


def override(experiment: Experiment, assignment: str) -> Experiment:
    """Return the experiment with one setting changed.

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
    return _set(experiment, key.strip().split("."), text.strip(), key.strip())


def _set(value: Frozen, path: list[str], text: str, key: str) -> Frozen:
    hints = typing.get_type_hints(type(value))
    name, *rest = path
    # A data set's name is a setting, the experiment's is not.
    fixed = _DESCRIPTIVE if isinstance(value, Experiment) else ()
    if name not in hints or (not rest and name in fixed):
        raise ValueError(_unknown(name, [hint for hint in hints if hint not in fixed]))
    changed: object
    if rest:
        current = getattr(value, name)
        if not isinstance(current, Data | Optim | Activation):
            raise ValueError(f"setting {name!r} has no parts, got {key!r}")
        changed = _set(current, rest, text, key)
    else:
        changed = parse(text, hints[name], key)
    changes: dict[str, typing.Any] = {name: changed}
    return dataclasses.replace(value, **changes)


def _unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"unknown setting {name!r}, {hint}"


def parse(text: str, hint: object, key: str) -> object:
    """Read ``text`` as a value of type ``hint``; ``key`` is for the message."""
    if hint is Activation:
        return Activation.parse(text)
    if hint is str:
        return text
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if text in arguments:
            return text
        raise ValueError(f"{key} must be one of {', '.join(map(str, arguments))}, got {text!r}")
    if origin in (types.UnionType, typing.Union):
        if type(None) in arguments and text.lower() == "none":
            return None
        hint = next(argument for argument in arguments if argument is not type(None))
        return parse(text, hint, key)
    try:
        # bool is an int to Python, but epochs=True is a mistake.
        if hint is int:
            return int(text)
        if hint is float:
            return float(text)
        if origin is tuple and arguments[0] is not str:
            return tuple((int(step), float(factor)) for step, factor in ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        pass
    raise ValueError(f"{key} must be {_describe(hint)}, got {text!r}")


def _describe(hint: object) -> str:
    if hint is int:
        return "a whole number"
    if hint is float:
        return "a number"
    if hint is bool:
        return "true or false"
    if typing.get_origin(hint) is tuple:
        return "pairs such as ((60000, 1.0), (80000, 0.1))"
    return "set part by part"


def to_dict(value: Experiment) -> dict[str, Json]:
    """Return the experiment as nested plain values, as config.json holds it.

    Example:
        >>> from_dict(to_dict(Experiment("mine", net="nin"))) == Experiment("mine", net="nin")
        True
    """
    return typing.cast("dict[str, Json]", _plain(dataclasses.asdict(value)))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def from_dict(values: Mapping[str, Json]) -> Experiment:
    """Read an experiment back from what :func:`to_dict` returned."""
    parts: dict[str, typing.Any] = dict(values)
    for name, kind in (
        ("activation", Activation),
        ("data", Data),
        ("published", Published),
        ("cost", Cost),
    ):
        if parts.get(name) is not None:
            parts[name] = kind(**parts[name])
    optim = dict(parts["optim"])
    optim["factors"] = tuple((int(step), float(factor)) for step, factor in optim["factors"])
    parts["choices"] = tuple(parts.get("choices", ()))
    return Experiment(**{**parts, "optim": Optim(**optim)})


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Json, Json]]:
    """Return the settings in which two experiments would train differently.

    Example:
        >>> mine = Experiment("mine", net="nin")
        >>> differences(mine, override(mine, "optim.lr=0.02"))
        {'optim.lr': (0.01, 0.02)}
    """
    left, right = flat(to_dict(first)), flat(to_dict(second))
    return {
        key: (left[key], right[key])
        for key in left
        if left[key] != right[key] and key.split(".")[0] not in _DESCRIPTIVE
    }


def fingerprint(experiment: Experiment) -> str:
    """Return a short name of everything that decides how an experiment trains.

    Settings at their defaults do not count, so that new ones leave old names alone.

    Example:
        >>> mine = Experiment("mine", net="nin")
        >>> fingerprint(mine) == fingerprint(dataclasses.replace(mine, title="Mine"))
        True
        >>> fingerprint(mine) == fingerprint(override(mine, "optim.lr=0.02"))
        False
    """
    defaults = flat(to_dict(Experiment("", net="")))
    changed = {
        key: value
        for key, value in flat(to_dict(experiment)).items()
        if key.split(".")[0] not in _DESCRIPTIVE and value != defaults[key]
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
