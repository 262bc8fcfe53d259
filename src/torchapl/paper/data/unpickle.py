"""Reads the pickled form of CIFAR without running anything a pickle could name.

Unpickling calls whatever the file asks for. Here the three names that the official files use
resolve to inert records, every other name is refused, and the array is built afterwards from
checked bytes. Not even NumPy's own constructors are reachable.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np
import numpy.typing as npt

from torchapl.paper.data.files import DataError


class _Record:
    """Stands for ``numpy.ndarray`` or ``numpy.dtype``: remembers its arguments, does nothing."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Record,
    ("numpy._core.multiarray", "_reconstruct"): _Record,
    ("numpy", "ndarray"): _Record,
    ("numpy", "dtype"): _Record,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise DataError(
                f"refused: the pickle asks for {module}.{name}, which no CIFAR file "
                "needs; it is not to be trusted"
            ) from None

    def persistent_load(self, pid: object) -> Any:
        raise DataError("refused: the pickle refers to objects outside itself")


def read_pickled(content: bytes, label_key: str) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Return pixels ``(n, 3072)`` and labels of one pickled CIFAR batch.

    Args:
        content: The file's bytes.
        label_key: ``"labels"`` (CIFAR-10) or ``"fine_labels"`` (CIFAR-100).

    Raises:
        DataError: The pickle is damaged, asks for anything but plain arrays, or holds something
            else.
    """
    try:
        _check_memo(content)
        batch = _Restricted(io.BytesIO(content), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise DataError(f"not a readable pickle: {type(error).__name__}: {error}") from error
    if not isinstance(batch, dict):
        raise DataError(f"the pickle holds {type(batch).__name__}, expected a dictionary")
    pixels, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", label_key))
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"the pickle has no list of whole numbers under {label_key!r}")
    return _array(pixels), labels


def _check_memo(content: bytes) -> None:
    # The unpickler makes room for all numbers up to the largest: six bytes can ask for 30 GB.
    for opcode, number, _ in pickletools.genops(content):
        if opcode.name not in ("PUT", "BINPUT", "LONG_BINPUT"):
            continue
        if int(number or 0) > len(content):
            raise DataError(
                f"refused: the pickle of {len(content)} bytes numbers an object {number}"
            )


def _array(record: object) -> npt.NDArray[np.uint8]:
    state = record.state if isinstance(record, _Record) else None
    if not isinstance(state, tuple) or len(state) != 5:
        raise DataError("the pickle has no array under 'data'")
    _, shape, kind, fortran, raw = state
    code = kind.arguments[:1] if isinstance(kind, _Record) else ()
    if code not in ((b"u1",), ("u1",)) or not isinstance(raw, bytes) or fortran not in (0, 1):
        raise DataError("the array under 'data' does not hold bytes")
    if not (isinstance(shape, tuple) and len(shape) == 2 and shape[1] == 3072):
        raise DataError(f"the array under 'data' has shape {shape}, expected (n, 3072)")
    if not isinstance(shape[0], int) or len(raw) != shape[0] * 3072:
        raise DataError(
            f"the array under 'data' has {len(raw)} bytes, its shape {shape} needs more or fewer"
        )
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
