"""Loads the compiled CPU kernels and says which implementation serves which device."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor


class Backend(NamedTuple):
    """What serves one kind of device, and why."""

    implementation: str
    reason: str


_failure: str | None = "not loaded yet"
_explained = False


def load() -> None:
    """Load the extension; remember why it could not be loaded."""
    global _failure
    try:
        import torchapl.ops._C  # noqa: F401  # registers the CPU kernels
    except ImportError as error:
        _failure = str(error)
    else:
        _failure = None


def is_loaded() -> bool:
    """Tell whether the compiled kernels and their autograd serve."""
    return _failure is None


def explain_once(input: Tensor) -> None:
    """Warn, the first time the CPU runs the slow definition, that it does and why."""
    global _explained
    if input.device.type != "cpu" or _failure is None or _explained:
        return
    _explained = True
    warnings.warn(
        f"torchapl runs its plain PyTorch definition on the CPU, several times slower: {_failure}. "
        "With a C++ compiler, 'pip install --no-build-isolation torchapl' builds the kernels.",
        stacklevel=4,
    )


def backends() -> dict[str, Backend]:
    """Tell which implementation serves which device, with the reason."""
    if _failure is None:
        cpu = Backend("C++", "compiled with the package")
    else:
        cpu = Backend("reference", _failure)
    if not torch.cuda.is_available():
        return {"cpu": cpu}
    return {"cpu": cpu, "cuda": Backend("Triton", "compiled at the first call")}
