"""The operator against torch's own activations, as ratios to F.relu on the same tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl import reference
from torchapl.bench.memory import peak_bytes, saved_bytes
from torchapl.bench.peers import peer_modules
from torchapl.bench.timing import Spread, interleaved, ratios, training
from torchapl.functional import apl
from torchapl.fusion import fuse
from torchapl.modules import APL

Units = Literal["channel", "unit", "layer"]
Mode = Literal["training", "inference"]
Precision = Literal["float32", "bfloat16", "float16"]

# Elements whose values and gradients are compared before anything is timed.
_CHECKED = 10_000
SHAPES = (
    (128, 96, 32, 32),
    (128, 128, 16, 16),
    (4096, 300),
    (100, 274),
    (32, 197, 768),
    (64, 8, 224, 224),
)


@dataclass(frozen=True)
class Setting:
    """One comparison: a tensor, who owns the curves, forward alone or with backward, threads.

    Parameters are float32, as in mixed precision, whatever the dtype of the maps.
    """

    shape: tuple[int, ...]
    units: Units
    training: bool
    threads: int
    dtype: Precision = "float32"
    channels_last: bool = False

    @property
    def unit_dim(self) -> int:
        """Where the units start: the last axis of (B, T, D), else 1."""
        return 2 if len(self.shape) == 3 else 1

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """The shape whose elements have curves of their own."""
        if self.units == "layer":
            return ()
        return self.shape[self.unit_dim :] if self.units == "unit" else (self.shape[self.unit_dim],)

    def laid_out(self, values: Tensor) -> Tensor:
        """Return maps, or parameters of maps, in this layout."""
        if self.channels_last and values.dim() == 4:
            return values.contiguous(memory_format=torch.channels_last)
        return values


@dataclass(frozen=True)
class Measurement:
    """One candidate in one setting."""

    setting: Setting
    candidate: str
    hinges: int
    ratio: Spread
    # Of this candidate itself, in milliseconds: means little beyond this machine.
    milliseconds: float
    peak_bytes: int
    saved_bytes: int


def settings(
    shapes: Sequence[tuple[int, ...]],
    threads: Sequence[int],
    modes: Sequence[Mode],
    dtype: Precision = "float32",
    *,
    channels_last: bool = False,
) -> Iterator[Setting]:
    """Yield every combination worth measuring."""
    sharings: tuple[Units, ...] = ("channel", "unit")
    for shape, count, mode in itertools.product(shapes, threads, modes):
        # Of a dense layer every unit is a channel.
        for units in sharings if len(shape) > 3 else sharings[:1]:
            yield Setting(shape, units, mode == "training", count, dtype, channels_last)


def measure(
    setting: Setting,
    hinges: Sequence[int],
    *,
    device: str = "cpu",
    slow: bool = True,
    peers: bool = False,
    rounds: int = 11,
) -> list[Measurement]:
    """Time all candidates in turn and return their ratios to ReLU.

    Args:
        setting: What to compare on.
        hinges: The S of the APL candidates.
        device: Where.
        slow: Also time what is known to be slow: the plain formula and its compiled form.
        peers: Also time learned activations of other packages, where they are installed.
        rounds: How often every candidate is timed.
    """
    torch.set_num_threads(setting.threads)
    x = torch.randn(setting.shape, device=device).to(getattr(torch, setting.dtype))
    x = setting.laid_out(x)
    channels = setting.shape[setting.unit_dim]
    functions: dict[tuple[str, int], tuple[Callable[[Tensor], Tensor], list[Tensor]]] = {
        ("relu", 0): (F.relu, []),
        ("silu", 0): (F.silu, []),
        ("gelu", 0): (F.gelu, []),
    }
    if setting.unit_dim == 1:
        # torch's PReLU knows channels at axis 1 alone.
        weight = torch.full((channels,), 0.25, device=device, dtype=x.dtype, requires_grad=True)
        functions["prelu", 0] = (lambda x: F.prelu(x, weight), [weight])
    for size in hinges:
        functions |= _apl_candidates(setting, size, device, slow=slow)
    if peers:
        for name, size, module in peer_modules(setting.shape, hinges):
            functions[name, size] = (module.to(device), list(module.parameters()))
    return _time(setting, x, functions, rounds)


def _apl_candidates(
    setting: Setting, size: int, device: str, *, slow: bool
) -> dict[tuple[str, int], tuple[Callable[[Tensor], Tensor], list[Tensor]]]:
    a, b = (
        setting.laid_out(0.3 * torch.randn(size, *setting.unit_shape, device=device))
        .detach()
        .requires_grad_()
        for _ in range(2)
    )
    first_axis = setting.unit_dim if setting.unit_shape else 0

    def fused(x: Tensor) -> Tensor:
        return apl(x, a, b, unit_dim=setting.unit_dim)

    def eager(x: Tensor) -> Tensor:
        return reference.apl(x, a, b, first_axis)

    functions: dict[tuple[str, int], tuple[Callable[[Tensor], Tensor], list[Tensor]]] = {
        ("apl", size): (fused, [a, b])
    }
    if not setting.training:
        functions["apl fused", size] = (_frozen(setting, a, b), [])
    if slow:
        # Else every shape counts as one more recompilation, of which torch allows eight.
        torch.compiler.reset()
        functions["apl eager", size] = (eager, [a, b])
        functions["apl compiled", size] = (torch.compile(eager), [a, b])
    return functions


def _frozen(setting: Setting, a: Tensor, b: Tensor) -> Callable[[Tensor], Tensor]:
    unit = APL(setting.unit_shape, len(a), unit_dim=setting.unit_dim, device=a.device)
    with torch.no_grad():
        unit.slope.copy_(a)
        unit.offset.copy_(b)
    return fuse(unit)


def _time(
    setting: Setting,
    x: Tensor,
    functions: dict[tuple[str, int], tuple[Callable[[Tensor], Tensor], list[Tensor]]],
    rounds: int,
) -> list[Measurement]:
    calls: dict[str, Callable[[], object]] = {}
    for (name, size), (function, parameters) in functions.items():
        key = f"{name}/{size}"
        if setting.training:
            calls[key] = training(function, x, parameters)
        else:
            calls[key] = _inference(function, x)
    seconds = interleaved(calls, rounds=rounds)
    to_relu = ratios(seconds, to="relu/0")
    leaf = x.detach().requires_grad_(setting.training)
    return [
        Measurement(
            setting,
            name,
            size,
            to_relu[f"{name}/{size}"],
            1000 * sorted(seconds[f"{name}/{size}"])[rounds // 2],
            peak_bytes(calls[f"{name}/{size}"]) if x.device.type == "cpu" else 0,
            saved_bytes(lambda function=function: function(leaf)) if setting.training else 0,  # type: ignore[misc]  # mypy cannot infer a default's type
        )
        for (name, size), (function, _) in functions.items()
    ]


def _inference(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return function(x)

    return call


def check(setting: Setting, size: int, device: str = "cpu") -> None:
    """Raise unless the operator's values and gradients are as accurate as eager PyTorch's.

    Speed of wrong numbers is of no interest, so this runs before anything is timed.
    """
    generator = torch.Generator().manual_seed(size)
    # Some rows tell as much about the values as all of them; of a few numbers luck would decide.
    rows_needed = max(3, _CHECKED // math.prod(setting.shape[1:]))
    shape = (min(setting.shape[0], rows_needed), *setting.shape[1:])
    of_maps, of_curves = getattr(torch, setting.dtype), torch.float32
    x, g = (torch.randn(shape, generator=generator).to(of_maps) for _ in range(2))
    a, b = (torch.randn(size, *setting.unit_shape, generator=generator) for _ in range(2))
    x, a, b = (setting.laid_out(t) for t in (x, a, b))
    first_axis = setting.unit_dim if setting.unit_shape else 0

    def results(
        function: Callable[..., Tensor], maps: torch.dtype, curves: torch.dtype
    ) -> list[Tensor]:
        leaves = [
            t.to(device, dtype).detach().requires_grad_()
            for t, dtype in ((x, maps), (a, curves), (b, curves))
        ]
        y = function(*leaves)
        grads = torch.autograd.grad(y, leaves, g.to(device, maps))
        return [y.detach(), *grads]

    def definition(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return reference.apl(x, a, b, first_axis)

    exact = results(definition, torch.float64, torch.float64)
    eager = results(definition, of_curves, of_curves)
    fused = results(lambda x, a, b: apl(x, a, b, unit_dim=setting.unit_dim), of_maps, of_curves)
    names = ("output", "gradient of input", "gradient of slope", "gradient of offset")
    rows = list(zip(names, exact, eager, fused, strict=True))
    if not setting.training:
        frozen = _frozen(setting, a.to(device), b.to(device))(x.to(device))
        rows.append(("output of fused curves", exact[0], eager[0], frozen))
    for name, right, plain, ours in rows:
        rounding = torch.finfo(ours.dtype).eps * right.abs().max()
        allowed = 2 * (plain - right).abs().max() + rounding
        error = (ours - right).abs().max()
        if not error <= allowed:
            raise RuntimeError(
                f"{name} is wrong by {error:.3g}, allowed {allowed:.3g}, for {setting}, S={size}"
            )
