"""Learned activation functions for PyTorch: adaptive piecewise-linear units."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchapl import curves, init
    from torchapl.functional import apl
    from torchapl.fusion import FusedAPL, fuse
    from torchapl.modules import APL, LazyAPL
    from torchapl.ops.extension import Backend, backends
    from torchapl.optim import curve_parameters, l2_penalty, parameter_groups, slope_penalty
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
    "FusedAPL",
    "LazyAPL",
    "Swap",
    "SwapReport",
    "apl",
    "backends",
    "curve_parameters",
    "curves",
    "describe",
    "fuse",
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

# Imported when first asked for: `torchapl --help` does not wait for torch, nor a training script
# that only wants the unit for the rest.
_HOMES = {
    "functional": ("apl",),
    "fusion": ("FusedAPL", "fuse"),
    "modules": ("APL", "LazyAPL"),
    "ops.extension": ("Backend", "backends"),
    "optim": ("curve_parameters", "l2_penalty", "parameter_groups", "slope_penalty"),
    "plotting": ("plot",),
    "runs": ("log_run",),
    "surgery": (
        "Swap",
        "SwapReport",
        "describe",
        "rebuild_swapped",
        "restore_activations",
        "swap_activations",
    ),
}
_PARTS = ("curves", "form", "functional", "init", "modules", "ops", "optim", "reference", "theorem")


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return importlib.import_module(f"torchapl.{name}")
    for home, names in _HOMES.items():
        if name in names:
            # Kept, so that the next look finds it without this function.
            value: object = getattr(importlib.import_module(f"torchapl.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'torchapl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
