"""Things by name: activations, networks, data sets and experiments, built in or your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

Entry = TypeVar("Entry")
_Given = TypeVar("_Given")


class Catalogue(Generic[Entry]):
    """Entries by their names; what is built in registers the same way as what you add.

    Args:
        what: One of them, for messages.
        name_of: Returns an entry's name.

    Attributes:
        entries: All of them, in the order of registration.

    Example:
        >>> colours = Catalogue("colour", str.lower)
        >>> colours.register("Red")
        'Red'
        >>> colours.get("red"), list(colours)
        ('Red', ['red'])
        >>> colours.get("rad")
        Traceback (most recent call last):
        ValueError: unknown colour 'rad', did you mean 'red'?
    """

    def __init__(self, what: str, name_of: Callable[[Entry], str]) -> None:
        self.what, self._name_of = what, name_of
        self.entries: dict[str, Entry] = {}

    def register(self, entry: _Given) -> _Given:
        """Add an entry and return it, so that this can decorate a class.

        Raises:
            ValueError: If there is one of that name.
        """
        name = self._name_of(entry)  # type: ignore[arg-type]  # _Given is Entry or a subclass of it
        if name in self.entries:
            raise ValueError(f"there is a {self.what} {name!r} already: choose another name")
        self.entries[name] = entry  # type: ignore[assignment]  # likewise
        return entry

    def get(self, name: str) -> Entry:
        """Return the entry of this name.

        Raises:
            ValueError: If there is none; the message names the nearest ones.
        """
        if name in self.entries:
            return self.entries[name]
        raise ValueError(unknown(self.what, name, list(self.entries)))

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def unknown(what: str, name: str, known: list[str], above: str = "") -> str:
    """Return the message about a name that is not known: the nearest ones, or all of a few.

    Args:
        what: A thing of that kind.
        name: That is not known.
        known: The names of the others.
        above: Stands before all names, such as ``optim.``.

    Example:
        >>> unknown("scale", "labb", ["paper", "lab"])
        "unknown scale 'labb', did you mean 'lab'?"
    """
    # A part of a name is meant to be the name: `lr` is `optim.lr`.
    near = [other for other in known if other.endswith(f".{name}")]
    near = near or get_close_matches(name, known, n=3)
    if near:
        hint = f"did you mean {' or '.join(repr(above + other) for other in near)}?"
    else:
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        hint = f"there are {', '.join(above + other for other in known[:20]) or 'none'}{more}"
    return f"unknown {what} {above + name!r}, {hint}"
