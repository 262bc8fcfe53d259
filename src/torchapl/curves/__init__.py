"""Learned curves: read, build, fit, simplify and convert them, exactly."""

from torchapl.curves.affine import AffineAPL
from torchapl.curves.fit import Fit, fit

__all__ = ["AffineAPL", "Fit", "fit"]
