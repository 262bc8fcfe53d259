"""A folder of pictures, one folder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from torchapl.paper.data.content import EventData, ImageData
from torchapl.paper.data.files import DataError
from torchapl.paper.data.own.memory import Load, arrays

_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def image_folder(path: str | Path, *, size: tuple[int, int], test_share: float = 0.2) -> Load:
    """Return the ``load`` of a folder with one folder of pictures for each class.

    Where it holds ``train`` and ``test``, these are the two splits.

    Args:
        path: Of the folder.
        size: Height and width that all pictures are brought to.
        test_share: The part that is drawn for testing, where there is no ``test``.
    """

    def load(root: Path) -> ImageData | EventData:
        folder = Path(path) if Path(path).is_dir() else root / path
        if (folder / "train").is_dir() and (folder / "test").is_dir():
            train, test = (_pictures(folder / split, size) for split in ("train", "test"))
            return arrays(*train, test=test)(root)
        return arrays(*_pictures(folder, size), test_share=test_share)(root)

    return load


def _pictures(folder: Path, size: tuple[int, int]) -> tuple[np.ndarray[Any, Any], list[str]]:
    from PIL import Image

    files = [file for file in sorted(folder.glob("*/*")) if file.suffix.lower() in _PICTURES]
    if not files:
        raise DataError(f"{folder} has no folders with pictures ({', '.join(_PICTURES)}) in them")
    pictures = []
    for file in files:
        with Image.open(file) as picture:
            scaled = picture.convert("RGB").resize((size[1], size[0]))
            pictures.append(np.asarray(scaled).transpose(2, 0, 1))
    return np.stack(pictures), [file.parent.name for file in files]
