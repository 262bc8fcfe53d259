"""What was swapped, as a value: printed as a table, kept as JSON, enough to rebuild the model."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

Constant = None | bool | int | float | str
_DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Swap:
    """One activation call that now goes through units.

    Attributes:
        name: Where the units are, as in ``model.get_submodule(name)``.
        kind: What they replaced.
        unit_shape: See :class:`torchapl.APL`.
        unit_dim: See :class:`torchapl.APL`.
        num_hinges: See :class:`torchapl.APL`.
        num_parameters: How many parameters came with them.
        error: Largest difference from the replaced function on the observed range of inputs.
        interval: That range.
        affine: Whether the units have an affine map around them, as for functions that are not x on
            the right (:class:`torchapl.curves.AffineAPL`).
        dtype: Of their parameters.
        aliases: Other names of the same units.
    """

    name: str
    kind: str
    unit_shape: tuple[int, ...]
    unit_dim: int
    num_hinges: int
    num_parameters: int
    error: float
    interval: tuple[float, float]
    affine: bool = False
    dtype: str = "float32"
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """A module whose forward was rewritten, because the calls in it are no modules of their own.

    Attributes:
        module: Its name, ``""`` for the model itself.
        units: The calls that were replaced: their names in the traced graph, then the names of the
            units in the module.
        constants: Arguments of its forward that keep the value which the example inputs gave them.
        dropped: Activation modules that it no longer calls.
        aliases: Other names of the same module.
    """

    module: str
    units: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...] = ()
    dropped: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Left:
    """An activation call that stays as it was.

    Attributes:
        name: Where it is made.
        kind: What is called.
        place: File and line.
        reason: Why it was left.
    """

    name: str
    kind: str
    place: str
    reason: str


@dataclass(frozen=True)
class SwapReport:
    """What :func:`torchapl.swap_activations` did to a model.

    Attributes:
        swaps: The calls that go through units now.
        rewrites: The modules that had to be rewritten for it.
        left: The calls that stay as they were, with the reason.
        output_error: Largest difference of the outputs on the example inputs, before and after.
        output_size: Largest output on the example inputs, to compare it with.

    Example:
        >>> from torchapl import swap_activations
        >>> model = swap_activations(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.randn(2, 4))
        >>> print(describe(model))
        name  kind  unit shape  hinges  parameters  error
        1     ReLU  (8,)             8         128      0
        1 call swapped, 128 parameters added, outputs differ by 0 on the example
        >>> SwapReport.from_json(describe(model).to_json()) == describe(model)
        True
    """

    swaps: tuple[Swap, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    left: tuple[Left, ...] = ()
    output_error: float = 0.0
    output_size: float = 0.0

    @property
    def num_parameters(self) -> int:
        """How many parameters the units brought."""
        return sum(swap.num_parameters for swap in self.swaps)

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> SwapReport:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: If it is anything else.
        """
        try:
            data = json.loads(text)
            report = cls(
                swaps=tuple(Swap(**_tuples(entry)) for entry in data["swaps"]),
                rewrites=tuple(Rewrite(**_tuples(entry)) for entry in data["rewrites"]),
                left=tuple(Left(**entry) for entry in data["left"]),
                output_error=data["output_error"],
                output_size=data.get("output_size", 0.0),
            )
            for described in (report, *report.swaps, *report.rewrites, *report.left):
                _check_types(described)
            for swap in report.swaps:
                if swap.dtype not in _DTYPES:
                    raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                "the description must be what describe(model).to_json() returned, got "
                f"{text[:50]!r}...: {type(error).__name__}: {error}"
            ) from error
        return report

    def under(self, prefix: str) -> SwapReport:
        """Return the report for a model that holds the described one at ``prefix``."""
        return self.renamed(lambda name: ".".join(filter(None, (prefix, name))))

    def renamed(self, rename: Callable[[str], str]) -> SwapReport:
        """Return the report for a model whose modules have other names."""

        def all_renamed(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(rename(name) for name in names)

        return replace(
            self,
            swaps=tuple(
                replace(swap, name=rename(swap.name), aliases=all_renamed(swap.aliases))
                for swap in self.swaps
            ),
            rewrites=tuple(
                replace(entry, module=rename(entry.module), aliases=all_renamed(entry.aliases))
                for entry in self.rewrites
            ),
            left=tuple(replace(entry, name=rename(entry.name)) for entry in self.left),
        )

    def also_named(self, names_of: Callable[[str], Sequence[str]]) -> SwapReport:
        """Return the report for a model that has what is described under more names.

        Args:
            names_of: Returns all names of the module that has the given one; may be empty.
        """

        def others(name: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
            known = (name, *aliases)
            return (*aliases, *(other for other in names_of(name) if other not in known))

        return replace(
            self,
            swaps=tuple(
                replace(swap, aliases=others(swap.name, swap.aliases)) for swap in self.swaps
            ),
            rewrites=tuple(
                replace(entry, aliases=others(entry.module, entry.aliases))
                for entry in self.rewrites
            ),
        )

    def parts(self) -> Iterator[SwapReport]:
        """Yield what can be carried out alone: each rewrite with its units, each other swap."""
        rewritten: set[str] = set()
        for entry in self.rewrites:
            names = {".".join(filter(None, (entry.module, unit))) for _, unit in entry.units}
            rewritten |= names
            yield SwapReport(tuple(swap for swap in self.swaps if swap.name in names), (entry,))
        yield from (SwapReport((swap,)) for swap in self.swaps if swap.name not in rewritten)

    def beside(self, other: SwapReport) -> SwapReport:
        """Return the report of two parts of a model."""
        return SwapReport(
            self.swaps + other.swaps,
            self.rewrites + other.rewrites,
            self.left + other.left,
            max(self.output_error, other.output_error),
            max(self.output_size, other.output_size),
        )

    def then(self, other: SwapReport) -> SwapReport:
        """Return the report of two swaps of a model, one after the other."""
        # What the first left the second may have swapped, or left again.
        return replace(self.beside(other), left=other.left)

    def __str__(self) -> str:
        lines = _aligned(list(self._rows()), right=(3, 4, 5)) if self.swaps else []
        lines.append(self._summary())
        if self.left:
            lines += ["left as they were:"]
            lines += ["  " + line for line in _aligned([_left_row(entry) for entry in self.left])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        table = _html_table(head, rows) if rows else ""
        left = _html_table(("left", "kind", "place", "reason"), [_left_row(e) for e in self.left])
        return table + f"<p>{html.escape(self._summary())}</p>" + (left if self.left else "")

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield ("name", "kind", "unit shape", "hinges", "parameters", "error")
        for swap in self.swaps:
            name = " = ".join((swap.name, *swap.aliases))
            counts = (str(swap.num_hinges), f"{swap.num_parameters:,}", f"{swap.error:.2g}")
            yield (name, swap.kind, str(swap.unit_shape), *counts)

    def _summary(self) -> str:
        calls = "1 call" if len(self.swaps) == 1 else f"{len(self.swaps)} calls"
        difference = f"{self.output_error:.2g}"
        if 0 < self.output_error < math.inf and self.output_size > 0:
            difference += f" ({self.output_error / self.output_size:.2%} of the largest)"
        return (
            f"{calls} swapped, {self.num_parameters:,} parameters added, outputs differ by "
            f"{difference} on the example"
        )


def _left_row(entry: Left) -> tuple[str, ...]:
    return (entry.name, entry.kind, entry.place, entry.reason)


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuple(value) for key, value in entry.items()}


def _tuple(value: object) -> object:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _check_types(described: object) -> None:
    for name, hint in get_type_hints(type(described)).items():
        value = getattr(described, name)
        if not _fits(value, hint):
            raise TypeError(f"{name} of {type(described).__name__} cannot be {value!r}")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value of JSON, with tuples for lists, is of the type of a field."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        return len(kinds) == len(value) and all(map(_fits, value, kinds))
    if parts:
        return any(_fits(value, part) for part in parts)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)
