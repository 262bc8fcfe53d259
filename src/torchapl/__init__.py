"""Learned activation functions for PyTorch: adaptive piecewise-linear units."""

from torchapl import init
from torchapl.functional import apl
from torchapl.modules import APL, LazyAPL
from torchapl.ops.extension import Backend, backends
from torchapl.optim import curve_parameters, l2_penalty, parameter_groups, slope_penalty

__version__ = "0.1.0"

__all__ = [
    "APL",
    "Backend",
    "LazyAPL",
    "apl",
    "backends",
    "curve_parameters",
    "init",
    "l2_penalty",
    "parameter_groups",
    "slope_penalty",
]
