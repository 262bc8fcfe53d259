"""Loads the compiled CPU kernels and says which implementation serves which device."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
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
_explained: set[str] = set()


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


@cache
def has_triton() -> bool:
    """Tell whether the GPU kernels can be compiled."""
    return find_spec("triton") is not None


def explain_once(input: Tensor) -> None:
    """Warn, the first time a device runs the slow definition for want of its kernels."""
    device = input.device.type
    if device in _explained:
        return
    _explained.add(device)
    if device == "cpu" and _failure is not None:
        remedy = (
            f"{_failure}. With torch and a C++ compiler in place, 'pip install "
            "--no-build-isolation --no-deps --force-reinstall --no-cache-dir torchapl' builds the "
            "kernels"
        )
    elif device == "cuda":
        remedy = "triton is not installed, 'pip install triton' brings the kernels"
    else:
        return
    # No stacklevel points at the caller: the dispatcher and autograd lie between.
    warnings.warn(
        f"torchapl runs its plain PyTorch definition on {device}, which is several times slower: "
        f"{remedy}.",
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
    if has_triton():
        return {"cpu": cpu, "cuda": Backend("Triton", "compiled at the first call")}
    return {"cpu": cpu, "cuda": Backend("reference", "triton is not installed")}
