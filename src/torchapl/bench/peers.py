"""Learned activations of other packages, timed on request where they are installed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence

from torch import nn


def _deepspline(shape: Sequence[int], hinges: int) -> nn.Module:
    """Build linear splines per channel with 51 knots, the package's own default."""
    if len(shape) not in (2, 4):
        raise ValueError(f"deepsplines takes (N, C) and (N, C, H, W), not {tuple(shape)}")
    module = importlib.import_module("deepsplines.ds_modules")
    mode = "fc" if len(shape) == 2 else "conv"
    spline: nn.Module = module.DeepBSpline(mode, shape[1], size=51, range_=4, init="relu")
    return spline


def _rational(shape: Sequence[int], hinges: int) -> nn.Module:
    """Build one rational function per layer: it has no other sharing."""
    unit: nn.Module = importlib.import_module("rational.torch").Rational(cuda=False)
    return unit


def _aplu(shape: Sequence[int], hinges: int) -> nn.Module:
    """Build the same curve as ours, but one per layer, in eager PyTorch."""
    unit: nn.Module = importlib.import_module("torch_activation").APLU(n_hinges=hinges)
    return unit


_Build = Callable[[Sequence[int], int], nn.Module]
# The second value tells whether the peer has hinges.
_PEERS: dict[str, tuple[_Build, bool]] = {
    "deepsplines": (_deepspline, False),
    "rational-activations": (_rational, False),
    "torch-activation APLU": (_aplu, True),
}


def peer_modules(
    shape: Sequence[int], hinges: Sequence[int]
) -> Iterator[tuple[str, int, nn.Module]]:
    """Yield name, number of hinges (0 if it has none) and module of every peer that can be built.

    Warns about the others.

    Args:
        shape: Of the input, with channels at axis 1.
        hinges: Numbers of hinges to build a peer with, where it has hinges.
    """
    for name, (build, counts) in _PEERS.items():
        for size in hinges if counts else (0,):
            try:
                yield name, size, build(shape, size)
            except Exception as error:
                # Other people's packages fail in their own ways; the comparison goes on without.
                warnings.warn(f"peer {name} is left out: {error}", stacklevel=2)
                break
