"""What is fuzzed: each target reads bytes as what its name says, and may refuse them in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Seeds = Callable[[Path], list[bytes]]


@dataclass(frozen=True)
class Target:
    """Reads bytes; ``seeds`` are inputs to begin with, ``refusals`` what it may raise."""

    read: Callable[[bytes, Path], None]
    refusals: tuple[type[Exception], ...]
    seeds: Seeds
    share: int


TARGETS: dict[str, Target] = {}


def target(
    *refusals: type[Exception], seeds: Seeds, share: int = 1
) -> Callable[[Callable[[bytes, Path], None]], None]:
    """Register a function; ``share`` of all inputs come to it, more where it is fast."""

    def register(read: Callable[[bytes, Path], None]) -> None:
        TARGETS[read.__name__] = Target(read, refusals, seeds, share)

    return register


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
