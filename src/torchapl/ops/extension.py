"""Loads the compiled CPU kernels and says which implementation serves which device."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor

_KERNELS = "torchapl.ops._C"


class Backend(NamedTuple):
    """What serves one kind of device, and why."""

    implementation: str
    reason: str


_failure: str | None = "not loaded yet"
_instructions = ""
_explained = False


def load() -> None:
    """Load the extension, which registers its kernels; remember why it could not be loaded."""
    global _failure, _instructions
    try:
        kernels = import_module(_KERNELS)
    except ModuleNotFoundError:
        _failure = "the package was installed without its compiled kernels"
    except ImportError as error:
        # Built for another torch or another Python: what the loader says is the best explanation.
        _failure = str(error)
    else:
        _failure = None
        _instructions = kernels.capability()


def is_loaded() -> bool:
    """Tell whether the compiled kernels and their autograd serve."""
    return _failure is None


def explain_once(input: Tensor) -> None:
    """Warn, the first time the CPU runs the slow definition, that it does and why."""
    global _explained
    if input.device.type != "cpu" or _failure is None or _explained:
        return
    _explained = True
    # No stacklevel points at the caller: the dispatcher and autograd lie between.
    warnings.warn(
        "torchapl runs its plain PyTorch definition on the CPU, which is several times slower: "
        f"{_failure}. With torch and a C++ compiler in place, 'pip install --no-build-isolation "
        "--no-deps --force-reinstall torchapl' builds the kernels.",
        stacklevel=1,
    )


def backends() -> dict[str, Backend]:
    """Tell which implementation serves which device, with the reason.

    Example:
        >>> backends()["cpu"].implementation.split()[0] in {"C++", "reference"}
        True
    """
    if _failure is None:
        cpu = Backend(f"C++ ({_instructions})", "compiled with the package")
    else:
        cpu = Backend("reference", _failure)
    if not torch.cuda.is_available():
        return {"cpu": cpu}
    return {"cpu": cpu, "cuda": Backend("Triton", "compiled at the first call")}
