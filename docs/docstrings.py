"""Turns the docstrings, written as torch.nn's with Sphinx roles, into the site's Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_MATH_BLOCK = re.compile(r"^\.\. math::\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)
_MATH = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":(?:class|func|mod|meth|attr):`~?([^`]+)`")
# "Example:" is no section of its own in the google style, "Examples:" is.
_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Return a docstring with Sphinx's notation replaced."""
    text = _MATH_BLOCK.sub(lambda found: f"$$\n{_dedented(found[1])}\n$$\n\n", text)
    text = _MATH.sub(r"$\1$", text)
    text = _ROLE.sub(r"`\1`", text)
    return _EXAMPLE.sub("Examples:", text)


def _dedented(block: str) -> str:
    return "\n".join(line.strip() for line in block.strip().splitlines())


class SphinxRoles(Extension):
    """Applies :func:`to_markdown` to every object's docstring."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)
