"""Gets the published files: resumed downloads, checked before use, moved into place in one step."""

from __future__ import annotations

import http.client
import os
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from shutil import rmtree

from torchapl.paper.data.catalogue import Download, ImageForm
from torchapl.paper.data.cifar import read_checked
from torchapl.paper.data.files import (
    DataError,
    check_writable,
    digest,
    explaining,
    locked,
    make_folder,
)

_CHUNK = 1 << 18
_TIMEOUT = 30.0
# Attempts in a row that bring nothing before giving up, and the pause between them in seconds.
_ATTEMPTS, _PAUSE = 3, 1.0

# Called with the bytes that are there and the bytes there will be, if known.
Report = Callable[[int, int | None], None]


def download(item: Download, folder: Path, report: Report | None = None) -> Path:
    """Download a file unless it is there; return its path once size and checksum are right.

    The bytes go to ``NAME.part``, which a later call resumes, and which gets its name only when
    it has been checked. Of two processes one downloads, the other waits for it.

    Raises:
        DataError: The server cannot be reached (says which file to put where), the content is
            wrong, the disk is full, or the folder cannot be used.
    """
    make_folder(folder)
    target = folder / item.name
    if target.exists():
        check_file(target, item)
        return target
    check_writable(folder)
    with locked(folder / f".{item.name}.lock"):
        if target.exists():  # another process was faster
            check_file(target, item)
            return target
        partial = folder / f"{item.name}.part"
        if partial.exists() and not partial.is_file():
            raise DataError(f"{partial} should be a file: the part of a download; move it away")
        _fill(partial, item, target, report)
        try:
            check_file(partial, item)
        except DataError:
            # Resuming could never mend it.
            partial.unlink()
            raise
        partial.replace(target)
    return target


def check_file(path: Path, item: Download) -> None:
    """Compare a downloaded file with the published size and checksum."""
    if not path.is_file():
        raise DataError(f"{path} should be a file; move it away")
    size = path.stat().st_size
    if item.size is not None and size != item.size:
        raise DataError(
            f"{path} has {size} bytes, {item.size} were published: it is damaged or another file; "
            "remove it and fetch again"
        )
    if item.checksum is not None:
        algorithm = "md5" if len(item.checksum) == 32 else "sha256"
        actual = digest(path, algorithm)
        if actual != item.checksum:
            raise DataError(
                f"{path} is damaged: its {algorithm} is {actual}, published is {item.checksum}; "
                "remove it and fetch again"
            )


def _fill(partial: Path, item: Download, target: Path, report: Report | None) -> None:
    """Append to the partial file until the server has no more; each attempt resumes the last."""
    failures = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            _attempt(partial, item, report)
            return
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            size = partial.stat().st_size if partial.exists() else 0
            failures = failures + 1 if size <= before else 0
            permanent = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if permanent or failures >= _ATTEMPTS:
                raise DataError(
                    f"cannot download {item.url}: {error}. Get this file elsewhere, put it there "
                    f"as {target}, and run the same command again"
                ) from error
        time.sleep(_PAUSE * failures)


def _attempt(partial: Path, item: Download, report: Report | None) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    if item.size is not None and have >= item.size:
        return
    request = urllib.request.Request(item.url, headers={"User-Agent": "torchapl"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:
                raise
        # Nothing beyond what we have: the file is complete, or another one. The check will tell.
        return
    with response:
        ranges = response.headers.get("Content-Range", "")
        if response.status != 206 or not ranges.startswith(f"bytes {have}-"):
            if response.status == 206:
                raise ConnectionError(f"asked for bytes from {have} on, got {ranges or 'others'}")
            have = 0  # the server ignores ranges: begin again
        expected = item.size
        length = response.headers.get("Content-Length")
        if length is not None:
            if not length.isdecimal():
                raise ConnectionError(f"the server announced {length!r} bytes")
            expected = have + int(length)
            _refuse_longer(expected, item, partial)
        with partial.open("r+b" if have else "wb", buffering=0) as file:
            file.seek(have)
            while piece := response.read(_CHUNK):
                _refuse_longer(have + len(piece), item, partial)
                # Only writing is explained: what reading raises is the network's, and tried again.
                with explaining(partial):
                    _write_all(file.fileno(), memoryview(piece))
                have += len(piece)
                if report is not None:
                    report(have, expected)
            os.fsync(file.fileno())
    if expected is not None and have < expected:
        raise ConnectionError(f"the connection broke after {have} of {expected} bytes")


def _refuse_longer(size: int, item: Download, partial: Path) -> None:
    """Stop at the published size: what is longer is another file, and its part no use."""
    if item.size is not None and size > item.size:
        partial.unlink(missing_ok=True)
        raise DataError(
            f"{item.url} is larger than the {item.size} bytes that were published: it is another "
            "file, and was not taken. Get the published one elsewhere"
        )


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def unpack(archive: Path, form: ImageForm, root: Path) -> Path:
    """Unpack an image set's archive; return its folder, which appears only whole and checked.

    Nothing but plain files with the expected names is ever written, whatever the archive holds. An
    archive with a member that points outside its folder is refused altogether.
    """
    final = root / form.folder
    with locked(root / f".{form.folder}.lock"):
        if final.exists():
            return final
        scratch = root / f".{form.folder}.partial"
        rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            with explaining(scratch):
                _unpack_members(archive, form, scratch)
            for file in (*form.train, *form.test):
                read_checked(scratch / file.name, file)
            scratch.rename(final)
        finally:
            rmtree(scratch, ignore_errors=True)
    return final


def _unpack_members(archive: Path, form: ImageForm, scratch: Path) -> None:
    wanted = {file.name for file in (*form.train, *form.test)}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if (
                    path.is_absolute()
                    or ".." in path.parts
                    or not (member.isfile() or member.isdir())
                ):
                    raise DataError(
                        f"{archive} is refused: its member {member.name!r} is a link or points "
                        "outside the folder"
                    )
                if path.parent == PurePosixPath(form.folder) and path.name in wanted:
                    content = tar.extractfile(member)
                    if content is not None:
                        (scratch / path.name).write_bytes(content.read())
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{archive} is damaged: {error}") from error
