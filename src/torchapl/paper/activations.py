"""The activation of a network as a value: written as text, built where it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from torch import nn

from torchapl import APL, init
from torchapl.modules import Sharing, Start

Kind = Literal["relu", "leaky", "prelu", "silu", "gelu", "apl"]
StartName = Literal["authors", "relu", "leaky"]

_BOUND = "bound="
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Activation:
    """What follows the convolutions and linear layers of a network.

    Args:
        kind: ``"apl"`` and ``"prelu"`` (per channel) are learned, the others are fixed.
        negative_slope: The slope k of a leaky ReLU left of 0; may be negative, as in the paper.
        num_hinges: The S of APL.
        per: What shares one APL curve.
        start: Starting curves of APL, see :mod:`torchapl.init`.
        slope_bound: The r of the authors' start, see :func:`torchapl.init.authors_`.
        frozen: Leave the APL curves at their start, the paper's control.

    Example:
        >>> Activation.parse("apl:5:channel").per
        'channel'
        >>> str(Activation("leaky", negative_slope=0.05))
        'leaky:0.05'
        >>> Activation.parse("apl:2").build((96, 32, 32))
        APL((96, 32, 32), num_hinges=2, unit_dim=1)
    """

    kind: Kind = "relu"
    negative_slope: float = 0.0
    num_hinges: int = 1
    per: Sharing = "unit"
    start: StartName = "authors"
    slope_bound: float | None = None
    frozen: bool = False

    def __post_init__(self) -> None:
        for name, choices in (("kind", Kind), ("per", Sharing), ("start", StartName)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(
                    f"{name} must be one of {', '.join(get_args(choices))}, "
                    f"got {getattr(self, name)!r}"
                )
        if self.num_hinges < 1:
            raise ValueError(f"num_hinges must be at least 1, got {self.num_hinges}")
        if self.slope_bound is not None and not self.slope_bound > 0:
            raise ValueError(f"slope_bound must be positive, got {self.slope_bound}")

    @classmethod
    def parse(cls, text: str) -> Activation:
        """Read ``relu``, ``leaky:K``, ``prelu``, ``silu``, ``gelu`` or ``apl:S[:option...]``.

        The options of APL, in any order: ``unit``, ``channel`` or ``layer`` (sharing); ``authors``,
        ``relu`` or ``leaky`` (start); ``bound=R`` (range of the authors' start); ``frozen``.

        Example:
            >>> Activation.parse("apl:1:unit:frozen").frozen
            True
        """
        kind, *options = text.split(":")
        if kind == "apl" and options:
            return _parse_apl(text, options)
        if kind == "leaky" and len(options) == 1:
            slope = _number(text, options[0], float, "a slope")
            return cls("leaky", negative_slope=slope)
        if kind in ("relu", "prelu", "silu", "gelu") and not options:
            return cls(kind)  # type: ignore[arg-type]  # mypy does not narrow by membership
        raise ValueError(
            f"cannot read the activation {text!r}: write relu, leaky:0.05, prelu, silu, gelu or "
            "apl:2 with options as in apl:2:channel:leaky, apl:1:unit:frozen, apl:5:unit:bound=0.5"
        )

    def __str__(self) -> str:
        if self.kind == "leaky":
            return f"leaky:{self.negative_slope!r}"
        if self.kind != "apl":
            return self.kind
        options: list[str] = [self.start] if self.start != "authors" else []
        options += [] if self.slope_bound is None else [f"{_BOUND}{self.slope_bound!r}"]
        options += ["frozen"] if self.frozen else []
        sharing = [self.per] if options or self.per != "unit" else []
        return ":".join(["apl", str(self.num_hinges), *sharing, *options])

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        """Return the module to follow a map of this shape.

        Args:
            unit_shape: Shape of the map without the batch, ``(C, H, W)`` or ``(C,)``.

        Example:
            >>> Activation("leaky", negative_slope=0.2).build((274,))
            LeakyReLU(negative_slope=0.2)
        """
        if self.kind == "apl":
            return self._build_apl(unit_shape)
        modules: dict[str, Callable[[], nn.Module]] = {
            "relu": nn.ReLU,
            "leaky": partial(nn.LeakyReLU, self.negative_slope),
            "prelu": partial(nn.PReLU, unit_shape[0]),
            "silu": nn.SiLU,
            "gelu": nn.GELU,
        }
        return modules[self.kind]()

    def _build_apl(self, unit_shape: tuple[int, ...]) -> APL:
        shapes = {"unit": unit_shape, "channel": unit_shape[:1], "layer": ()}
        starts: dict[str, Start] = {
            "authors": partial(init.authors_, slope_bound=self.slope_bound),
            "relu": init.relu_,
            "leaky": init.leaky_,
        }
        unit = APL(shapes[self.per], self.num_hinges, init=starts[self.start])
        return unit.requires_grad_(not self.frozen)


def _parse_apl(text: str, options: list[str]) -> Activation:
    settings: dict[str, Any] = {}
    for option in options[1:]:
        field, value = _apl_option(text, option)
        if field in settings:
            raise ValueError(f"the activation {text!r} sets its {field} twice")
        settings[field] = value
    num_hinges = _number(text, options[0], int, "a number of hinges")
    return Activation("apl", num_hinges=num_hinges, **settings)


def _apl_option(text: str, option: str) -> tuple[str, str | float | bool]:
    if option == "frozen":
        return "frozen", True
    if option in get_args(Sharing):
        return "per", option
    if option in get_args(StartName):
        return "start", option
    if option.startswith(_BOUND):
        return "slope_bound", _number(text, option.removeprefix(_BOUND), float, "a bound")
    choices = (*get_args(Sharing), *get_args(StartName), f"{_BOUND}R", "frozen")
    raise ValueError(
        f"unknown option {option!r} in the activation {text!r}: choose from {', '.join(choices)}"
    )


def _number(text: str, value: str, kind: type[_Number], meaning: str) -> _Number:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"expected {meaning} in the activation {text!r}, got {value!r}") from None
