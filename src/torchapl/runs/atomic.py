"""Files replaced as a whole: whatever happens, a reader sees the old or the new content."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_PARTIAL = ".{name}.{unique}.partial"


class WriteError(OSError):
    """A file could not be written: full disk, quota, no permission. What was there is whole.

    Args:
        path: The file.
        cause: What the system said.
    """

    def __init__(self, path: Path, cause: OSError) -> None:
        reason = cause.strerror or str(cause)
        super().__init__(
            f"cannot write {path}: {reason}; what was written before is whole, so mend that and "
            "repeat the command"
        )
        self.errno, self.strerror, self.path = cause.errno, reason, path

    def __reduce__(self) -> tuple[type[WriteError], tuple[Path, OSError]]:
        # OSError's own would call with the message alone, in another process.
        return type(self), (self.path, OSError(self.errno, self.strerror))

    def __str__(self) -> str:
        # With errno set, OSError would begin with its number.
        return str(self.args[0])


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file under another name, see it to the disk, and rename it.

    Several processes may write the same file: one of their contents stays, whole.

    Raises:
        WriteError: If the system refuses; the file is as it was.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_atomic(folder / "a.txt", b"whole")
        >>> [(path.name, path.read_text()) for path in folder.iterdir()]
        [('a.txt', 'whole')]
    """
    partial = path.with_name(_PARTIAL.format(name=path.name, unique=secrets.token_hex(4)))
    try:
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as error:
        raise WriteError(path, error) from error


def remove_partials(folder: Path) -> None:
    """Remove what killed writers left behind; nobody else may be writing to the folder."""
    for partial in folder.glob(_PARTIAL.format(name="*", unique="*")):
        partial.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """See a rename to the disk: it is durable only once the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
