"""A complete little image set in both published forms, and a server to fetch it from."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from torchapl.paper.data.catalogue import ImageForm, ImageSet


def tar_bytes(
    members: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if change is not None:
                change(info)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@dataclass
class Tiny:
    """A complete little image set in both published forms, with its archives' bytes."""

    images: ImageSet
    pixels: np.ndarray
    labels: np.ndarray
    members: dict[str, dict[str, bytes]] = field(default_factory=dict)
    archives: dict[str, bytes] = field(default_factory=dict)

    def form(self, kind: str) -> ImageForm:
        return next(form for form in self.images.forms if form.kind == kind)

    def unpack(self, kind: str, root: Path) -> Path:
        folder = root / self.form(kind).folder
        folder.mkdir(parents=True)
        for name, content in self.members[kind].items():
            (folder / name).write_bytes(content)
        return folder

    def served(self, kind: str, url: str) -> ImageSet:
        forms = tuple(
            replace(form, archive=replace(form.archive, url=url)) if form.kind == kind else form
            for form in self.images.forms
        )
        return replace(self.images, forms=forms)


def pickled(pixels: np.ndarray, labels: list[int], key: str = "labels") -> bytes:
    """Write a batch with the keys of the python form."""
    return pickle.dumps({b"data": pixels, key.encode(): labels}, protocol=4)


@dataclass
class Server:
    """A file server on the loopback device that misbehaves on request."""

    url: str
    content: bytes = b""
    ranges: bool = True
    # Bytes after which each of the next connections is cut; None serves the whole.
    cuts: list[int | None] = field(default_factory=list)
    status: int | None = None
    # Instead of the true Content-Length; "" sends none.
    length: str | None = None
    asked: list[str | None] = field(default_factory=list)
