"""Checksums, locks, and folders that can be used; see also :mod:`torchapl.runs.atomic`."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 20


class DataError(ValueError):
    """A data file is missing, damaged or not what it should be; the message says what to do."""


def default_root() -> Path:
    """Return where data sets live unless told otherwise: the user's cache folder.

    Example:
        >>> default_root().name
        'torchapl'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchapl"


def digest(path: Path, algorithm: str, advance: Callable[[int], None] | None = None) -> str:
    """Return the hexadecimal checksum of a file, read in pieces."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            state.update(piece)
            if advance is not None:
                advance(len(piece))
    return state.hexdigest()


def make_folder(folder: Path) -> Path:
    """Create a folder and its parents; say which part of the path is a file or read-only.

    Example:
        >>> import tempfile
        >>> make_folder(Path(tempfile.mkdtemp()) / "a" / "b").is_dir()
        True
    """
    for ancestor in (folder, *folder.parents):
        if ancestor.exists():
            if not ancestor.is_dir():
                raise DataError(
                    f"{ancestor} is a file where a folder is needed; move it or take another --root"
                )
            break
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create {folder}: {error.strerror}; take another --root") from error
    return folder


def check_writable(folder: Path) -> None:
    """Refuse a folder nothing can be written to, before any work is done."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(
            f"{folder} is read-only; change its permissions, or make the set in another folder "
            "by `torchapl data fetch NAME --root FOLDER --from FILE`"
        )


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock file ``path``; other processes wait, or with ``wait=False`` are refused.

    The system releases it when the process ends in whatever way, so that no stale lock remains.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"another process is at work here: it holds {path}") from None
        yield


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Name the file and the remedy when a write fails: full disk, quota, no permission."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror or error}; nothing incomplete is ever used. "
            "Make room or take another --root, and run the same command again"
        ) from error
