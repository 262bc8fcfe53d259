"""The laws of the operator over the whole table of cases, whichever kernel serves the CPU."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from cases import CASES, DTYPES, Case
from torchapl import APL, apl, init, reference

OPERATOR = torch.ops.torchapl.apl.default
BACKWARD = torch.ops.torchapl.apl_backward.default

all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# One of each memory pattern, for what is slow to run.
few_cases = pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if case.name in ("per channel", "per position", "last axis", "per layer")
    ],
    ids=lambda case: case.name,
)


def scalar_unit(x: float, a: list[float], b: list[float]) -> tuple[float, float]:
    """Return h(x) and h'(x) by the formulas of the paper, in Python's own arithmetic."""
    value = max(0.0, x) + sum(a_s * max(0.0, b_s - x) for a_s, b_s in zip(a, b, strict=True))
    derivative = (x > 0) - sum(a_s for a_s, b_s in zip(a, b, strict=True) if b_s > x)
    return value, derivative


def test_reference_is_the_formula_of_the_paper() -> None:
    a, b = [0.3, -0.7, 0.2], [-1.0, 0.5, 2.0]
    points = [-3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 4.0]
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    y = reference.apl(x, torch.tensor(a).double(), torch.tensor(b).double(), 0)
    y.sum().backward()
    assert x.grad is not None
    for index, point in enumerate(points):
        value, derivative = scalar_unit(point, a, b)
        assert y[index].item() == pytest.approx(value, abs=1e-7)
        assert x.grad[index].item() == pytest.approx(derivative, abs=1e-7)


def test_reference_parameter_gradients_are_those_of_the_paper() -> None:
    a, b, points, g = [0.3, -0.7], [-1.0, 0.5], [-3.0, -0.25, 1.0], [1.0, -2.0, 0.5]
    _, da, db = reference.apl_backward(
        *(torch.tensor(v, dtype=torch.float64) for v in (g, points, a, b)), 0
    )
    for s in range(2):
        hinge = [max(0.0, b[s] - x) for x in points]
        assert da[s].item() == pytest.approx(sum(gi * m for gi, m in zip(g, hinge, strict=True)))
        active = sum(gi * a[s] for gi, m in zip(g, hinge, strict=True) if m > 0)
        assert db[s].item() == pytest.approx(active)


@all_cases
def test_explicit_gradients_are_autograds(case: Case) -> None:
    x, a, b, _ = case.make(dtype=torch.float64, requires_grad=True)
    y = reference.apl(x, a, b, case.normal_dim)
    g = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, a, b), g)
    actual = reference.apl_backward(g, x, a, b, case.normal_dim)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right)


@all_cases
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.usefixtures("nan_filled_outputs")
def test_dtype_and_memory_format_are_those_of_relu(case: Case, dtype: torch.dtype) -> None:
    x, a, b, unit_dim = case.make(dtype=dtype, parameter_dtype=torch.float32, requires_grad=True)
    y = apl(x, a, b, unit_dim=unit_dim)
    assert (y.dtype, y.shape, y.stride()) == (dtype, x.shape, x.relu().stride())
    y.backward(torch.ones_like(y))
    assert x.grad is not None
    assert a.grad is not None
    assert (x.grad.dtype, a.grad.dtype) == (dtype, torch.float32)
    exact = reference.apl(x.double(), a.double(), b.double(), case.normal_dim)
    torch.testing.assert_close(
        y.double(),
        exact,
        rtol=2 * torch.finfo(dtype).eps,
        atol=1e-2 if dtype.itemsize == 2 else 1e-5,
    )


@all_cases
def test_gradcheck(case: Case) -> None:
    x, a, b, unit_dim = case.make(dtype=torch.float64, requires_grad=True)
    if x.numel() > 2000:
        pytest.skip("finite differences of large cases take minutes; their kernels are compared")
    x = x.detach().clone().requires_grad_() if case.layout == "expanded" else x

    def unit(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return apl(x, a, b, unit_dim=unit_dim)

    assert gradcheck(unit, (x, a, b), eps=1e-4, fast_mode=x.numel() > 200)
    assert gradgradcheck(unit, (x, a, b), eps=1e-4, fast_mode=x.numel() > 40)


@all_cases
def test_double_backward_is_that_of_the_plain_formula(case: Case) -> None:
    def second(function: object) -> tuple[Tensor, ...]:
        x, a, b, _ = case.make(dtype=torch.float64, requires_grad=True)
        y = function(x, a, b, case.normal_dim)
        first = torch.autograd.grad(y.square().sum(), (x, a, b), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, a, b))

    for left, right in zip(second(OPERATOR), second(reference.apl), strict=True):
        torch.testing.assert_close(left, right)


@all_cases
def test_opcheck(case: Case) -> None:
    x, a, b, _ = case.make(requires_grad=True)
    torch.library.opcheck(OPERATOR, (x, a, b, case.normal_dim))


@all_cases
@pytest.mark.parametrize(
    "mask", [[True] * 3, [True, False, False], [False, True, False], [False, False, True]]
)
def test_opcheck_backward(case: Case, mask: list[bool]) -> None:
    x, a, b, _ = case.make()
    arguments = (torch.randn_like(x), x, a, b, case.normal_dim, mask)
    torch.library.opcheck(BACKWARD, arguments, test_utils=("test_schema", "test_faketensor"))
    for result, wanted, like in zip(BACKWARD(*arguments), mask, (x, a, b), strict=True):
        assert result.shape == (like.shape if wanted else (0,))


@all_cases
def test_compile_without_code_generation(case: Case) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(apl, fullgraph=True, backend="aot_eager")
    assert_same_gradients(compiled, case)


@pytest.mark.slow
@few_cases
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(case: Case, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(apl, fullgraph=True, dynamic=dynamic)
    assert_same_gradients(compiled, case)
    if dynamic and case.input_shape[0] != 2:
        grown = Case(case.name, (9, *case.input_shape[1:]), case.unit_shape, case.unit_dim)
        with torch._dynamo.config.patch(error_on_recompile=True):
            assert_same_gradients(compiled, grown)


@pytest.mark.slow
def test_compiled_operator_and_compiled_formula_agree() -> None:
    torch._dynamo.reset()
    x, a, b, _ = CASES[0].make()
    formula = torch.compile(reference.apl, fullgraph=True)
    operator = torch.compile(apl, fullgraph=True)
    torch.testing.assert_close(formula(x, a, b, 1), operator(x, a, b))


def assert_same_gradients(function: object, case: Case) -> None:
    def gradients(function: object) -> tuple[Tensor, ...]:
        x, a, b, unit_dim = case.make(requires_grad=True)
        y = function(x, a, b, unit_dim=unit_dim)
        return (y.detach(), *torch.autograd.grad(y, (x, a, b), torch.ones_like(y)))

    for left, right in zip(gradients(function), gradients(apl), strict=True):
        assert left.stride() == right.stride()
        torch.testing.assert_close(left, right)


@all_cases
def test_vmap_over_inputs_parameters_and_both(case: Case) -> None:
    made = [case.make(seed)[:3] for seed in range(3)]
    x, a, b = (torch.stack(tensors) for tensors in zip(*made, strict=True))

    def unit(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return apl(x, a, b, unit_dim=case.unit_dim)

    for in_dims in ((0, None, None), (None, 0, 0), (0, 0, 0), (0, 0, None), (None, None, 0)):
        picked = [t if d == 0 else t[0] for t, d in zip((x, a, b), in_dims, strict=True)]
        mapped = torch.func.vmap(unit, in_dims)(*picked)
        each = [
            unit(*(t[i] if d == 0 else t[0] for t, d in zip((x, a, b), in_dims, strict=True)))
            for i in range(3)
        ]
        torch.testing.assert_close(mapped, torch.stack(each))


@all_cases
def test_vmap_over_another_axis(case: Case) -> None:
    made = [case.make(seed) for seed in range(3)]
    x = torch.stack([m[0] for m in made], -1)
    _, a, b, unit_dim = made[0]
    mapped = torch.func.vmap(lambda x: apl(x, a, b, unit_dim=unit_dim), -1, -1)(x)
    torch.testing.assert_close(
        mapped, torch.stack([apl(m[0], a, b, unit_dim=unit_dim) for m in made], -1)
    )


@all_cases
def test_per_sample_gradients(case: Case) -> None:
    made = [case.make(seed)[0] for seed in range(3)]
    _, a, b, unit_dim = case.make()

    def loss(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return apl(x, a, b, unit_dim=unit_dim).square().sum()

    gradient = torch.func.grad(loss, argnums=(0, 1, 2))
    mapped = torch.func.vmap(gradient, (0, None, None))(torch.stack(made), a, b)
    for index, x in enumerate(made):
        for left, right in zip(mapped, gradient(x, a, b), strict=True):
            torch.testing.assert_close(left[index], right)


@all_cases
def test_forward_mode(case: Case) -> None:
    # torch refuses tangents of expanded tensors, whatever the function.
    primals = tuple(tensor.clone() for tensor in case.make(dtype=torch.float64)[:3])
    tangents = tuple(torch.randn_like(primal) for primal in primals)

    def unit(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return apl(x, a, b, unit_dim=case.unit_dim)

    value, tangent = torch.func.jvp(unit, primals, tangents)
    torch.testing.assert_close(value, unit(*primals))
    step = 1e-4
    ahead, behind = (
        unit(*(p + sign * step * t for p, t in zip(primals, tangents, strict=True)))
        for sign in (1, -1)
    )
    # Second-order terms a*b are all that the central difference leaves.
    torch.testing.assert_close(tangent, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-5)


def test_forward_mode_through_dual_tensors() -> None:
    unit = APL(3, init=init.leaky_)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.tensor([[-1.0, 0.5, 2.0]]), torch.ones(1, 3))
        tangent = forward_ad.unpack_dual(unit(dual)).tangent
    torch.testing.assert_close(tangent, torch.tensor([[0.25, 1.0, 1.0]]))


def test_hessian_of_a_small_network() -> None:
    _, a, b, _ = Case("", (2, 4), (4,), 1).make(dtype=torch.float64)
    weight = torch.randn(4, 4, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return apl(x @ weight, a, b).square().sum()

    x = torch.randn(2, 4, dtype=torch.float64)
    forward_over_reverse = torch.func.hessian(loss)(x)
    reverse_over_reverse = torch.func.jacrev(torch.func.jacrev(loss))(x)
    torch.testing.assert_close(forward_over_reverse, reverse_over_reverse)
    torch.testing.assert_close(torch.autograd.functional.hessian(loss, x), forward_over_reverse)


@few_cases
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kinks_nan_and_infinities_are_as_in_torch_relu(case: Case, dtype: torch.dtype) -> None:
    inf, nan = math.inf, math.nan
    for special in (0.0, -0.0, inf, -inf, nan, 0.5, -0.5):
        for hinge in (0.0, 0.5, -0.5):
            x, a, b, _ = case.make(dtype=dtype, requires_grad=False)
            x, b = torch.full_like(x, special), torch.full_like(b, hinge)
            results = []
            for function in (OPERATOR, reference.apl):
                leaves = [t.clone().requires_grad_() for t in (x, a, b)]
                y = function(*leaves, case.normal_dim)
                y.backward(torch.ones_like(y))
                results.append([y.detach(), *(leaf.grad for leaf in leaves)])
            for left, right in zip(*results, strict=True):
                torch.testing.assert_close(left, right, equal_nan=True)


def test_no_gradient_exactly_at_a_kink() -> None:
    x = torch.tensor([[0.0], [0.5]], requires_grad=True)
    a, b = (torch.tensor([[value]], requires_grad=True) for value in (0.3, 0.5))
    apl(x, a, b).sum().backward()
    assert x.grad is not None
    assert b.grad is not None
    # At 0 the rectifier gives nothing and the hinge -a; at the hinge only the rectifier passes.
    torch.testing.assert_close(x.grad, torch.tensor([[-0.3], [1.0]]))
    torch.testing.assert_close(b.grad, torch.tensor([[0.3]]))


def test_zero_slopes_are_relu_to_the_bit() -> None:
    x = torch.randn(64, 33)
    for dtype in DTYPES:
        assert torch.equal(
            apl(x.to(dtype), torch.zeros(2, 33), torch.randn(2, 33)), x.to(dtype).relu()
        )


@pytest.mark.parametrize(
    "requires", [(True, True, True), (True, False, False), (False, True, True)]
)
def test_only_input_and_parameters_are_saved(requires: tuple[bool, bool, bool]) -> None:
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    leaves = CASES[1].make()[:3]
    for leaf, wanted in zip(leaves, requires, strict=True):
        leaf.requires_grad_(wanted)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        apl(*leaves)
    assert {t.data_ptr() for t in saved} == {t.data_ptr() for t in leaves}
    assert len(saved) == 3


@pytest.mark.parametrize(
    "requires", [(True, False, False), (False, True, False), (False, False, True)]
)
def test_gradients_nobody_asked_for_stay_none(requires: tuple[bool, bool, bool]) -> None:
    leaves = CASES[0].make()[:3]
    for leaf, wanted in zip(leaves, requires, strict=True):
        leaf.requires_grad_(wanted)
    apl(*leaves).sum().backward()
    assert tuple(leaf.grad is not None for leaf in leaves) == requires


def test_in_place_change_of_the_input_is_noticed() -> None:
    x, a, b, _ = CASES[0].make(requires_grad=True)
    hidden = x * 1
    y = apl(hidden, a, b)
    hidden.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_checkpointing_recomputes_the_same() -> None:
    net = nn.Sequential(nn.Linear(4, 8), APL(8), nn.Linear(8, 2))
    x = torch.randn(5, 4)
    net(x).sum().backward()
    plain = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    for reentrant in (False, True):
        net.zero_grad()
        y = torch.utils.checkpoint.checkpoint(net, x.requires_grad_(), use_reentrant=reentrant)
        y.sum().backward()
        for left, parameter in zip(plain, net.parameters(), strict=True):
            torch.testing.assert_close(left, parameter.grad)


def test_meta_tensors_have_shapes_alone() -> None:
    unit = APL(3, device="meta")
    x = torch.randn(2, 3, device="meta")
    assert unit(x).shape == (2, 3)
    # A device whose autograd runs in Python.
    gradient = torch.func.grad(lambda x: apl(x, unit.slope, unit.offset).sum())(x)
    assert gradient.shape == (2, 3)


def test_float32_parameters_of_a_bfloat16_input_are_summed_in_float32() -> None:
    # 4097 ones: a bfloat16 sum would stall at 256, and its result would be 4096.
    x = torch.full((4097, 1), -1.0, dtype=torch.bfloat16)
    a, b = torch.ones(1, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    apl(x, a, b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.item() == b.grad.item() == 4097
    _, da, db = reference.apl_backward(torch.ones_like(x), x, a, b, 1)
    assert da.item() == db.item() == 4097


MISFITS = {
    "fewer units": lambda x, a, b: (x, a[:, :2], b[:, :2], 1),
    "more units": lambda x, a, b: (x, torch.cat([a, a], 1), torch.cat([b, b], 1), 1),
    "more axes": lambda x, a, b: (x, a[..., None, None, None], b[..., None, None, None], 1),
    "fewer offsets": lambda x, a, b: (x, a, b[:1], 1),
    "other offsets": lambda x, a, b: (x, a, b.double(), 1),
    "no hinges": lambda x, a, b: (x, a[:0], b[:0], 1),
    "no axes": lambda x, a, b: (x, a[0, 0], b[0, 0], 1),
    "another axis": lambda x, a, b: (x, a, b, 2),
    "no axis": lambda x, a, b: (x, a, b, 3),
    "no axis at all": lambda x, a, b: (x, a, b, -4),
    "far away": lambda x, a, b: (x, a, b, 2**62),
    "far before": lambda x, a, b: (x, a, b, -(2**63)),
    "an input without axes": lambda x, a, b: (x[0, 0, 0], a, b, 0),
    "integers": lambda x, a, b: (x.long(), a, b, 1),
    "complex": lambda x, a, b: (x, a.to(torch.complex64), b.to(torch.complex64), 1),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("misfit", MISFITS)
def test_the_operators_refuse_what_does_not_fit(
    misfit: str, requires_grad: bool, device: str
) -> None:
    x, a, b = torch.randn(4, 3, 5), torch.randn(2, 3), torch.randn(2, 3)
    *tensors, unit_dim = MISFITS[misfit](x, a, b)
    tensors = [
        t.to(device).requires_grad_(requires_grad and t.is_floating_point()) for t in tensors
    ]
    # Kernels in C++ have one type of error for everything.
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        OPERATOR(*tensors, unit_dim)
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        BACKWARD(torch.randn(4, 3, 5, device=device), *tensors, unit_dim, [True] * 3)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("shape", [(), (4, 3), (4, 3, 4), (4, 3, 5, 1), (5, 3, 4)], ids=str)
def test_the_backward_operator_refuses_another_gradient(
    shape: tuple[int, ...], device: str
) -> None:
    x, a, b = (torch.randn(s, device=device) for s in ((4, 3, 5), (2, 3), (2, 3)))
    with pytest.raises((RuntimeError, ValueError), match="grad must have the shape"):
        BACKWARD(torch.randn(shape, device=device), x, a, b, 1, [True] * 3)


def test_the_backward_operator_refuses_another_mask() -> None:
    x, a, b, _ = CASES[0].make()
    for mask in ([True], [True] * 2, [True] * 4, []):
        with pytest.raises((ValueError, RuntimeError)):
            BACKWARD(x, x, a, b, 1, mask)


def test_the_operators_refuse_several_devices() -> None:
    x, a, b, _ = CASES[0].make()
    for tensors in ((x.to("meta"), a, b), (x, a.to("meta"), b), (x, a, b.to("meta"))):
        with pytest.raises(ValueError, match="one device"):
            OPERATOR(*tensors, 1)
        with pytest.raises(ValueError, match="one device"):
            BACKWARD(x, *tensors, 1, [True] * 3)
    with pytest.raises(ValueError, match="device"):
        BACKWARD(x.to("meta"), x, a, b, 1, [True] * 3)


@all_cases
def test_an_axis_may_be_counted_from_the_end(case: Case) -> None:
    x, a, b, _ = case.make(requires_grad=True)
    before_end = case.normal_dim - len(case.input_shape) if case.unit_shape else -7
    y = OPERATOR(x, a, b, before_end)
    assert torch.equal(y, OPERATOR(x, a, b, case.normal_dim))
    first = torch.autograd.grad(y.square().sum(), (x, a, b), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, a, b))
    assert [g.shape for g in second] == [x.shape, a.shape, b.shape]
    each = torch.func.vmap(lambda x: OPERATOR(x, a, b, before_end))(x.detach()[None])
    assert torch.equal(each[0], y)
