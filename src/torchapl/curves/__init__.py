"""Learned curves: read, build, fit, simplify and convert them, exactly."""

from torchapl.curves.affine import AffineAPL
from torchapl.curves.build import PiecewiseLinear, from_piecewise_linear, to_piecewise_linear
from torchapl.curves.fit import Fit, fit
from torchapl.curves.read import (
    Asymptote,
    Shape,
    classify,
    distance,
    knots,
    left_asymptote,
    left_slope,
    lipschitz,
    sample,
    segment_slopes,
    slope_variation,
    value_at_zero,
)
from torchapl.curves.simplify import Simplification, SimplifiedLayer, observe_ranges, simplify

__all__ = [
    "AffineAPL",
    "Asymptote",
    "Fit",
    "PiecewiseLinear",
    "Shape",
    "Simplification",
    "SimplifiedLayer",
    "classify",
    "distance",
    "fit",
    "from_piecewise_linear",
    "knots",
    "left_asymptote",
    "left_slope",
    "lipschitz",
    "observe_ranges",
    "sample",
    "segment_slopes",
    "simplify",
    "slope_variation",
    "to_piecewise_linear",
    "value_at_zero",
]
