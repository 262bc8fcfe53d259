"""Learned activation functions for PyTorch: adaptive piecewise-linear units."""

import importlib
from typing import TYPE_CHECKING

from torchapl import init
from torchapl.functional import apl
from torchapl.modules import APL, LazyAPL
from torchapl.ops.extension import Backend, backends
from torchapl.optim import curve_parameters, l2_penalty, parameter_groups, slope_penalty

if TYPE_CHECKING:
    from torchapl import curves
    from torchapl.plotting import plot
    from torchapl.runs import log_run
    from torchapl.surgery import (
        Swap,
        SwapReport,
        describe,
        rebuild_swapped,
        restore_activations,
        swap_activations,
    )

__version__ = "0.1.0"

__all__ = [
    "APL",
    "Backend",
    "LazyAPL",
    "Swap",
    "SwapReport",
    "apl",
    "backends",
    "curve_parameters",
    "curves",
    "describe",
    "init",
    "l2_penalty",
    "log_run",
    "parameter_groups",
    "plot",
    "rebuild_swapped",
    "restore_activations",
    "slope_penalty",
    "swap_activations",
]

# Imported when first asked for: a training script that only wants the unit starts without them.
_LATER = {
    "plot": "torchapl.plotting",
    "log_run": "torchapl.runs",
    **dict.fromkeys(
        (
            "Swap",
            "SwapReport",
            "describe",
            "rebuild_swapped",
            "restore_activations",
            "swap_activations",
        ),
        "torchapl.surgery",
    ),
}


def __getattr__(name: str) -> object:
    if name == "curves":
        return importlib.import_module("torchapl.curves")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'torchapl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
