"""Loads what is compiled, and says which implementation serves which device."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

# On torch's stable ABI and Python's limited API: one file for every version of both.
_KERNELS = "torchapl.ops._C"
# Bound to the torch that it was built for, hence absent from wheels.
_NODE = "torchapl.ops._autograd"


class Backend(NamedTuple):
    """What serves one kind of device, and why."""

    implementation: str
    reason: str


_no_kernels: str | None = "not loaded yet"
_no_node: str | None = "not loaded yet"
_instructions = ""
_explained: set[str] = set()


def load() -> None:
    """Load kernels and node, which register themselves; remember why one could not be loaded."""
    global _no_kernels, _no_node, _instructions
    _no_kernels = _failure(_KERNELS, "the package was installed without its compiled kernels")
    if _no_kernels is not None:
        return
    _instructions = import_module(_KERNELS).capability()
    _no_node = _failure(_NODE, "only an installation from source has the node in C++")


def _failure(module: str, absent: str) -> str | None:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return absent
    except ImportError as error:
        # Built for another torch or another machine: what the loader says is the best explanation.
        return str(error)
    return None


def hold_to(capability: str) -> None:
    """Run the kernels by these instructions from now on, not by the best that there are.

    Raises:
        ValueError: If this machine, or this installation, has none of that name.
    """
    global _instructions
    kernels = import_module(_KERNELS) if has_kernels() else None
    there = kernels.capabilities() if kernels is not None else []
    if kernels is None or capability not in there:
        found = ", ".join(there) or "none"
        raise ValueError(f"no kernels for {capability} on this machine; there are {found}")
    kernels.set_capability(capability)
    _instructions = capability


def direct_call() -> Callable[..., Any] | None:
    """Return the way to the operator that leaves out torch's own checks, if the node has come.

    It takes what :func:`torchapl.apl` takes, and answers NotImplemented to all but plain tensors.
    """
    return getattr(sys.modules.get(_NODE), "apl", None)


def has_kernels() -> bool:
    """Tell whether the compiled kernels serve the CPU."""
    return _no_kernels is None


def has_node() -> bool:
    """Tell whether autograd runs in C++; without it, it runs in Python."""
    return _no_node is None


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
    if device == "cpu" and _no_kernels is not None:
        remedy = (
            f"{_no_kernels}. With torch, setuptools 77 or later and a C++ compiler in place, 'pip "
            "install --no-build-isolation --no-deps --force-reinstall .' in the folder of "
            "torchapl's sources builds them"
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
    if _no_kernels is None:
        autograd = "autograd in C++" if _no_node is None else f"autograd in Python: {_no_node}"
        cpu = Backend(f"C++ ({_instructions})", f"compiled with the package, {autograd}")
    else:
        cpu = Backend("reference", _no_kernels)
    if not torch.cuda.is_available():
        return {"cpu": cpu}
    if has_triton():
        return {"cpu": cpu, "cuda": Backend("Triton", "compiled at the first call")}
    return {"cpu": cpu, "cuda": Backend("reference", "triton is not installed")}
