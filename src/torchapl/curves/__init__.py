"""Learned curves: read, build, fit, simplify and convert them, exactly."""

from torchapl.curves.build import PiecewiseLinear, from_piecewise_linear, to_piecewise_linear
from torchapl.curves.counting import LayerSize, ParameterCount, count_parameters, parameter_table
from torchapl.curves.fit import Fit, fit
from torchapl.curves.maxout import MaxoutPair, to_maxout
from torchapl.curves.networks import to_mlpconv, to_relu_network
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
from torchapl.curves.splines import LinearSpline, from_prelu, from_spline, to_prelu, to_spline
from torchapl.modules import AffineAPL

__all__ = [
    "AffineAPL",
    "Asymptote",
    "Fit",
    "LayerSize",
    "LinearSpline",
    "MaxoutPair",
    "ParameterCount",
    "PiecewiseLinear",
    "Shape",
    "Simplification",
    "SimplifiedLayer",
    "classify",
    "count_parameters",
    "distance",
    "fit",
    "from_piecewise_linear",
    "from_prelu",
    "from_spline",
    "knots",
    "left_asymptote",
    "left_slope",
    "lipschitz",
    "observe_ranges",
    "parameter_table",
    "sample",
    "segment_slopes",
    "simplify",
    "slope_variation",
    "to_maxout",
    "to_mlpconv",
    "to_piecewise_linear",
    "to_prelu",
    "to_relu_network",
    "to_spline",
    "value_at_zero",
]
