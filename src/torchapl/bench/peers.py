"""Learned activations of other packages, timed on request where they are installed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator

from torch import nn


def _deepspline(channels: int) -> nn.Module:
    module = importlib.import_module("deepsplines.ds_modules")
    spline: nn.Module = module.DeepBSpline("conv", channels, size=51, range_=4, init="relu")
    return spline


def _rational(channels: int) -> nn.Module:
    module = importlib.import_module("rational.torch")
    unit: nn.Module = module.Rational(cuda=False)
    return unit


def _torch_activation(channels: int) -> nn.Module:
    module = importlib.import_module("torch_activation")
    unit: nn.Module = module.APLU() if hasattr(module, "APLU") else module.ShiLU()
    return unit


_PEERS: dict[str, Callable[[int], nn.Module]] = {
    "deepsplines": _deepspline,
    "rational-activations": _rational,
    "torch-activation": _torch_activation,
}


def peer_modules(channels: int) -> Iterator[tuple[str, nn.Module]]:
    """Yield the peers that are installed and can be built, by name; warn about the others."""
    for name, build in _PEERS.items():
        try:
            yield name, build(channels)
        except Exception as error:
            # Other people's packages fail in their own ways; the comparison goes on without them.
            warnings.warn(f"peer {name} is left out: {error}", stacklevel=2)
