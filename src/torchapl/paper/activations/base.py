"""What an activation is to an experiment: a frozen value with a text form that builds modules."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from torchapl.optim import Steps
from torchapl.paper.catalogue import Catalogue
from torchapl.paper.values import read_value


@dataclass(frozen=True)
class Activation:
    """What follows the convolutions and linear layers of a network.

    A new one is a frozen dataclass below this one, registered by ``@ACTIVATIONS.register``. Its
    fields are its settings; all have defaults. They also make its text form: ``kind``, then after
    colons a number by its value, a choice by its name, a switch by its field's name, anything else
    as ``name=value`` (``metadata={"text": "bound"}`` shortens the name).

    Attributes:
        kind: Its name.
        title: How tables call it.
        usual: The text that the bare ``kind`` stands for; by default all fields' defaults.
        curves: The module whose parameters are learned curves, with a learning rate and a decay of
            their own; None where nothing is learned.
        curves_decay: Whether these parameters decay.

    Example:
        >>> Activation.parse("apl:5:channel").build((96, 32, 32))
        APL((96,), num_hinges=5, unit_dim=1)
        >>> str(Activation.parse("leaky:0.05"))
        'leaky:0.05'
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    usual: ClassVar[str] = ""
    curves: ClassVar[type[nn.Module] | None] = None
    curves_decay: ClassVar[bool] = True

    @property
    def is_learned(self) -> bool:
        """Whether a network with this activation learns curves."""
        return self.curves is not None

    @property
    def steps(self) -> Steps:
        """How an optimiser moves the slopes of its hinges, see :mod:`torchapl.segments`."""
        return "slopes"

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        """Return the module to follow a map of this shape.

        Args:
            unit_shape: Shape of the map without the batch, ``(C, H, W)`` or ``(C,)``.
        """
        raise NotImplementedError

    @staticmethod
    def parse(text: str) -> Activation:
        """Read an activation, such as ``relu``, ``leaky:0.05`` or ``apl:8:channel:silu``.

        Options may come in any order.

        Example:
            >>> Activation.parse("apl:1:frozen").is_learned
            False
        """
        kind, *options = text.split(":")
        activation = ACTIVATIONS.get(kind)
        if not options and activation.usual:
            return Activation.parse(activation.usual)
        settings: dict[str, Any] = {}
        for option in options:
            name, value = _read_option(activation, text, option, settings)
            if name in settings:
                raise ValueError(f"the activation {text!r} sets its {name} twice")
            settings[name] = value
        return activation(**settings)

    def __str__(self) -> str:
        parts = [self.kind]
        for label, field, hint in _options(type(self)):
            value = getattr(self, field.name)
            if _is_number(hint):
                parts.append(repr(value))
            elif value != field.default:
                is_named = hint is bool or typing.get_origin(hint) is Literal
                parts.append(
                    (label if hint is bool else value) if is_named else f"{label}={value!r}"
                )
        return ":".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return kind and settings as plain values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Activation:
        """Read an activation back from what :meth:`to_dict` returned.

        Settings that its kind does not have are left out: older configurations list those of all.
        """
        activation = ACTIVATIONS.get(values["kind"])
        names = {field.name for field in dataclasses.fields(activation)}
        return activation(**{name: values[name] for name in names if name in values})


ACTIVATIONS: Catalogue[type[Activation]] = Catalogue("activation", lambda entry: entry.kind)


def _is_number(hint: object) -> bool:
    return hint in (int, float)


def _options(
    activation: type[Activation],
) -> list[tuple[str, dataclasses.Field[Any], object]]:
    """Return the label, field and type of every setting."""
    hints = typing.get_type_hints(activation)
    fields = dataclasses.fields(activation)
    return [(field.metadata.get("text", field.name), field, hints[field.name]) for field in fields]


def _read_option(
    activation: type[Activation], text: str, option: str, taken: Mapping[str, object]
) -> tuple[str, object]:
    known = _options(activation)
    label, named, value = option.partition("=")
    for name, field, hint in known:
        if named and label == name:
            return field.name, read_value(value, hint, f"{name} of the activation {text!r}")
        if hint is bool and option == name:
            return field.name, True
        if typing.get_origin(hint) is Literal and option in typing.get_args(hint):
            return field.name, option
    for name, field, hint in known:
        if _is_number(hint) and field.name not in taken and _may_be_number(option):
            return field.name, read_value(option, hint, f"{name} of the activation {text!r}")
    raise ValueError(
        f"unknown option {option!r} in the activation {text!r}: "
        + (f"choose from {', '.join(_describe(known))}" if known else "it has none")
    )


def _may_be_number(option: str) -> bool:
    return option[:1] in tuple("+-.0123456789")


def _describe(known: Sequence[tuple[str, dataclasses.Field[Any], object]]) -> list[str]:
    texts: list[str] = []
    for name, _, hint in known:
        if typing.get_origin(hint) is Literal:
            texts += typing.get_args(hint)
        elif hint is bool or _is_number(hint):
            texts.append(name if hint is bool else f"a number for {name}")
        else:
            texts.append(f"{name}=...")
    return texts
