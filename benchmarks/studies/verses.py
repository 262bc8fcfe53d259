"""The King James Bible, 4.2 MB of English, as Debian's package bible-kjv has it.

One chapter in twenty is held out for validation and one for the test, the same everywhere.
"""

from __future__ import annotations

import re
import subprocess
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Part = Literal["train", "valid", "test"]

EVERYTHING = "gen1:1-rev22:21"
_VERSE = re.compile(r"((?:[123])?[A-Za-z]+)(\d+):\d+ (.+)")
_HELD_OUT: dict[int, Part] = {9: "valid", 19: "test"}


class Verse(NamedTuple):
    """One verse, without its reference."""

    book: str
    chapter: int
    text: str
    part: Part


def read() -> str:
    """Return what the program ``bible`` prints: one verse in a line, after its reference."""
    try:
        answer = subprocess.run(
            ["bible", "-f", EVERYTHING], input="", capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise SystemExit("there is no program `bible`: apt-get install bible-kjv") from None
    return answer.stdout


def parse(lines: str) -> list[Verse]:
    """Split such lines into verses.

    >>> [(verse.book, verse.chapter, verse.part) for verse in parse("Ge1:1 In\\n1Jo2:3 And")]
    [('Ge', 1, 'train'), ('1Jo', 2, 'train')]
    """
    found = []
    for number, line in enumerate(lines.splitlines(), 1):
        match = _VERSE.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"line {number} is no verse: {line!r}")
        found.append((match[1], int(match[2]), match[3]))
    verses = []
    chapters = groupby(found, key=lambda verse: verse[:2])
    for index, ((book, chapter), group) in enumerate(chapters):
        part = _HELD_OUT.get(index % 20, "train")
        verses += [Verse(book, chapter, text, part) for _, _, text in group]
    return verses


def text_of(verses: list[Verse], part: Part) -> Tensor:
    """Return the bytes of a part, one verse in a line."""
    text = "".join(f"{verse.text}\n" for verse in verses if verse.part == part)
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
