"""Files that carry checksums: JSON, lines of JSON, tensors. What was changed is not believed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor

from torchapl.runs.atomic import WriteError, write_atomic

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

CHECKSUM = "checksum"
_DIGITS = 16


class DamagedError(ValueError):
    """A file is not what a run wrote.

    Args:
        path: The file.
        reason: What is wrong with it.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@dataclass(frozen=True)
class Record:
    """The content of a file or line, and whether a checksum vouches for it."""

    values: dict[str, Json]
    is_sealed: bool


def sealed(values: Mapping[str, Json], after: str = "") -> dict[str, Json]:
    """Return the values with their checksum.

    Args:
        values: Anything that JSON holds.
        after: The checksum of what came before, where the order counts.

    Example:
        >>> sealed({"seed": 0})
        {'seed': 0, 'checksum': 'bd0488843468e63c'}
    """
    return {**values, CHECKSUM: _checksum(values, after)}


def unsealed(values: Mapping[str, Json], after: str = "") -> Record:
    """Return the values without their checksum; those of older versions have none.

    Raises:
        ValueError: If the checksum is not theirs.
    """
    content = dict(values)
    known = content.pop(CHECKSUM, None)
    if known is not None and known != _checksum(content, after):
        raise ValueError("does not match its checksum: it was changed after it was written")
    return Record(content, known is not None)


def _checksum(values: Mapping[str, Json], after: str) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{after}{text}".encode()).hexdigest()[:_DIGITS]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give what is wrong with a file's content the file's name."""
    try:
        yield
    except DamagedError:
        raise
    except UnicodeDecodeError as error:
        raise DamagedError(path, "is not text in UTF-8") from error
    except RecursionError as error:
        raise DamagedError(path, "is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise DamagedError(path, f"is not JSON: {error}") from error
    except KeyError as error:
        raise DamagedError(path, f"has no {error}") from error
    except (ValueError, TypeError) as error:
        raise DamagedError(path, str(error)) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedError(path, f"cannot be read: {error.strerror or error}") from error


def write_json(path: Path, values: Mapping[str, Json]) -> None:
    """Write readable JSON with a checksum, atomically."""
    write_atomic(path, (json.dumps(sealed(values), indent=2) + "\n").encode())


def read_json(path: Path) -> Record:
    """Read what :func:`write_json` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedError: If it holds anything else.
    """
    with naming(path):
        return unsealed(_object(path.read_text(encoding="utf-8")))


def _object(text: str) -> dict[str, Json]:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise TypeError(f"holds {type(values).__name__}, not an object with names")
    return values


def append_line(path: Path, values: Mapping[str, Json], after: str) -> tuple[bytes, str]:
    """Append a line of JSON, see it to the disk, and return it with its checksum.

    Args:
        path: The file; made if there is none.
        values: The line.
        after: The checksum of the line before, nothing for the first one.
    """
    content = sealed(values, after)
    line = (json.dumps(content) + "\n").encode()
    try:
        with path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(path, error) from error
    return line, str(content[CHECKSUM])


def read_lines(path: Path) -> list[dict[str, Json]]:
    """Return the lines of a file; none where there is no file.

    A last line that a kill cut short, one without an end, is left out.

    Raises:
        DamagedError: If any other line is not as it was written, where it was written.
    """
    try:
        with naming(path):
            content = path.read_bytes()
    except FileNotFoundError:
        return []
    return [values for values, _ in parse_lines(path, content)]


def parse_lines(path: Path, content: bytes) -> Iterator[tuple[dict[str, Json], str]]:
    """Yield lines and their checksums, empty for those of older versions.

    Raises:
        DamagedError: At the first line that is not as it was written.
    """
    before = ""
    for number, text in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            with naming(path):
                values = _object(text.decode())
                record = unsealed(values, before)
        except DamagedError as error:
            raise DamagedError(path, f"line {number}: {error.reason}") from error
        before = str(values.get(CHECKSUM, ""))
        yield record.values, before


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors with a checksum, atomically."""
    content = _safetensors().save(dict(tensors))
    checksum = _tensor_checksum(content)[0]
    write_atomic(path, _safetensors().save(dict(tensors), metadata={CHECKSUM: checksum}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what :func:`write_tensors` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedError: If it holds anything else.
    """
    with naming(path):
        content = path.read_bytes()
        actual, known = _tensor_checksum(content)
        if known is not None and known != actual:
            raise ValueError("does not match its checksum: it was changed after it was written")
        try:
            tensors: dict[str, Tensor] = _safetensors().load(content)
        except Exception as error:
            raise ValueError(f"is not a file of tensors: {error}") from error
        return tensors


def _tensor_checksum(content: bytes) -> tuple[str, object]:
    """Return the checksum of a file's header and data, and the one that the file carries."""
    # The file starts with the length of its JSON header.
    start = 8 + int.from_bytes(content[:8], "little")
    header = _object(content[8:start].decode())
    facts = header.pop("__metadata__", None)
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(memoryview(content)[start:])
    known = facts.get(CHECKSUM) if isinstance(facts, dict) else None
    return digest.hexdigest()[:_DIGITS], known


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError(f"curves are stored with 'pip install safetensors': {error}") from error
    return safetensors.torch


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers_of(values: Mapping[str, Json], names: Iterable[str]) -> dict[str, float]:
    """Return some of the values, which must be numbers."""
    numbers: dict[str, float] = {}
    for name in names:
        value = values[name]
        if not is_number(value):
            raise TypeError(f"{name} must be a number, got {value!r}")
        numbers[name] = value
    return numbers
