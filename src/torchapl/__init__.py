"""Learned activation functions for PyTorch: adaptive piecewise-linear units."""

from torchapl import init
from torchapl.functional import apl
from torchapl.modules import APL, LazyAPL
from torchapl.ops.extension import Backend, backends
from torchapl.optim import curve_parameters, l2_penalty, parameter_groups, slope_penalty
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
    "describe",
    "init",
    "l2_penalty",
    "parameter_groups",
    "rebuild_swapped",
    "restore_activations",
    "slope_penalty",
    "swap_activations",
]
