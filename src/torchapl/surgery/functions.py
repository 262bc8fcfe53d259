"""Which calls are activation functions, and the curve that each of them is.

A module that computes the same stands for each function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl.curves.fit import CPU, MOST_HINGES, Fit, fit, jump_of
from torchapl.form import build, with_spare_hinges
from torchapl.theorem import AffineForm, affine_form

Interval = tuple[float, float]

# These are curves of units themselves; the others are fitted.
EXACT = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Hardtanh, nn.Softshrink)
# As many as a unit has by default.
FEWEST_HINGES = 8
# A fit's error may be larger than the smallest by this part: a network has dozens of fits.
FIT_ACCURACY = 0.01
# Other data than the example's go beyond its range, by this part of its width on either side.
MARGIN = 0.25

# Elements on which a function is tried, more or less: a layer's input may have millions.
_PROBES = 65_536

# Gates are no activations: a curve that leaves [0, 1] changes what they mean.
GATES = (nn.Sigmoid, nn.Hardsigmoid, nn.LogSigmoid)

# The module, the functions and tensor methods that compute the same, and their further arguments.
_TABLE: list[tuple[type[nn.Module], tuple[Any, ...], tuple[str, ...]]] = [
    (nn.ReLU, (F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_), ("inplace",)),
    (nn.ReLU6, (F.relu6,), ("inplace",)),
    (nn.LeakyReLU, (F.leaky_relu, F.leaky_relu_), ("negative_slope", "inplace")),
    (nn.ELU, (F.elu, F.elu_), ("alpha", "inplace")),
    (nn.SELU, (F.selu, torch.selu, torch.selu_), ("inplace",)),
    (nn.CELU, (F.celu, torch.celu, torch.celu_), ("alpha", "inplace")),
    (nn.GELU, (F.gelu,), ("approximate",)),
    (nn.SiLU, (F.silu,), ("inplace",)),
    (nn.Mish, (F.mish,), ("inplace",)),
    (nn.Hardswish, (F.hardswish,), ("inplace",)),
    (nn.Hardtanh, (F.hardtanh, F.hardtanh_), ("min_val", "max_val", "inplace")),
    (nn.Tanh, (F.tanh, torch.tanh, torch.tanh_, Tensor.tanh, Tensor.tanh_), ()),
    (nn.Softplus, (F.softplus,), ("beta", "threshold")),
    (nn.Softsign, (F.softsign,), ()),
    (nn.Tanhshrink, (F.tanhshrink,), ()),
    (nn.Softshrink, (F.softshrink,), ("lambd",)),
    (nn.Sigmoid, (F.sigmoid, torch.sigmoid, torch.sigmoid_, Tensor.sigmoid, Tensor.sigmoid_), ()),
    (nn.Hardsigmoid, (F.hardsigmoid,), ("inplace",)),
    (nn.LogSigmoid, (F.logsigmoid,), ()),
]
_FUNCTIONS = {
    function: (kind, names) for kind, functions, names in _TABLE for function in functions
}
# What a module of these types computes needs no test.
KINDS = frozenset(kind for kind, _, _ in _TABLE)
_METHODS = {
    name: (kind, names)
    for kind, functions, names in _TABLE
    for function in functions
    if getattr(Tensor, name := function.__name__, None) is function
}


def is_activation(name: str, module: nn.Module) -> bool:
    """Take every activation function but the gates (sigmoids): the default of ``match``.

    Args:
        name: The path of the call in the model.
        module: What is called; for a function of ``torch.nn.functional`` the module of its kind.

    Example:
        >>> is_activation("layer1.relu", nn.ReLU()), is_activation("gate", nn.Sigmoid())
        (True, False)
    """
    return not isinstance(module, GATES)


def positional(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with its input in the first place, also if given by name."""
    named = {} if args else {"input": kwargs["input"]} if "input" in kwargs else {}
    rest = {name: value for name, value in kwargs.items() if name not in named}
    return (*named.values(), *args), rest


def of_call(
    function: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> nn.Module | None:
    """Return the module that computes ``function(*args, **kwargs)`` of ``args[0]``, if any does."""
    try:
        entry = _FUNCTIONS.get(function)
    except TypeError:
        return None
    return None if entry is None else _build(entry, args, kwargs)


def discontinuity(function: nn.Module, interval: Interval) -> str | None:
    """Say where a function jumps, which no unit can follow, if it does."""
    if isinstance(function, EXACT) or type(function) in KINDS:
        return None
    return jump_of(function, _proper(interval), 0.0)


def of_method(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> nn.Module | None:
    """Return the module that computes the tensor method ``args[0].name(...)``, if any does."""
    entry = _METHODS.get(name)
    return None if entry is None else _build(entry, args, kwargs)


def is_in_place(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Tell whether a call found by :func:`of_call` overwrites its input."""
    # By identity: the 1 of softplus(x, 1) equals True.
    return (
        name.endswith("_")
        or kwargs.get("inplace") is True
        or any(value is True for value in args[1:])
    )


def _build(
    entry: tuple[type[nn.Module], tuple[str, ...]],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> nn.Module | None:
    kind, names = entry
    args, kwargs = positional(args, kwargs)
    given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
    given.pop("inplace", None)
    # A computed argument (alpha=self.alpha.exp()) or out= cannot be moved into a module.
    if not args or not given.keys() <= set(names) or len(args) > len(names) + 1:
        return None
    if not all(isinstance(value, (int, float, str)) for value in given.values()):
        return None
    return kind(**given)


def is_elementwise(function: Callable[[Tensor], object], like: Tensor) -> bool:
    """Test numerically whether a function of a tensor acts on each element alone, and not linearly.

    Args:
        function: Called on tensors of the shape, dtype and device of ``like``; of a long one on a
            part, of one with an element or two on several.
        like: An input that it has in the model.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    x = 3 * torch.randn(_probe_shape(like), generator=generator, dtype=torch.float32, device=CPU)
    order = torch.randperm(x.numel(), generator=generator, device=CPU)
    # Half of the elements are replaced: the others must not feel it.
    kept = torch.rand(x.shape, generator=generator, device=CPU) < 0.5
    changed = torch.where(kept, x, -2 * x + 1)
    permuted = x.flatten()[order].reshape(x.shape)
    try:
        y, y_permuted, y_changed, again = (
            _evaluate(function, probe, like) for probe in (x, permuted, changed, x)
        )
    except Exception:  # whatever refuses a probe is no elementwise function
        return False
    return (
        x.numel() > 2
        and torch.equal(y, again)
        and _close(y_permuted.flatten(), y.flatten()[order], like.dtype)
        and _close(y_changed[changed == x], y[changed == x], like.dtype)
        and not _is_affine(x, y)
    )


def in_both_modes(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the module's function; it raises where training mode computes something else."""

    def function(x: Tensor) -> Tensor:
        training = module.training
        try:
            results: list[Tensor] = []
            for mode in (True, False):
                module.training = mode
                results.append(module.forward(x.clone()))
        finally:
            module.training = training
        if not torch.equal(results[0], results[1]):
            raise TypeError(f"{type(module).__name__} differs between training and evaluation")
        return results[0]

    return function


def kind_of(function: nn.Module) -> str:
    """Return what an activation is called in reports."""
    if isinstance(function, PlainFunction):
        plain = (
            function.function.func if isinstance(function.function, partial) else function.function
        )
        return str(getattr(plain, "__name__", "function"))
    return type(function).__name__


class PlainFunction(nn.Module):
    """A function that is kept as an attribute, in the form of a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input)


class Forms:
    """Curves that are given functions, exactly where that is possible and else fitted.

    By the tolerance there is one fit for all calls of a function: it takes hardly more hinges on
    the union of their ranges, beyond which most functions are straight. A given number of hinges is
    fitted to the range of each call, but calls for which the fit of a wider range is within the
    tolerance share that.
    """

    def __init__(self, num_hinges: int | None, tolerance: float) -> None:
        self._num_hinges = num_hinges
        self.num_hinges = num_hinges or FEWEST_HINGES
        self._tolerance = tolerance
        self._intervals: dict[Hashable, list[Interval]] = {}
        self._fits: dict[Hashable, AffineForm] = {}

    def note(self, function: nn.Module, interval: Interval) -> None:
        """Remember the inputs of a call: those of all calls come before the first :meth:`of`."""
        self._intervals.setdefault(_key(function), []).append(interval)

    def of(self, function: nn.Module, interval: Interval, dtype: torch.dtype) -> AffineForm:
        """Return the curve of an elementwise module, for parameters of the given precision."""
        if isinstance(function, nn.ReLU):
            return self._leaky(_double(0.0))
        if isinstance(function, nn.LeakyReLU):
            return self._leaky(_double(function.negative_slope))
        if isinstance(function, nn.PReLU):
            return self._leaky(function.weight.detach().cpu().double().squeeze())
        # ReLU6 is a Hardtanh.
        if isinstance(function, nn.Hardtanh):
            low, high = float(function.min_val), float(function.max_val)
            return self._exact([low, high], [0.0, 1.0, 0.0], high)
        if isinstance(function, nn.Softshrink):
            width = float(function.lambd)
            if width == 0:
                return self._exact([], [1.0], 0.0)
            return self._exact([-width, width], [1.0, 0.0, 1.0], -width)
        if self._num_hinges is not None:
            return self._with_number(function, _rounded(_proper(interval)), self._num_hinges)
        # Rounded parameters make a finer fit no better (measured in bfloat16 and float16).
        tolerance = max(self._tolerance, torch.finfo(dtype).eps / 8)
        return self._with_tolerance(function, tolerance)

    def _with_tolerance(self, function: nn.Module, tolerance: float) -> AffineForm:
        key = (_key(function), tolerance)
        if key not in self._fits:
            lows, highs = zip(*self._intervals[_key(function)], strict=True)
            self._fits[key] = _near(function, _proper((min(lows), max(highs))), tolerance)
        return self._fits[key]

    def _with_number(self, function: nn.Module, interval: Interval, number: int) -> AffineForm:
        key = _key(function)
        if (key, interval) not in self._fits:
            intervals = {_rounded(_proper(noted)) for noted in self._intervals[key]}
            near: list[Fit] = []
            for low, high in sorted(intervals, key=lambda ends: ends[0] - ends[1]):
                around = [f for f in near if f.interval[0] <= low and high <= f.interval[1]]
                if not around:
                    around = [fit(function, number, (low, high), accuracy=FIT_ACCURACY)]
                    near += [f for f in around if f.max_error <= self._tolerance]
                self._fits[key, (low, high)] = around[0].form
        return self._fits[key, interval]

    def _leaky(self, negative_slope: Tensor) -> AffineForm:
        """Return the curve with the given slopes left of 0, one or one for each channel."""
        form = AffineForm(-negative_slope[None], _double([0.0]))
        return with_spare_hinges(form, self.num_hinges)

    def _exact(self, knots: list[float], slopes: list[float], intercept: float) -> AffineForm:
        form = affine_form(_double(knots), _double(slopes), intercept)
        return with_spare_hinges(form, self.num_hinges)


def _key(function: nn.Module) -> Hashable:
    settings = {
        name: repr(value)
        for name, value in vars(function).items()
        if name[0] != "_" and name not in ("training", "inplace")
    }
    return type(function), frozenset(settings.items())


def _near(function: nn.Module, interval: Interval, tolerance: float) -> AffineForm:
    """Return the curve with the fewest hinges, or the best of those that are not too many."""
    low, high = interval
    margin = MARGIN * (high - low)
    for wider in ((low - margin, high + margin), interval):
        # Beyond what the example showed a function may have no values.
        with suppress(ValueError):
            form = fit(function, None, wider, tolerance=tolerance).form
            return with_spare_hinges(form, max(FEWEST_HINGES, len(form.slope)), interval)
    return fit(function, MOST_HINGES, interval, accuracy=FIT_ACCURACY).form


@torch.no_grad()
def largest_error(
    form: AffineForm,
    function: nn.Module,
    interval: Interval,
    *,
    parameter_dtype: torch.dtype,
    input_dtype: torch.dtype,
) -> float:
    """Return the largest difference of unit and function on the interval, rounding included."""
    low, high = _proper(interval)
    channels = tuple(form.slope.shape[1:])
    unit = build(form, channels, dtype=parameter_dtype, device="cpu")
    # Between kinks a fit errs most somewhere in the middle, else at a kink.
    kinks = torch.cat([form.offset + form.center, _double([form.center])]).clamp(low, high)
    even = torch.linspace(low, high, 16_385, dtype=torch.float64, device=CPU)
    grid = torch.cat([even, kinks])
    x = grid.to(input_dtype)[:, None].expand(-1, *(channels or (1,)))
    if isinstance(function, nn.PReLU):
        reference = F.prelu(x, function.weight.detach().to(x.device, x.dtype))
    else:
        reference = function(x.clone())
    return float((unit(x).double() - reference.double()).abs().max())


def _probe_shape(like: Tensor) -> tuple[int, ...]:
    shape = tuple(like.shape)
    if like.numel() < 8:
        return (8, *shape[1:]) if like.numel() else (0,)
    rows = _PROBES * shape[0] // like.numel()
    # Not one row alone, on which a softmax over the rows would act on each element.
    return (min(shape[0], max(rows, 2)), *shape[1:])


def _evaluate(function: Callable[[Tensor], object], x: Tensor, like: Tensor) -> Tensor:
    result = function(x.to(like.device, like.dtype, copy=True))
    if not isinstance(result, Tensor) or result.shape != x.shape:
        raise TypeError
    if not result.is_floating_point():
        raise TypeError
    return result.cpu().double()


def _close(first: Tensor, second: Tensor, dtype: torch.dtype) -> bool:
    # Vectorised and scalar code of one function differ in the last bits.
    tolerance = 16 * torch.finfo(dtype).eps
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance)


def _is_affine(x: Tensor, y: Tensor) -> bool:
    inputs = x.flatten().double()
    columns = torch.stack([inputs, torch.ones_like(inputs)], dim=1)
    solution = torch.linalg.lstsq(columns, y.flatten()[:, None]).solution
    residual = (columns @ solution - y.flatten()[:, None]).abs().max()
    return bool(residual <= 1e-2 * y.abs().max().clamp(min=1e-12))


def _double(values: float | list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=CPU)


def _proper(interval: Interval) -> Interval:
    low, high = interval
    # An example input of one value says little; a fit needs some width.
    return (low, high) if high - low > 1e-3 else (low - 0.5, high + 0.5)


def _rounded(interval: Interval) -> Interval:
    """Widen an interval by a quarter at most, so that layers with similar inputs share a fit."""
    low, high = interval
    step = 2.0 ** (math.floor(math.log2(high - low)) - 2)
    return (math.floor(low / step) * step, math.ceil(high / step) * step)
