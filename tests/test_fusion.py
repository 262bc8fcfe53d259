"""Fused curves: the values of the units, in every layout, precision and capability."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchapl
from cases import CASES, DTYPES, Case, lay_out
from torchapl import APL, FusedAPL, LazyAPL, fuse, reference
from torchapl.curves import AffineAPL
from torchapl.ops import extension
from torchapl.ops.curve import curve_operator, evaluate

NAN, INF = float("nan"), float("inf")


def capabilities() -> list[str]:
    if not extension.has_kernels():
        return ["reference"]
    from torchapl.ops import _C

    return list(_C.capabilities())


@pytest.fixture(params=capabilities())
def capability(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "reference":
        yield request.param
        return
    from torchapl.ops import _C

    before = _C.capability()
    _C.set_capability(request.param)
    yield request.param
    _C.set_capability(before)


def random_unit(
    unit_shape: tuple[int, ...],
    num_hinges: int,
    unit_dim: int = 1,
    *,
    affine: bool = False,
    dtype: torch.dtype = torch.float32,
) -> APL | AffineAPL:
    unit = (AffineAPL if affine else APL)(unit_shape, num_hinges, unit_dim=unit_dim, dtype=dtype)
    inner = unit.unit if isinstance(unit, AffineAPL) else unit
    with torch.no_grad():
        inner.slope.normal_().mul_(0.5)
        inner.offset.normal_()
        if isinstance(unit, AffineAPL):
            for number, value in (("scale", 1.5), ("shift", -0.3), ("skip", -0.7), ("center", 0.4)):
                getattr(unit, number).fill_(value)
    return unit


def exact(unit: APL | AffineAPL, x: Tensor) -> Any:
    """Return the definition in extended precision, which measures errors of float64 too."""
    inner = unit.unit if isinstance(unit, AffineAPL) else unit
    dims = len(inner.unit_shape)
    trailing = (1,) * (x.dim() - inner.unit_dim % x.dim() - dims if dims else 0)
    slope, offset = (extended(p).reshape(*p.shape, *trailing) for p in (inner.slope, inner.offset))
    scale, shift, skip, center = 1, 0, 0, 0
    if isinstance(unit, AffineAPL):
        names = ("scale", "shift", "skip", "center")
        scale, shift, skip, center = (extended(getattr(unit, name)) for name in names)
    u = extended(x) - center
    curve = np.maximum(u, 0)
    for a, b in zip(slope, offset, strict=True):
        curve = curve + a * np.maximum(b - u, 0)
    return scale * curve + skip * extended(x) + shift


def extended(tensor: Tensor) -> Any:
    if tensor.dtype == torch.float64 and np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long double is no wider than double here")
    return tensor.detach().double().numpy().astype(np.longdouble)


def eager(unit: APL | AffineAPL, x: Tensor) -> Tensor:
    if isinstance(unit, AffineAPL):
        numbers = (n.to(x.dtype) for n in (unit.scale, unit.shift, unit.skip, unit.center))
        scale, shift, skip, center = numbers
        return scale * eager(unit.unit, x - center) + skip * x + shift
    dims = len(unit.unit_shape)
    start = unit.unit_dim % x.dim() if dims else 0
    return reference.apl(x, unit.slope, unit.offset, start)


def assert_as_accurate_as_eager(
    units: list[APL | AffineAPL], inputs: list[Tensor], fused: list[nn.Module]
) -> None:
    """Allow twice the error of eager PyTorch plus one rounding, each the largest of the draws."""
    own = of_eager = rounding = 0.0
    for unit, x, module in zip(units, inputs, fused, strict=True):
        with torch.no_grad():
            truth, result = exact(unit, x), module(x)
            assert result.shape == x.shape
            assert result.dtype == x.dtype
            assert result.stride() == torch.empty_like(x).stride()
            if not x.numel():
                continue
            own = max(own, abs(extended(result) - truth).max())
            of_eager = max(of_eager, abs(extended(eager(unit, x)) - truth).max())
            rounding = max(rounding, torch.finfo(x.dtype).eps * abs(truth).max())
    assert own <= 2 * of_eager + rounding


@pytest.mark.usefixtures("capability", "nan_filled_outputs")
@pytest.mark.parametrize("affine", [False, True], ids=["APL", "AffineAPL"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_accuracy_in_every_case(case: Case, affine: bool) -> None:
    for dtype in DTYPES[:2] if affine else DTYPES:
        units, inputs = [], []
        for seed in range(2):
            x = case.make(seed, dtype)[0]
            dim = case.unit_dim
            units.append(random_unit(case.unit_shape, case.hinges, dim, affine=affine, dtype=dtype))
            inputs.append(x)
        assert_as_accurate_as_eager(units, inputs, [fuse(unit) for unit in units])


@pytest.mark.usefixtures("capability", "nan_filled_outputs")
@pytest.mark.parametrize("num_hinges", [4, 8, 15, 30, 62, 126, 260])
@pytest.mark.parametrize(
    ("shape", "units"),
    [((3, 2, 9, 15), (2,)), ((1, 2, 64), (2,)), ((257,), ()), ((5, 21), (21,))],
    ids=str,
)
def test_accuracy_for_any_number_of_kinks(
    shape: tuple[int, ...], units: tuple[int, ...], num_hinges: int
) -> None:
    for dtype, affine in [*((dtype, False) for dtype in DTYPES), (torch.float32, True)]:
        wide = torch.promote_types(dtype, torch.float32)
        layers = [random_unit(units, num_hinges, affine=affine, dtype=wide) for _ in range(3)]
        inputs = [(3 * torch.randn(shape)).to(dtype) for _ in layers]
        assert_as_accurate_as_eager(layers, inputs, [fuse(unit) for unit in layers])


@pytest.mark.skipif(not extension.has_kernels(), reason="built without kernels")
@pytest.mark.usefixtures("capability", "nan_filled_outputs")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("affine", [False, True], ids=["APL", "AffineAPL"])
@pytest.mark.parametrize("num_hinges", [2, 8, 40])
@pytest.mark.parametrize(
    ("shape", "units"), [((3, 4, 9, 9), 4), ((2, 3, 64, 64), 3), ((70, 48), 48), ((5, 33), 33)]
)
def test_what_goes_past_the_caches_is_the_same(
    past: Callable[[bool], None],
    shape: tuple[int, ...],
    units: int,
    num_hinges: int,
    affine: bool,
    dtype: torch.dtype,
) -> None:
    unit = random_unit((units,), num_hinges, affine=affine)
    fused, x = fuse(unit), torch.randn(shape).to(dtype)
    found = []
    for way in (False, True):
        past(way)
        with torch.no_grad():
            found.append(fused(x))
    assert torch.equal(*found)


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize(
    ("slope", "offset"),
    [
        ([0.5, -0.5, 0.25, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 2.0, 0.0, -1.0]),
        ([1e6, -1e6, 0.5, 0.1, 0.2], [0.3, 0.3000002, -1.0, 2.0, 0.7]),
        ([1e-30, 1e-20, 1e-10, 1.0, 1e-3], [1.0, 2.0, -1.0, 0.5, -3.0]),
        ([0.3] * 6, [-1000.0, -999.9, -999.0, 1000.0, 1000.1, 1001.0]),
        ([0.3, -0.2, 0.1, 0.7, -0.4, 0.5], [-1000.0, -999.9, -999.0, -1001.0, -1002.0, -998.0]),
        ([1e20, -1e20, 3e19, 1.0, 1.0], [1e15, 1e15, 2e-15, 1.0, 1e-15]),
        ([0.1] * 5, [1e-40, -1e-40, 1e-38, 0.0, -0.0]),
    ],
    ids=["coinciding", "steep", "tiny slopes", "far", "far left", "huge", "tiny offsets"],
)
def test_unusual_curves(slope: list[float], offset: list[float]) -> None:
    unit = APL((), len(slope))
    with torch.no_grad():
        unit.slope.copy_(torch.tensor(slope))
        unit.offset.copy_(torch.tensor(offset))
    near = torch.cat([unit.offset.detach() * (1 + 1e-6 * k) for k in range(-20, 21)])
    for x in (torch.randn(4096), near, -1000 + torch.randn(4096), 1e-3 * torch.randn(300)):
        with torch.no_grad():
            truth, results = exact(unit, x), (fuse(unit)(x), unit(x), eager(unit, x))
        own, of_unit, of_eager = (abs(extended(result) - truth).max() for result in results)
        # Products and sums in one rounding lose what cancels in eager PyTorch: in units as well.
        allowed = 2 * max(of_unit, of_eager) + torch.finfo(x.dtype).eps * abs(truth).max()
        assert own <= allowed


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("affine", [False, True], ids=["APL", "AffineAPL"])
@pytest.mark.parametrize("num_hinges", [2, 8, 40])
def test_nan_and_infinities(num_hinges: int, affine: bool) -> None:
    x = torch.tensor([0.5, NAN, INF, -INF, 0.0, -0.0, 1e37, -1e37]).repeat(3, 2, 20)
    for sign in (1, -1, 0):
        unit = random_unit((2,), num_hinges, affine=affine)
        inner = unit.unit if isinstance(unit, AffineAPL) else unit
        with torch.no_grad():
            if sign:
                inner.slope.abs_().mul_(sign)
            expected, actual = eager(unit, x), fuse(unit)(x)
        # The formula may have 0 * inf and inf - inf where the curve itself has a limit.
        defined = ~expected.isnan() | x.isnan()
        torch.testing.assert_close(
            actual[defined], expected[defined], equal_nan=True, rtol=1e-5, atol=1e-5
        )
        assert actual[x.isnan()].isnan().all()


def test_hinges_that_do_nothing_are_dropped() -> None:
    unit = APL(3, 4, init="relu")
    assert type(fuse(unit)) is nn.ReLU
    with torch.no_grad():
        unit.slope[:, 1] = torch.tensor([0.5, 0.25, 0.0, 1.0])
        unit.offset[:, 1] = torch.tensor([1.0, 1.0, 0.3, 2.0])
    fused = fuse(unit)
    assert fused.position.shape == (2, 3)
    assert fused.position[:, 1].tolist() == [1.0, 2.0]
    assert fused.jump[:, 1].tolist() == [0.75, 1.0]
    # Two hinges at one place that cancel.
    with torch.no_grad():
        unit.slope[:, 1] = torch.tensor([0.5, -0.5, 0.0, 0.0])
    assert type(fuse(unit)) is nn.ReLU


def test_curves_with_fewer_kinks_have_parts_of_the_last() -> None:
    unit = APL(2, 5)
    with torch.no_grad():
        unit.slope.fill_(0.5)
        unit.offset[:, 0] = torch.arange(5.0)
        unit.offset[:, 1] = 1.0
    fused = fuse(unit)
    assert fused.jump[:, 1].sum() == 2.5
    assert (fused.jump[:, 1] > 0).all()
    x = torch.tensor([[-INF, -INF]])
    assert torch.equal(fused(x), unit(x))


def test_tables_where_neighbours_share_a_curve() -> None:
    sizes = {
        "channel": random_unit((4,), 8),
        "layer": random_unit((), 8),
        "position": random_unit((4, 3), 8),
        "last axis": random_unit((4,), 8, unit_dim=-1),
        "few kinks": random_unit((4,), 3),
        "float64": random_unit((4,), 8, dtype=torch.float64),
    }
    found = {name: tuple(fuse(unit).table.shape) for name, unit in sizes.items()}
    assert found.pop("channel") == (4, 64)
    assert found.pop("layer") == (64,)
    assert set(found.values()) == {(0,)}


@pytest.mark.parametrize("unit_shape", [4, (4, 3, 3)])
def test_equal_curves_become_one(unit_shape: int | tuple[int, ...]) -> None:
    unit = APL(unit_shape, 8)
    fused = fuse(unit)
    assert fused.jump.shape == (8,)
    assert fused.table.shape == (64,)
    assert repr(fused) == "FusedAPL((), kinks=9, unit_dim=1)"
    x = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(fused(x), unit(x))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        random_unit((4,), 8),
        nn.Conv2d(4, 4, 3),
        random_unit((4, 4, 4), 3),
        nn.Flatten(),
        nn.Linear(64, 5),
        random_unit((5,), 2, affine=True),
        random_unit((), 12),
    ).eval()


def test_the_model_stays_and_a_copy_changes() -> None:
    net, x = network(), torch.randn(4, 3, 8, 8)
    fused = fuse(net)
    assert [type(net[i]) for i in (1, 3, 6, 7)] == [APL, APL, AffineAPL, APL]
    assert all(isinstance(fused[i], FusedAPL) for i in (1, 3, 6, 7))
    assert not any(True for i in (1, 3, 6, 7) for _ in fused[i].parameters())
    torch.testing.assert_close(fused(x), net(x))
    # Units that are the model, and units with two names.
    assert isinstance(fuse(net[1]), FusedAPL)
    twice = fuse(nn.ModuleList([net[1], net[1]]))
    assert twice[0] is twice[1]


def test_hooks_and_mode_stay() -> None:
    net = network().train()
    seen: list[Tensor] = []
    net[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    fused = fuse(net)
    fused(torch.randn(2, 3, 8, 8))
    assert fused[1].training
    assert len(seen) == 1


def test_what_is_left_or_refused() -> None:
    class Doubled(APL):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    assert isinstance(fuse(Doubled(3)), Doubled)
    with pytest.raises(ValueError, match=r"units of '1' have no curves yet"):
        fuse(nn.Sequential(nn.Linear(2, 2), LazyAPL()))
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got str"):
        fuse("model")
    unit = random_unit((4,), 8)
    with pytest.raises(ValueError, match=r"shape \(4,\) do not fit input \(2, 3\)"):
        fuse(unit)(torch.randn(2, 3))
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        fuse(unit)(torch.ones(2, 4, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_numbers_stay_wide_when_a_model_is_cast(dtype: torch.dtype) -> None:
    net = fuse(network()).to(dtype)
    x = torch.randn(2, 3, 8, 8, dtype=dtype)
    assert net(x).dtype == dtype
    wanted = torch.promote_types(dtype, torch.float32)
    for module in net.modules():
        if isinstance(module, FusedAPL):
            assert module.jump.dtype == module.position.dtype == module.line.dtype == wanted
            assert module.table.dtype == torch.float32


def test_float64_units_stay_exact() -> None:
    unit = random_unit((3,), 8, dtype=torch.float64)
    x = torch.randn(4, 3, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(fuse(unit)(x), unit(x), rtol=1e-14, atol=1e-14)
    y = fuse(unit)(x.float())
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, unit(x.float()))


def test_state_dict_also_of_other_numbers_of_kinks() -> None:
    net, x = fuse(network()), torch.randn(2, 3, 8, 8)
    other = network()
    with torch.no_grad():
        other[1].slope[3:] = 0.0
    target = fuse(other)
    assert target[1].jump.shape != net[1].jump.shape
    target.load_state_dict(net.state_dict())
    assert torch.equal(target(x), net(x))
    assert torch.equal(copy.deepcopy(net)(x), net(x))
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    target.load_state_dict(torch.load(buffer, weights_only=True))


@pytest.mark.usefixtures("capability")
@pytest.mark.parametrize("affine", [False, True], ids=["APL", "AffineAPL"])
@pytest.mark.parametrize("per", ["channel", "position"])
def test_gradient_of_the_input(per: str, affine: bool) -> None:
    unit = random_unit((3,) if per == "channel" else (3, 8, 9), 8, affine=affine)
    x = torch.randn(4, 3, 8, 9)
    g = torch.randn_like(x)
    grads = []
    for module in (unit, fuse(unit)):
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(module(leaf), leaf, g)
        grads.append(grad)
    torch.testing.assert_close(grads[1], grads[0])
    fused, double = fuse(copy.deepcopy(unit).double()), x[:1, :, :2].double().requires_grad_()
    if per == "channel":
        assert torch.autograd.gradcheck(fused, double)
        assert torch.autograd.gradgradcheck(fused, double)


def test_no_gradient_at_the_kink_itself() -> None:
    unit = random_unit((), 6)
    x = torch.cat([unit.offset.detach(), torch.zeros(1), torch.tensor([NAN])]).requires_grad_()
    expected, actual = (torch.autograd.grad(m(x).sum(), x)[0] for m in (unit, fuse(unit)))
    torch.testing.assert_close(actual, expected, equal_nan=True)


def test_transforms_of_torch_func() -> None:
    unit = random_unit((3,), 8)
    fused, x = fuse(unit), torch.randn(5, 4, 3, 6)
    mapped = torch.func.vmap(fused)(x)
    torch.testing.assert_close(mapped, torch.stack([unit(part) for part in x]))
    # Saliency maps, a sample each; and curves of two models.
    grads = torch.func.vmap(torch.func.grad(lambda part: fused(part).sum()))(x)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(unit(leaf.flatten(0, 1)).sum(), leaf)
    torch.testing.assert_close(grads, expected)
    _, tangent = torch.func.jvp(fused, (x[0],), (torch.ones_like(x[0]),))
    torch.testing.assert_close(tangent, expected[0])
    state = {name: torch.stack([b, 2 * b]) for name, b in fused.named_buffers() if b.numel()}
    both = torch.func.vmap(lambda s: torch.func.functional_call(fused, s, (x[0],)))(state)
    torch.testing.assert_close(both[0], unit(x[0]))


@pytest.mark.parametrize("line", [False, True])
def test_the_operator_passes_opcheck(line: bool) -> None:
    fused = fuse(random_unit((3,), 8, affine=line))
    x = torch.randn(2, 3, 8, 9, requires_grad=True)
    numbers = (fused.jump, fused.position, fused.line, fused.table, 1)
    torch.library.opcheck(curve_operator, (x, *numbers))
    with pytest.raises(RuntimeError, match="they are frozen"):
        curve_operator(x, fused.jump.clone().requires_grad_(), *numbers[1:])


@pytest.mark.parametrize(
    "wrong",
    [
        {"jump": torch.ones(2, 4)},
        {"jump": torch.tensor(1.0)},
        {"line": torch.ones(2, 3)},
        {"table": torch.ones(3, 33)},
        {"table": torch.ones(2, 64)},
        {"table": torch.ones(3, 64, dtype=torch.float64)},
        {"position": torch.ones(2, 3, dtype=torch.int64)},
        {"unit_dim": 3},
        {"unit_dim": 5},
        {"unit_dim": -4},
    ],
    ids=str,
)
def test_the_operator_refuses_what_does_not_fit(wrong: dict[str, object]) -> None:
    if not extension.has_kernels() and "table" in wrong:
        pytest.skip("the definition does not look at tables")
    arguments: dict[str, object] = {
        "jump": torch.ones(2, 3),
        "position": torch.ones(2, 3),
        "line": torch.empty(0),
        "table": torch.empty(0),
        "unit_dim": 1,
    }
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        curve_operator(torch.randn(2, 3, 5), **(arguments | wrong))


def test_one_result_for_any_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        for shape, units in (((64, 24, 16, 16), (24,)), ((600_001,), ()), ((2048, 300), (300,))):
            fused, x = fuse(random_unit(units, 8, affine=True)), torch.randn(shape)
            results = []
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                results.append(fused(x))
            assert torch.equal(results[0], results[1])
            assert torch.equal(results[0], results[2])
    finally:
        torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_exported_programs_hold_plain_operators() -> None:
    net, x = fuse(network()), torch.randn(4, 3, 8, 8)
    other = torch.randn(7, 3, 8, 8)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    assert "torchapl" not in str(program.graph)
    torch.testing.assert_close(program.module()(other), net(other))
    traced = torch.jit.trace(net, (x,))
    assert "torchapl::" not in str(traced.inlined_graph)
    torch.testing.assert_close(traced(other), net(other))


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
def test_compiled(grad: bool) -> None:
    net, x = fuse(network()), torch.randn(4, 3, 8, 8, requires_grad=grad)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), net(x))
    if grad:
        expected, actual = (torch.autograd.grad(m(x).sum(), x)[0] for m in (net, compiled))
        torch.testing.assert_close(actual, expected)


def test_swapped_models_are_fused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Conv2d(4, 4, 3), nn.ReLU6(), nn.Tanh())
    x = torch.randn(16, 3, 9, 9)
    net = torchapl.swap_activations(net.eval(), x)
    fused = fuse(net)
    # All channels begin with one curve.
    assert fused[1].jump.dim() == 1
    torch.testing.assert_close(fused(x), net(x), rtol=1e-5, atol=1e-5)
    # The copy has no units that could be described or put back.
    assert not torchapl.describe(fused).swaps
    assert len(torchapl.describe(net).swaps) == 3


def test_the_definition_is_the_operator_of_other_devices() -> None:
    fused, x = fuse(random_unit((3,), 4, affine=True)), torch.randn(2, 3, 5)
    numbers = (fused.jump, fused.position, fused.line)
    result = evaluate(x, *numbers, 1)
    torch.testing.assert_close(curve_operator(x, *numbers, fused.table, 1), result)
    x = lay_out(x, "strided")
    torch.testing.assert_close(curve_operator(x, *numbers, fused.table, -2), result)
    assert curve_operator(
        x.to("meta"), *(n.to("meta") for n in numbers), fused.table.to("meta"), 1
    ).is_meta
