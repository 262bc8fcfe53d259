"""The GPU kernels over the table of cases: on a GPU where there is one, else interpreted.

Triton decides at the import of a kernel whether it is interpreted, and Inductor imports Triton too:
``test_interpreted`` runs this file in a process of its own, with TRITON_INTERPRET=1 from the start.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from accuracy import assert_as_accurate_as_eager, errors
from cases import CASES, DTYPES, Case, lay_out
from torchapl import reference
from torchapl.ops import geometry

kernels = pytest.importorskip("torchapl.ops.triton", reason="triton is not installed")
triton_kernels = pytest.importorskip("torchapl.ops.triton_kernels")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
ALL = (True, True, True)
on_kernels = (
    pytest.mark.usefixtures("nan_filled_outputs")
    if INTERPRETED
    else pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or ROCm device")
)
only_interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter alone")


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_interpreted():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout


@pytest.fixture(autouse=True, scope="module")
def _add_as_a_gpu_does() -> Iterator[None]:
    if not INTERPRETED:
        yield
        return
    from triton.runtime.interpreter import ReduceOps

    # Nor does a GPU warn of infinities.
    with pytest.MonkeyPatch.context() as patch, np.errstate(invalid="ignore", over="ignore"):
        patch.setattr(ReduceOps, "sum", _sum_of_threads)
        yield


def _sum_of_threads(self, input):
    """Let each thread add its elements in order, then add the threads in a tree.

    The generated code does so, as test_triton_codegen.py finds, where the interpreter adds all in
    one chain with numpy.
    """
    values = input.handle.data if self.axis is not None else input.handle.data.reshape(-1)
    axis = self.axis or 0
    elements = values[..., 0].size if values.ndim > 2 else values.size
    units = elements // values.shape[axis]
    threads = min(kernels.THREADS, max(32, elements // 4))
    chain = min(max(1, elements // threads // units), values.shape[axis])
    if values.ndim == 3 and not self.keep_dims:
        # A thread's own elements.
        chain = values.shape[axis]
    values = sum(np.split(values, chain, axis))
    while values.shape[axis] > 1:
        left, right = np.split(values, 2, axis)
        values = left + right
    return self.to_tensor(values if self.keep_dims else values.squeeze(axis), input.dtype)


def check(x: Tensor, a: Tensor, b: Tensor, dim: int, *grads: Tensor) -> None:
    y = kernels.apl(x, a, b, dim)
    draws = []
    for grad in grads:
        results = (y, *kernels.apl_backward(grad, x, a, b, dim, ALL))
        # The interpreter truncates to bfloat16 where a GPU rounds: "one rounding" covers either.
        draws.append(errors(results, grad, x, a, b, dim))
    assert_as_accurate_as_eager(draws)
    assert y.stride() == results[1].stride() == torch.empty_like(x).stride()
    assert all(result.is_contiguous() for result in results[2:])


def gradient_for(x: Tensor, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # From float64: float32 values would add up without a rounding.
    return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_gradients(case: Case, dtype: torch.dtype):
    x, a, b, _ = case.make(dtype=dtype, device=DEVICE)
    # In the layout of the input, as autograd usually hands it over.
    grad = torch.empty_like(x).copy_(gradient_for(x))
    check(x, a, b, case.normal_dim, grad)


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if math.prod(case.input_shape) < 400],
    ids=lambda case: case.name,
)
def test_many_small_tiles(case: Case, monkeypatch: pytest.MonkeyPatch):
    # 16 elements to a tile: most cases have several tiles along several axes.
    monkeypatch.setattr(kernels, "TILE_BYTES", 128)
    monkeypatch.setattr(geometry, "RUN", 4)
    x, a, b, _ = case.make(dtype=torch.float64, device=DEVICE)
    check(x, a, b, case.normal_dim, gradient_for(x))


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "parameter_dtype"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.float32, torch.bfloat16),
    ],
    ids=str,
)
def test_parameters_of_another_dtype(dtype: torch.dtype, parameter_dtype: torch.dtype):
    case = Case("mixed", (6, 5, 7), (5,), 1)
    x, a, b, dim = case.make(dtype=dtype, parameter_dtype=parameter_dtype, device=DEVICE)
    check(x, a, b, dim, gradient_for(x))


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["channels_last", "strided", "transposed", "expanded"])
def test_gradient_in_another_layout(layout: str):
    x, a, b, dim = Case("plain", (4, 3, 5, 6), (3, 5, 6), 1).make(device=DEVICE)
    check(x, a, b, dim, lay_out(gradient_for(x), layout))
    check(lay_out(x, layout), a, b, dim, gradient_for(x))


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("unit_shape", [(3,), (3, 5, 6), ()], ids=str)
def test_gradient_read_in_place(unit_shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "TILE_BYTES", 256)
    x, a, b, dim = Case("plain", (4, 3, 5, 6), unit_shape, 1).make(device=DEVICE)
    wide = gradient_for(x.new_empty(4, 7, 5, 6))
    # Of a sum, of an average over the map, and of a concatenation.
    for grad in (wide[0, 0, 0, 0].expand_as(x), wide[:, :3, :1, :1].expand_as(x), wide[:, 2:5]):
        check(x, a, b, dim if unit_shape else 0, grad)


@on_kernels
@pytest.mark.gpu
def test_parameters_of_any_strides():
    x, a, b, dim = Case("plain", (4, 3, 5, 6), (3, 5), 1).make(device=DEVICE)
    a, b = (lay_out(parameter, "strided") for parameter in (a, b.flip(0)))
    check(x, a, b, dim, gradient_for(x))


@on_kernels
@pytest.mark.gpu
def test_seventeen_hinges():
    x, a, b, dim = Case("many hinges", (5, 6, 3), (6,), 1, hinges=17).make(device=DEVICE)
    check(x, a, b, dim, gradient_for(x))


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(12))
def test_odd_sizes(seed: int):
    draw = random.Random(seed)
    shape = tuple(draw.choice((1, 2, 3, 5, 7, 13, 31, 33)) for _ in range(draw.randint(1, 4)))
    start = draw.randrange(len(shape))
    stop = draw.randint(start, len(shape))
    layouts = ["contiguous", "strided", "transposed", "expanded"]
    case = Case("odd", shape, shape[start:stop], start, draw.choice(layouts), draw.randint(1, 7))
    x, a, b, _ = case.make(seed=seed, dtype=torch.float64, device=DEVICE)
    # Some have few sums, which eager gets right by chance in a single draw.
    check(x, a, b, case.normal_dim, *(gradient_for(x, seed) for seed in range(1, 5)))


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("mask", [(i & 1 > 0, i & 2 > 0, i & 4 > 0) for i in range(8)], ids=str)
@pytest.mark.parametrize("unit_shape", [(5,), (5, 7)], ids=str)
def test_only_what_was_asked_for(mask: tuple[bool, bool, bool], unit_shape: tuple[int, ...]):
    x, a, b, dim = Case("plain", (6, 5, 7), unit_shape, 1).make(device=DEVICE)
    grad = gradient_for(x)
    whole = kernels.apl_backward(grad, x, a, b, dim, ALL)
    parts = kernels.apl_backward(grad, x, a, b, dim, mask)
    for part, all_of_it, wanted in zip(parts, whole, mask, strict=True):
        assert part.shape == (all_of_it.shape if wanted else (0,))
        assert part.dtype == all_of_it.dtype
        if wanted:
            torch.testing.assert_close(part, all_of_it)


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("unit_shape", [(3,), (3, 6)], ids=str)
def test_kinks_nan_and_infinities(dtype: torch.dtype, unit_shape: tuple[int, ...]):
    special = torch.tensor([0.0, 0.5, -0.25, math.nan, math.inf, -math.inf], dtype=dtype)
    x = special.expand(2, 3, 6).contiguous().to(DEVICE)
    a = torch.full((2, *unit_shape), 0.5, dtype=dtype, device=DEVICE)
    # Zero, 0.5 and -0.25 lie on a kink: no gradient from the hinge there.
    b = torch.tensor([0.5, -0.25], dtype=dtype, device=DEVICE).view(2, *[1] * len(unit_shape))
    b = b.expand_as(a).contiguous()
    grad = torch.ones_like(x)
    actual = [kernels.apl(x, a, b, 1), *kernels.apl_backward(grad, x, a, b, 1, ALL)]
    exact = [value.double().requires_grad_() for value in (x, a, b)]
    y = reference.apl(*exact, 1)
    expected = [y, *torch.autograd.grad(y, exact, grad.double())]
    for k, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(k.double(), e, rtol=0, atol=0, equal_nan=True)


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(4, 3, 64), (64, 3)], ids=str)
@pytest.mark.parametrize("value", [math.inf, math.nan], ids=str)
def test_gradients_that_are_not_finite(dtype: torch.dtype, shape: tuple[int, ...], value: float):
    # Where all hinges are closed it must not reach dx and db, where one is open it must.
    x, a, b, dim = Case("plain", shape, (3,), 1, hinges=3).make(dtype=dtype, device=DEVICE)
    x[0], x[-1] = -8, 8
    for row in (0, -1):
        grad = gradient_for(x)
        grad[row, 1] = value
        actual = kernels.apl_backward(grad, x, a, b, dim, ALL)
        expected = reference.apl_backward(grad, x, a, b, dim)
        torch.testing.assert_close(actual[0], expected[0], equal_nan=True)
        torch.testing.assert_close(actual[2], expected[2], equal_nan=True)
        assert torch.isfinite(actual[2]).all() == (row == -1)


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(4, 3, 64), (64, 3)], ids=str)
def test_far_from_zero(dtype: torch.dtype, shape: tuple[int, ...]):
    # A sum of g * x would lose what is left of the gates.
    case = Case("far", shape, (3,), 1, hinges=8)
    x, a, b, dim = case.make(dtype=dtype, parameter_dtype=torch.float32, device=DEVICE)
    check(1000 + 4 * x, a, 1000 + b, dim, *(gradient_for(x, seed) for seed in range(1, 4)))


@on_kernels
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 1, 1500), (500, 3)], ids=str)
def test_as_in_large_maps(
    shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    # 64 elements for each thread in place of 16: more turns of the loop, longer chains of sums.
    monkeypatch.setattr(kernels, "LARGE_MAP", 0)
    x, a, b, dim = Case("large", shape, shape[1:2], 1).make(dtype=dtype, device=DEVICE)
    check(x, a, b, dim, *(gradient_for(x, seed) for seed in range(1, 5)))


@on_kernels
@pytest.mark.gpu
def test_same_bits_from_run_to_run():
    x, a, b, dim = Case("long", (9, 2, 1031), (2,), 1, hinges=3).make(device=DEVICE)
    grad = gradient_for(x)
    first, second = (kernels.apl_backward(grad, x, a, b, dim, ALL) for _ in range(2))
    assert all(torch.equal(f, s) for f, s in zip(first, second, strict=True))


@only_interpreted
@pytest.mark.parametrize(
    "sizes",
    [(3, 2**31 + 33, 1), (2**31 + 33, 3, 1), (3, 5, 2**31 + 33), (2**31 + 33, 1, 5)],
    ids=str,
)
def test_last_tile_beyond_two_to_the_31(sizes, monkeypatch: pytest.MonkeyPatch):
    # The addresses of the last tile of a map that is not there: exact in 64 bits.
    from triton.runtime import interpreter

    shape = geometry.Collapsed(*sizes, (0,))
    programs, settings = kernels.launch_settings(shape, torch.float32, 1, warp=32)
    assert programs < 2**31
    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "grid_dim", (programs, 1, 1), raising=False)
    monkeypatch.setattr(builder, "grid_idx", (programs - 1, 0, 0), raising=False)
    names = ("outer", "units", "inner", "unit_blocks", "inner_blocks")
    outer, units, inner, *blocks = (interpreter._implicit_cvt(settings[name]) for name in names)
    tile = [settings[name] for name in ("OUTER", "UNITS", "INNER")]
    scope = interpreter._patch_lang(triton_kernels._locate.fn)
    try:
        place = triton_kernels._place.fn(units, *blocks, tile[1], 2)
        element = triton_kernels.tl.arange(0, tile[0] * tile[2])[None, :]
        index, inside, *_ = triton_kernels._locate.fn(element, *place, outer, units, inner, *tile)
    finally:
        scope.restore()
    addresses = index.handle.data[inside.handle.data.astype(bool)]
    assert addresses.max() == math.prod(sizes) - 1
    assert addresses.min() >= 0
