from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl import APL, describe, swap_activations
from torchapl.curves import fit
from torchapl.modules import AffineAPL
from torchapl.surgery import functions


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (F.relu, (), {"inplace": True}, nn.ReLU),
        (torch.relu_, (), {}, nn.ReLU),
        (Tensor.relu, (), {}, nn.ReLU),
        (F.leaky_relu, (0.3,), {}, nn.LeakyReLU),
        (F.leaky_relu, (), {"negative_slope": 0.3}, nn.LeakyReLU),
        (F.gelu, (), {"approximate": "tanh"}, nn.GELU),
        (F.hardtanh, (-2.0, 3.0), {}, nn.Hardtanh),
        (F.softplus, (2.0,), {"threshold": 10.0}, nn.Softplus),
        (F.elu, (0.7, True), {}, nn.ELU),
        (torch.celu, (), {"alpha": 0.5}, nn.CELU),
        (F.mish, (), {}, nn.Mish),
        (F.hardswish, (), {}, nn.Hardswish),
        (torch.sigmoid, (), {}, nn.Sigmoid),
    ],
)
def test_module_computes_what_the_function_does(
    function: Callable[..., Tensor],
    args: tuple[float, ...],
    kwargs: dict[str, object],
    expected: type,
) -> None:
    x = torch.randn(50)
    module = functions.of_call(function, (x, *args), kwargs)
    assert type(module) is expected
    assert torch.equal(module(x.clone()), function(x.clone(), *args, **kwargs))


@pytest.mark.parametrize("function", [torch.sin, F.softmax, torch.add, Tensor.add_, len])
def test_other_functions(function: Callable[..., object]) -> None:
    assert functions.of_call(function, (torch.randn(3),), {}) is None


def test_computed_arguments_are_refused() -> None:
    x = torch.randn(3)
    assert functions.of_call(F.elu, (x, torch.tensor(1.0)), {}) is None
    assert functions.of_call(torch.relu, (x,), {"out": x}) is None


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x - 1


class Centre(nn.Module):
    """Elementwise up to a sum over everything, which permutations do not show."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean()).relu()


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() + torch.rand_like(x)


class Clip(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(-1, 1)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        *((nn.ReLU(inplace=True), True), (nn.GELU(), True), (Clip(), True), (nn.Sigmoid(), True)),
        *((nn.Identity(), False), (Scale(), False), (Centre(), False), (Noise(), False)),
        *((nn.Dropout(0.5), False), (nn.Softmax(-1), False), (nn.RReLU(), False)),
        *((nn.AvgPool2d(3, 1, 1), False), (nn.Flatten(), False), (nn.ChannelShuffle(2), False)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_acts_on_each_element_alone(
    module: nn.Module, expected: bool, dtype: torch.dtype
) -> None:
    x = torch.randn(2, 4, 5, 5).to(dtype)
    assert functions.is_elementwise(functions.in_both_modes(module), x) is expected
    assert module.training


def test_calls_with_narrow_ranges_share_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[tuple[float, float]] = []

    def counted(function: nn.Module, number: int, interval: tuple[float, float], **options: float):
        intervals.append(interval)
        return fit(function, number, interval, **options)

    monkeypatch.setattr(functions, "fit", counted)
    forms, tolerance = functions.Forms(8, 3e-4), 3e-4
    ranges = [(-0.01, 0.01), (-0.25, 0.25), (-4.0, 3.0), (-0.25, 0.125), (-1.0, 1.0)]
    for interval in ranges:
        forms.note(nn.SiLU(), interval)
    curves = [forms.of(nn.SiLU(), interval, torch.float32) for interval in ranges]
    # Widest first: those that are not within the tolerance serve their own range alone.
    assert intervals == [(-4.0, 3.0), (-1.0, 1.0), (-0.25, 0.25)]
    assert torch.equal(curves[0].slope, curves[1].slope)
    assert torch.equal(curves[0].slope, curves[3].slope)
    x = torch.linspace(-0.25, 0.25, 999, dtype=torch.float64)
    assert (curves[0].evaluate(x) - nn.SiLU()(x)).abs().max() < tolerance
    # Another function has fits of its own.
    forms.note(nn.GELU(), (-0.01, 0.01))
    other = forms.of(nn.GELU(), (-0.01, 0.01), torch.float32)
    assert not torch.equal(other.slope, curves[0].slope)


def test_a_threshold_of_zero_shrinks_nothing() -> None:
    form = functions.Forms(None, 3e-4).of(nn.Softshrink(0.0), (-1.0, 1.0), torch.float32)
    x = torch.linspace(-3, 3, 99, dtype=torch.float64)
    torch.testing.assert_close(form.evaluate(x), x)


@pytest.mark.parametrize("num_hinges", [None, 8])
def test_a_function_that_jumps_has_no_curve(num_hinges: int | None) -> None:
    forms, function = functions.Forms(num_hinges, 3e-4), nn.Hardshrink()
    # Also where the jump is small beside the values.
    for interval in ((-2.0, 2.0), (-1000.0, 1000.0)):
        forms.note(function, interval)
    for interval in ((-2.0, 2.0), (-1000.0, 1000.0)):
        with pytest.raises(ValueError, match=r"function is not continuous near x = -?0\.5"):
            forms.of(function, interval, torch.float32)


def test_another_default_device_makes_no_difference() -> None:
    x, prelu = torch.randn(4, 8), nn.PReLU()
    kinds = (nn.ReLU(), nn.LeakyReLU(), prelu, nn.ReLU6(), nn.Softshrink(), nn.GELU())
    with torch.device("meta"):
        assert functions.is_elementwise(nn.SiLU(), x)
        for function in kinds:
            forms = functions.Forms(None, 3e-4)
            forms.note(function, (-2.0, 2.0))
            form = forms.of(function, (-2.0, 2.0), torch.float32)
            error = functions.largest_error(
                form,
                function,
                (-2.0, 2.0),
                parameter_dtype=torch.float32,
                input_dtype=torch.float32,
            )
            assert error < 3.1e-4


@pytest.mark.parametrize("hinges", [None, 8])
def test_functions_that_jump_stay(hinges: int | None) -> None:
    layers = nn.Linear(4, 4), nn.Hardshrink(0.3), nn.Linear(4, 4), nn.Tanh()
    model = swap_activations(nn.Sequential(*layers), torch.randn(64, 4), num_hinges=hinges)
    assert isinstance(model[1], nn.Hardshrink)
    assert isinstance(model[3], AffineAPL)
    (left,) = describe(model).left
    assert re.match(
        r"not continuous near x = -?0.3: it jumps from (0|-0.3) to (0|0.3)", left.reason
    )


def test_functions_that_jump_may_become_other_curves() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Hardshrink(0.3))
    assert isinstance(swap_activations(model, torch.randn(64, 4), init="default")[1], APL)
