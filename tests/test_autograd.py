"""Autograd, in C++ or in Python: what it keeps, what it skips, and who may call the operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import torchapl
from cases import CASES, Case
from torchapl import ops, reference
from torchapl.ops import apl_operator, backward_operator, extension

needs_node = pytest.mark.skipif(not extension.has_node(), reason="autograd runs in Python")

LAYOUTS = ["per channel", "per position", "channels last per channel", "strided per position"]


def case_named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def arguments(name: str = "per channel", **options: object) -> tuple[Tensor, Tensor, Tensor, int]:
    case = case_named(name)
    x, a, b, _ = case.make(requires_grad=True, **options)
    return x, a, b, case.normal_dim


@pytest.fixture
def calls() -> Iterator[list[tuple[str, tuple[object, ...]]]]:
    """Record the operators of this package that run below autograd."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[tuple[str, tuple[object, ...]]] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace == "torchapl":
                seen.append((function.__name__, args))
            return function(*args, **(kwargs or {}))

    with Recorder():
        yield seen


def test_the_graph_is_made_in_cpp_if_possible() -> None:
    name = "AplBackward" if extension.has_node() else "AplFunctionBackward"
    x, a, b, unit_dim = arguments()
    for function in (apl_operator, ops.apl):
        assert function(x, a, b, unit_dim).grad_fn.name() == name
        with torch.no_grad():
            assert function(x, a, b, unit_dim).grad_fn is None
    constants = (tensor.detach() for tensor in (x, a, b))
    assert ops.apl(*constants, unit_dim).grad_fn is None


def test_keeps_input_slope_and_offset_only() -> None:
    x, a, b, unit_dim = arguments()
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = apl_operator(x, a, b, unit_dim)
    assert [tensor.data_ptr() for tensor in saved] == [t.data_ptr() for t in (x, a, b)]
    output.sum().backward()
    assert all(leaf.grad is not None for leaf in (x, a, b))


@pytest.mark.skipif(not extension.has_kernels(), reason="the definition makes intermediate maps")
def test_peak_memory_is_relu_s() -> None:
    size = 4 * 2**20

    def peak(function) -> int:
        x = torch.randn(64, 64, 16, 16, requires_grad=True)
        g = torch.ones(64, 64, 16, 16)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
        ) as profile:
            torch.autograd.grad(function(x), x, g)
        events = sorted(
            (
                event
                for event in profile.profiler.kineto_results.events()
                if event.name() == "[memory]"
            ),
            key=lambda event: event.start_ns(),
        )
        held = highest = 0
        for event in events:
            held += event.nbytes()
            highest = max(highest, held)
        return highest

    a, b = (torch.randn(5, 64, requires_grad=True) for _ in range(2))
    relu = peak(torch.relu)
    assert 2 * size <= relu
    assert peak(lambda x: apl_operator(x, a, b, 1)) <= relu + 2**16


def test_released_after_backward() -> None:
    x, a, b, unit_dim = arguments()
    output = apl_operator(x, a, b, unit_dim).sum()
    output.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.backward()


def test_a_changed_input_is_noticed() -> None:
    x, a, b, unit_dim = arguments()
    y = x * 1
    output = apl_operator(y, a, b, unit_dim)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@needs_node
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_skips_gradients_nobody_asked_for(wanted: tuple[int, ...], calls) -> None:
    *leaves, unit_dim = arguments()
    output = apl_operator(*leaves, unit_dim)
    torch.autograd.grad(output.sum(), [leaves[i] for i in wanted])
    name, args = calls[-1]
    assert name == "apl_backward.default"
    assert list(args[-1]) == [i in wanted for i in range(3)]


@pytest.mark.parametrize("frozen", [(0,), (1, 2)])
def test_skips_gradients_of_frozen_tensors(frozen: tuple[int, ...], calls) -> None:
    *leaves, unit_dim = arguments()
    for i in frozen:
        leaves[i].requires_grad_(False)
    apl_operator(*leaves, unit_dim).sum().backward()
    assert list(calls[-1][1][-1]) == [i not in frozen for i in range(3)]
    assert [leaf.grad is None for leaf in leaves] == [i in frozen for i in range(3)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradcheck(case: Case) -> None:
    if case.layout == "expanded":
        pytest.skip("finite differences cannot move one of several elements with one address")
    x, a, b, _ = case.make(dtype=torch.float64, requires_grad=True)

    def function(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return apl_operator(x, a, b, case.normal_dim)

    assert torch.autograd.gradcheck(function, (x, a, b), eps=1e-4, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (x, a, b), eps=1e-4, fast_mode=True)


@pytest.mark.parametrize("name", LAYOUTS)
def test_opcheck(name: str) -> None:
    x, a, b, unit_dim = arguments(name)
    torch.library.opcheck(apl_operator, (x, a, b, unit_dim))
    grad = torch.randn_like(x)
    mask = (True, False, True)
    torch.library.opcheck(backward_operator, (grad, x, a, b, unit_dim, mask))


@pytest.mark.parametrize("name", LAYOUTS)
def test_compiled_without_a_graph_break(name: str) -> None:
    x, a, b, unit_dim = arguments(name)
    options = {"fullgraph": True, "backend": "aot_eager"}
    compiled = torch.compile(lambda *all: torchapl.apl(*all, unit_dim=unit_dim).sin(), **options)
    expected = torch.autograd.grad(apl_operator(x, a, b, unit_dim).sin().sum(), (x, a, b))
    actual = torch.autograd.grad(compiled(x, a, b).sum(), (x, a, b))
    torch.testing.assert_close(actual, expected)


def test_compiled_autograd() -> None:
    x, a, b, unit_dim = arguments()
    expected = torch.autograd.grad(apl_operator(x, a, b, unit_dim).sin().sum(), (x, a, b))

    @torch.compile(backend="eager")
    def step() -> None:
        apl_operator(x, a, b, unit_dim).sin().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        step()
    torch.testing.assert_close((x.grad, a.grad, b.grad), expected)


def test_the_operator_can_be_exported() -> None:
    class Unit(torchapl.APL):
        def forward(self, input: Tensor) -> Tensor:
            return apl_operator(input, self.slope, self.offset, 1)

    unit, x = Unit(3, 2), torch.randn(4, 3, 5)
    program = torch.export.export(unit, (x,))
    assert "torchapl.apl" in str(program.graph)
    assert torch.equal(program.module()(x), unit(x))


def test_checkpointed() -> None:
    x, a, b, unit_dim = arguments()
    expected = torch.autograd.grad(apl_operator(x, a, b, unit_dim).sum(), (x, a, b))
    output = checkpoint(apl_operator, x, a, b, unit_dim, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(output.sum(), (x, a, b)), expected)


def loss(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torchapl.apl(x, a, b).pow(2).sum()


def plain(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return reference.apl(x, a, b, 1).pow(2).sum()


def test_torch_func_grad() -> None:
    x, a, b, _ = (
        t.detach() if isinstance(t, Tensor) else t for t in arguments(dtype=torch.float64)
    )
    everything = (0, 1, 2)
    torch.testing.assert_close(
        torch.func.grad(loss, everything)(x, a, b), torch.func.grad(plain, everything)(x, a, b)
    )
    torch.testing.assert_close(
        torch.func.jacrev(torchapl.apl, everything)(x, a, b),
        torch.func.jacrev(lambda x, a, b: reference.apl(x, a, b, 1), everything)(x, a, b),
    )
    torch.testing.assert_close(
        torch.func.hessian(loss, 1)(x, a, b), torch.func.hessian(plain, 1)(x, a, b)
    )


@pytest.mark.parametrize("in_dims", [(0, None, None), (0, 0, 0), (None, 0, 0), (1, None, 0)])
def test_vmap(in_dims: tuple[int | None, ...]) -> None:
    x, a, b = torch.randn(5, 5, 3, 4), torch.randn(2, 3), torch.randn(2, 3)
    x = x if in_dims[0] is not None else x[0]
    a, b = (
        t if dim is None else torch.randn(5, 2, 3)
        for t, dim in zip((a, b), in_dims[1:], strict=True)
    )
    torch.testing.assert_close(
        torch.func.vmap(torchapl.apl, in_dims)(x, a, b),
        torch.func.vmap(lambda x, a, b: reference.apl(x, a, b, 1), in_dims)(x, a, b),
    )


def test_gradients_per_sample() -> None:
    x, a, b = torch.randn(6, 2, 3, 4), torch.randn(2, 3), torch.randn(2, 3)

    def per_sample(function):
        return torch.func.vmap(torch.func.grad(function, (0, 1, 2)), (0, None, None))(x, a, b)

    torch.testing.assert_close(per_sample(loss), per_sample(plain))


def test_forward_mode() -> None:
    x, a, b, unit_dim = (t.detach() if isinstance(t, Tensor) else t for t in arguments())
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(torchapl.apl(dual, a, b)).tangent
        assert torch.equal(
            tangent, torch.autograd.functional.jvp(plain_apl(a, b), x, torch.ones_like(x))[1]
        )
        with pytest.raises(NotImplementedError, match=r"torchapl\.apl\(\) has"):
            apl_operator(dual, a, b, unit_dim)


def plain_apl(a: Tensor, b: Tensor):
    return lambda x: reference.apl(x, a, b, 1)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    if not torch.distributed.is_gloo_available():
        pytest.skip("needs gloo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
def test_distributed(wrapper: str) -> None:
    model = nn.Sequential(nn.Linear(4, 6), torchapl.APL(6, 2), nn.Linear(6, 2))
    x = torch.randn(8, 4)
    expected = torch.autograd.grad(model(x).pow(2).sum(), tuple(model.parameters()))
    wrapped = nn.parallel.DistributedDataParallel(model) if wrapper == "ddp" else sharded(model)
    wrapped(x).pow(2).sum().backward()
    for parameter, gradient in zip(wrapped.parameters(), expected, strict=True):
        found = parameter.grad
        full = found.full_tensor() if hasattr(found, "full_tensor") else found
        torch.testing.assert_close(full, gradient)


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
@pytest.mark.filterwarnings("ignore:DTensor random operators")
@pytest.mark.parametrize("start", [torchapl.init.leaky_, torchapl.init.authors_])
def test_sharded_units_start_and_are_penalised(start: object) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 6), torchapl.APL(6, 3, init=start))
    sharded(model).to_empty(device="cpu")
    for module in model:
        module.reset_parameters()
    slope = model[1].slope.full_tensor().detach()
    loss = 0 * model(torch.randn(8, 4)).sum() + torchapl.l2_penalty(model, factor=1.0)
    loss.backward()
    torch.testing.assert_close(model[1].slope.grad.full_tensor(), slope)
    if start is torchapl.init.leaky_:
        assert torch.equal(slope[:, 0], torch.tensor([0.0, -0.25, 0.0]))
