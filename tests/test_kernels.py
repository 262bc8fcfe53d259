"""The C++ kernels: every law over every case, precision, layout and instruction set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accuracy import assert_as_accurate_as_eager, errors
from cases import CASES, DTYPES, Case, lay_out
from torchapl import reference
from torchapl.ops import apl_operator, backward_operator

_C = pytest.importorskip("torchapl.ops._C", reason="the package was built without its kernels")

ALL = (True,) * 3
MASKS = [mask for mask in itertools.product((True, False), repeat=3) if any(mask)]


@pytest.fixture(params=_C.capabilities())
def capability(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _C.capability()
    _C.set_capability(request.param)
    yield request.param
    _C.set_capability(before)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


Arguments = tuple[Tensor, Tensor, Tensor, int]


def make(case: Case, seed: int = 0, **options: object) -> Arguments:
    x, a, b, _ = case.make(seed, **options)
    return x, a, b, case.normal_dim


def normal(
    shape: tuple[int, ...], units: tuple[int, ...], unit_dim: int, hinges: int = 2
) -> Arguments:
    """Return arguments of the operator with ordinary, unrounded values."""
    return (
        torch.randn(shape),
        0.5 * torch.randn(hinges, *units),
        0.5 * torch.randn(hinges, *units),
        unit_dim,
    )


def check(
    arguments: Callable[[int], Arguments],
    gradient: Callable[[Tensor], Tensor] = torch.randn_like,
    draws: int = 4,
) -> None:
    """Compare values and gradients of some draws with the definition."""
    found = []
    for draw in range(draws):
        x, a, b, unit_dim = arguments(draw)
        grad = gradient(x)
        results = (
            apl_operator(x, a, b, unit_dim),
            *backward_operator(grad, x, a, b, unit_dim, (True,) * 3),
        )
        found.append(errors(results, grad, x, a, b, unit_dim))
        assert results[0].stride() == results[1].stride() == torch.empty_like(x).stride()
    assert_as_accurate_as_eager(found)


PAST_SHAPES = [
    *[((rows, 48), (48,), 1) for rows in (1, 5, 8, 20, 130)],
    ((6, 33), (33,), 1),
    ((130, 2, 4, 4), (2, 4, 4), 1),
    ((3, 5, 16, 16), (5,), 1),
    ((20, 6, 7, 7), (6,), 1),
    ((2, 3, 5000), (3,), 1),
    ((300, 40), (), 0),
]


@pytest.mark.usefixtures("capability", "nan_filled_outputs", "threads")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "units", "unit_dim"), PAST_SHAPES, ids=str)
@pytest.mark.parametrize("wanted", [(True, True, True), (False, True, True), (True, False, False)])
def test_what_goes_past_the_caches_is_the_same(
    past: Callable[[bool], None],
    shape: tuple[int, ...],
    units: tuple[int, ...],
    unit_dim: int,
    dtype: torch.dtype,
    wanted: tuple[bool, bool, bool],
) -> None:
    torch.set_num_threads(2)
    x, a, b, _ = normal(shape, units, unit_dim, hinges=8)
    x, grad = x.to(dtype), torch.randn(shape).to(dtype)
    if dtype == torch.float64:
        a, b = a.double(), b.double()
    found = []
    for way in (False, True):
        past(way)
        y = apl_operator(x, a, b, unit_dim)
        found.append([y, *backward_operator(grad, x, a, b, unit_dim, wanted)])
    for without, beyond in zip(*found, strict=True):
        assert torch.equal(without, beyond)


@pytest.mark.usefixtures("capability", "nan_filled_outputs")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_accurate_as_eager(case: Case, dtype: torch.dtype) -> None:
    check(lambda draw: make(case, draw, dtype=dtype))


@pytest.mark.parametrize(
    ("dtype", "parameter_dtype"),
    [pair for pair in itertools.product(DTYPES, DTYPES) if pair[0] != pair[1]],
    ids=str,
)
@pytest.mark.parametrize("name", ["per channel", "per position", "channels last per position"])
def test_parameters_of_another_precision(
    name: str, dtype: torch.dtype, parameter_dtype: torch.dtype
) -> None:
    case = next(case for case in CASES if case.name == name)
    check(lambda draw: make(case, draw, dtype=dtype, parameter_dtype=parameter_dtype))


@pytest.mark.usefixtures("capability", "nan_filled_outputs")
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["per channel", "dense", "few units long maps", "many rows few units"]
)
def test_only_what_is_asked_for(
    name: str, mask: tuple[bool, bool, bool], dtype: torch.dtype
) -> None:
    case = next(case for case in CASES if case.name == name)
    arguments = make(case, dtype=dtype)
    grad = torch.randn(case.input_shape).to(dtype)
    whole = backward_operator(grad, *arguments, (True,) * 3)
    parts = backward_operator(grad, *arguments, mask)
    for part, all_of_it, wanted in zip(parts, whole, mask, strict=True):
        torch.testing.assert_close(part, all_of_it if wanted else all_of_it.new_empty(0))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("hinges", [*range(1, 12), 17])
@pytest.mark.parametrize(
    ("shape", "units", "unit_dim"),
    [((3, 2, 9, 9), (2,), 1), ((5, 67), (67,), 1), ((9, 6, 7), (6,), 1), ((130, 21), (21,), 1)],
)
def test_any_number_of_hinges(
    shape: tuple[int, ...], units: tuple[int, ...], unit_dim: int, hinges: int
) -> None:
    check(lambda _: normal(shape, units, unit_dim, hinges))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("center", [-100.0, 100.0])
@pytest.mark.parametrize(
    ("shape", "units"), [((40, 21), (21,)), ((3, 2, 300), (2,)), ((200, 3), (3,))]
)
def test_inputs_near_one_of_two_distant_hinges(
    shape: tuple[int, ...], units: tuple[int, ...], center: float
) -> None:
    def arguments(_: int) -> Arguments:
        x, a, b, unit_dim = normal(shape, units, 1)
        b[0] -= 100
        b[1] += 100
        return x + center, a, b, unit_dim

    check(arguments)


def test_maps_that_fit_a_cache_do_not_go_past_it() -> None:
    sizes = [path.read_text() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    largest = max((int(size.strip().removesuffix("K")) << 10 for size in sizes), default=2**62)
    assert _C.past_from() >= max(largest, 32 << 20)


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 100])
def test_sums_of_few_elements(count: int) -> None:
    check(lambda _: normal((count,), (), 0), draws=50)
    check(lambda _: normal((count, 3), (3,), 1), draws=50)


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize(
    ("shape", "units", "unit_dim"),
    [
        ((3, 5, 14, 14), (5,), 1),  # rows that end within a vector
        ((9, 70, 14, 14), (70,), 1),  # the same, two times four and one over
        ((16, 9, 8, 10), (9,), 1),  # rows of 80 that do not go by columns
        ((17, 9, 8, 9), (9,), 1),  # rows of 72 that do
        ((5, 3, 33, 37), (3,), 1),  # rows that are not computed four at a time
        ((2, 3, 67, 71), (3,), 1),  # rows longer than a strip
        ((1, 1, 3, 70001), (), 0),  # one unit, several tasks
        ((70001, 3), (3,), 1),  # many short rows side by side, one of them incomplete
        ((40, 129, 7), (129,), 1),
        ((33, 17, 7, 7), (17,), 1),
        ((300, 1111), (1111,), 1),
        ((1, 50021), (50021,), 1),
        ((1, 3, 224, 224), (3,), 1),
        ((257, 8, 8, 8), (8,), 1),
    ],
)
def test_odd_sizes(shape: tuple[int, ...], units: tuple[int, ...], unit_dim: int) -> None:
    check(lambda _: normal(shape, units, unit_dim), draws=2)


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("samples", [1, 3, 4, 13, 39, 40])
@pytest.mark.parametrize("side", [4, 5, 7, 10])
def test_few_samples_of_small_maps(samples: int, side: int) -> None:
    """By rows up to 0.8 samples for each pixel, by columns from there on."""
    check(lambda _: normal((samples, 11, side, side), (11,), 1, hinges=8), draws=2)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "shift"), [((10_000_000,), 0.3), ((10_000_000, 2), 0.0)])
def test_ten_million_elements_per_unit(shape: tuple[int, ...], shift: float) -> None:
    check(
        lambda _: normal(shape, shape[1:], 1 if shape[1:] else 0),
        lambda x: torch.randn_like(x) + shift,
        draws=1,
    )


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided", "expanded", "sum"])
@pytest.mark.parametrize("input_layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("units", [(3,), (3, 5, 6), (3, 5)], ids=str)
def test_gradients_of_any_layout(layout: str, input_layout: str, units: tuple[int, ...]) -> None:
    def gradient(x: Tensor) -> Tensor:
        if layout == "sum":
            return torch.ones(()).expand(x.shape)
        return lay_out(torch.randn(x.shape), layout)

    check(lambda draw: make(Case("", (4, 3, 5, 6), units, 1, input_layout), draw), gradient)


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("shape", [(41, 2), (300, 3), (100, 20)], ids=str)
def test_roundings_of_equal_rows_do_not_add_up(shape: tuple[int, int]) -> None:
    """Found by random calls: a sum of equal numbers, one after the other, errs in one direction."""

    def arguments(draw: int) -> Arguments:
        torch.manual_seed(draw)
        x, a, b, unit_dim = normal((1, shape[1]), shape[1:], 1, hinges=12)
        return x.double().expand(shape), a.double(), b.double(), unit_dim

    check(arguments, lambda x: torch.randn_like(x[:1]).expand(shape), draws=64)


@pytest.mark.parametrize("input_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("batch", [0, 4])
def test_parameter_gradients_have_the_layout_of_the_parameters(
    format: torch.memory_format, input_format: torch.memory_format, batch: int
) -> None:
    x, a, b, unit_dim = normal((batch, 3, 5, 6), (3, 5, 6), 1)
    arguments = (
        x.contiguous(memory_format=input_format),
        a.contiguous(memory_format=format),
        b.contiguous(memory_format=format),
        unit_dim,
    )
    check(lambda _: arguments)
    grads = backward_operator(torch.randn_like(x), *arguments, (True,) * 3)
    assert [result.stride() for result in grads[1:]] == [a.stride() for a in arguments[1:3]]


SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, float("nan"), float("inf"), -float("inf")]


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("shape", [(70, 3), (2, 3, 70)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kinks_nan_and_infinities_are_the_reference_s(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    offset = torch.tensor([[0.5, 0.0, float("inf")], [-0.5, float("nan"), -float("inf")]])
    slope = torch.tensor([[0.25, 0.5, 1.0], [-1.0, 0.5, 0.0]])
    for value, at in itertools.product(SPECIAL, (0, 15, 69)):
        x = torch.ones(shape)
        (x[at] if shape[0] == 70 else x[..., at]).fill_(value)
        same_as_reference(x.to(dtype), slope.to(dtype), offset.to(dtype))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("shape", [(70, 3), (2, 3, 300)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_finite_hinges_let_nan_and_infinities_pass(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    offset = torch.tensor([[0.5, 0.0, 2.0], [-0.5, -0.0, 1.0]])
    slope = torch.tensor([[0.25, 0.5, 1.0], [-1.0, 0.5, -0.5]])
    # A NaN of an operation has its sign set.
    for value, at in itertools.product((*SPECIAL, math.copysign(math.nan, -1)), (0, 15, 69)):
        x = torch.ones(shape)
        (x[at] if shape[0] == 70 else x[..., at]).fill_(value)
        same_as_reference(x.to(dtype), slope.to(dtype), offset.to(dtype))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("broken", [float("inf"), -float("inf"), float("nan")])
def test_a_hinge_that_is_not_finite_breaks_its_unit_alone(broken: float) -> None:
    # Several blocks of columns, one of which has such a hinge.
    x, a, b, unit_dim = normal((40, 1000), (1000,), 1)
    grad = torch.randn_like(x)
    whole = [apl_operator(x, a, b, unit_dim), *backward_operator(grad, x, a, b, unit_dim, ALL)]
    b[1, 700] = broken
    parts = [apl_operator(x, a, b, unit_dim), *backward_operator(grad, x, a, b, unit_dim, ALL)]
    others = [u for u in range(1000) if u != 700]
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one[:, others], other[:, others], rtol=1e-4, atol=1e-4)
    column = (x[:, 700:701], a[:, 700:701], b[:, 700:701])
    same(parts[0][:, 700:701], reference.apl(*column, 1))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("units", [(64, 1024), (1024,)], ids=str)
def test_every_bit_of_a_bfloat16_is_as_torch_rounds_it(units: tuple[int, ...]) -> None:
    # At x = 0 a hinge at 1 has the value of its slope: numbers of every kind, denormal ones and
    # NaN among them, and all near the middle between two neighbours.
    patterns = torch.randint(-(2**31), 2**31, (2**16,), dtype=torch.int64).to(torch.int32)
    middle = (torch.arange(2**16, dtype=torch.int64) * 2**16 + 0x8000 - 2**31).to(torch.int32)
    small = torch.randint(-(2**31), 2**31, (2**16,), dtype=torch.int64).to(torch.int32)
    small = small & torch.tensor(-0x7F800001, dtype=torch.int32)
    for bits in (patterns, middle, middle - 1, middle + 1, small):
        slope = bits.view(torch.float32)
        for part in slope.reshape(-1, *units):
            x = torch.zeros(9, *units, dtype=torch.bfloat16)
            y = apl_operator(x, part[None], torch.ones(1, *units), 1)
            expected = part.to(torch.bfloat16).view(torch.int16)
            # Any NaN becomes one and the same; torch has several.
            expected = expected.where(~part.isnan(), 0x7FC0)
            # 0 has two signs, and which comes out of a sum is not the rounding's affair.
            assert torch.all((y.view(torch.int16) == expected) | ((y == 0) & (expected << 1 == 0)))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("shape", [(70, 3), (2, 3, 70)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinite_slopes_are_the_reference_s(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 1, 70)
    x = (x[:, None] if shape[0] == 70 else x).expand(shape).contiguous()
    offset = torch.tensor([[0.0, -2.0, 2.0]])  # active for some, none and all elements
    for slope in (float("inf"), -float("inf"), float("nan")):
        same_as_reference(x.to(dtype), torch.full((1, 3), slope).to(dtype), offset.to(dtype))


def same_as_reference(*tensors: Tensor) -> None:
    same(apl_operator(*tensors, 1), reference.apl(*tensors, 1))
    grad = torch.ones_like(tensors[0])
    for actual, expected in zip(
        backward_operator(grad, *tensors, 1, (True,) * 3),
        reference.apl_backward(grad, *tensors, 1),
        strict=True,
    ):
        same(actual, expected)


def same(actual: Tensor, expected: Tensor) -> None:
    tolerance = 4 * torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=tolerance, atol=0)


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("units", [(), (6,), (6, 9, 11)], ids=str)
def test_exact_where_the_function_is(units: tuple[int, ...]) -> None:
    x = torch.randn(5, 6, 9, 11)
    zeros = torch.zeros(3, *units)
    assert torch.equal(apl_operator(x, zeros, torch.randn(3, *units), 1), F.relu(x))
    leaky = apl_operator(x, torch.full((1, *units), -0.05), zeros[:1], 1)
    assert torch.equal(leaky, F.leaky_relu(x, 0.05))


@pytest.mark.usefixtures("capability", "threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("shape", "units", "unit_dim"),
    [
        ((64, 24, 16, 16), (24,), 1),
        ((64, 24, 16, 16), (24, 16, 16), 1),
        ((2048, 300), (300,), 1),
        ((100, 274), (274,), 1),
        ((600_001,), (), 0),
        ((200_000, 3), (3,), 1),
        ((4, 2, 300, 300), (2,), 1),
        ((64, 100, 7, 7), (100,), 1),
    ],
)
def test_bit_identical_for_any_number_of_threads(
    shape: tuple[int, ...], units: tuple[int, ...], unit_dim: int, dtype: torch.dtype
) -> None:
    x, a, b, unit_dim = normal(shape, units, unit_dim, hinges=6)
    arguments = (x.to(dtype), a, b, unit_dim)
    grad = torch.randn(shape).to(dtype)
    results = []
    for count in (1, 2, 3, 3):
        torch.set_num_threads(count)
        results.append(
            [apl_operator(*arguments), *backward_operator(grad, *arguments, (True,) * 3)]
        )
    for other in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    ("geometry", "least"),
    [
        ((1, 1, 10_000_000), 32),  # one unit for the layer
        ((1, 3, 1_000_000), 32),  # few units, huge maps
        ((10_000_000, 1, 1), 32),
        ((1_000_000, 8, 1), 32),
        ((4096, 300, 1), 16),  # more would write and read more sums than they save time
        ((1, 1_000_000, 1), 32),
        ((128, 98304, 1), 32),
        ((64, 2048, 49), 32),
        ((128, 96, 1024), 32),
        ((128, 512, 64), 32),
        ((64, 8, 50176), 32),
    ],
)
def test_large_work_is_shared_by_many_threads(geometry: tuple[int, int, int], least: int) -> None:
    assert all(_C.tasks(*geometry, hinges) >= least for hinges in (1, 5, 8, 17))


@pytest.mark.parametrize(
    ("sizes", "strides", "unit_dim", "unit_dims", "expected"),
    [
        # more than 2^31 elements
        ((65536, 96, 32, 32), (98304, 1024, 32, 1), 1, 1, (65536, 96, 1024, True, [0])),
        ((65536, 96, 32, 32), (98304, 1024, 32, 1), 1, 3, (65536, 98304, 1, True, [0, 1, 2])),
        ((65536, 96, 32, 32), (98304, 1, 3072, 96), 1, 1, (67108864, 96, 1, True, [0])),
        ((65536, 96, 32, 32), (98304, 1, 3072, 96), 1, 3, (65536, 98304, 1, True, [1, 2, 0])),
        ((65536, 96, 32, 32), (98304, 1024, 32, 1), 0, 0, (1, 1, 6442450944, True, [])),
        ((3, 2**33), (2**33, 1), 1, 1, (3, 2**33, 1, True, [0])),
        ((3, 2**33), (2**33, 1), 0, 1, (1, 3, 2**33, True, [0])),
        # foreign axes between those of the units, holes, overlaps
        ((2, 3, 4, 5), (60, 1, 15, 3), 1, 2, (2, 12, 5, False, [1, 0])),
        ((2, 3, 4), (24, 8, 2), 1, 1, (2, 3, 4, False, [0])),
        ((2, 3, 4), (0, 4, 1), 1, 1, (6, 12, 1, False, [0])),
        # strides of axes of size one say nothing
        ((4, 1, 5, 6), (30, 1, 6, 1), 1, 1, (1, 1, 120, True, [])),
        ((1, 5, 1, 7), (999, 7, 0, 1), 1, 1, (1, 5, 7, True, [0])),
        ((4, 1, 5), (5, 77, 1), 1, 2, (4, 5, 1, True, [1])),
    ],
)
def test_geometry(
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    unit_dim: int,
    unit_dims: int,
    expected: tuple[int, int, int, bool, list[int]],
) -> None:
    found = _C.geometry(sizes, strides, unit_dim, unit_dims)
    assert found[3:] == expected[3:]
    if found[3]:
        assert found[:3] == expected[:3]
