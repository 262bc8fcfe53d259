"""A swapped model in everything that people do with models."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchapl
from surgery import zoo
from torchapl import describe, swap_activations


class Net(nn.Module):
    """Modules, a function, a module at two sites and a function without an exact unit."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU())
        self.block = zoo.BasicBlock(6)
        self.head = nn.Sequential(nn.Linear(6, 8), nn.Hardtanh(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.block(self.stem(x)).mean([2, 3])))


def network() -> nn.Module:
    torch.manual_seed(0)
    return swap_activations(Net(), batch(), num_hinges=2)


def batch(seed: int = 1) -> Tensor:
    return torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(seed))


def loss_of(model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return (model(x) - 1).square().mean()


def curves_of(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in torchapl.curve_parameters(model)]


def test_the_network_has_every_form() -> None:
    names = [swap.name for swap in describe(network()).swaps]
    assert names == ["stem.1", "block.relu_1", "block.relu_2", "relu_1", "head.1"]


def test_parameter_groups() -> None:
    model = network()
    groups = torchapl.parameter_groups(model, lr=0.1, curve_lr=0.01)
    optimizer = torch.optim.AdamW(groups)
    before = curves_of(model)
    loss_of(model, batch()).backward()
    optimizer.step()
    assert sum(len(group["params"]) for group in groups[1:]) == len(before)
    assert any(not torch.equal(a, b) for a, b in zip(before, curves_of(model), strict=True))


@pytest.mark.slow
def test_compile() -> None:
    torch._dynamo.reset()
    model = network().eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = batch().requires_grad_()
    expected = model(x)
    torch.testing.assert_close(compiled(x), expected)
    ours, theirs = (
        torch.autograd.grad(y.square().sum(), list(model.parameters()))
        for y in (compiled(x), expected)
    )
    torch.testing.assert_close(ours, theirs)
    assert len(describe(compiled).swaps) == 5


def test_autocast() -> None:
    model = network()
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, batch())
    loss.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    torch.testing.assert_close(loss.float(), loss_of(network(), batch()), rtol=0.05, atol=0)


def test_swap_under_autocast_keeps_parameters_in_full_precision() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        model = network()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing(use_reentrant: bool) -> None:
    model = network().eval()
    grads = []
    for wrap in (False, True):
        model.zero_grad()
        x = batch().requires_grad_()
        y = checkpoint(model, x, use_reentrant=use_reentrant) if wrap else model(x)
        y.square().mean().backward()
        grads.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averaged_models(kind: str) -> None:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

    model = network()
    average = AveragedModel(
        model, multi_avg_fn=get_ema_multi_avg_fn(0.5) if kind == "ema" else None
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, batch()).backward()
        optimizer.step()
        average.update_parameters(model)
        history.append(curves_of(model))
    for first, second, mean in zip(*history, curves_of(average.module), strict=True):
        torch.testing.assert_close(mean, (first + second) / 2)
    update_bn([batch()], average)
    assert len(describe(average).swaps) == 5
    assert not torch.equal(average(batch()), model(batch()))


def _run(worker: Callable[[int], None], world_size: int = 2) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(_start, (worker, world_size, port), nprocs=world_size)


def _start(rank: int, worker: Callable[[int], None], world_size: int, port: int) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    worker(rank)
    # Both have all they need from each other before either goes.
    dist.barrier()
    dist.destroy_process_group()
    # Threads of gloo and of the device mesh may outlive their owners at a regular exit, and abort.
    os._exit(0)


def _reference_step() -> dict[str, Tensor]:
    """Return the state after one step on both ranks' batches, in one process."""
    model = network().eval()
    optimizer = torch.optim.SGD(torchapl.parameter_groups(model), lr=0.1)
    ((loss_of(model, batch(0)) + loss_of(model, batch(1))) / 2).backward()
    optimizer.step()
    return model.state_dict()


def _ddp_worker(rank: int) -> None:
    model = network().eval()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(torchapl.parameter_groups(parallel), lr=0.1)
    loss_of(parallel, batch(rank)).backward()
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), _reference_step())
    assert describe(parallel).swaps[0].name == "module.stem.1"


def _fsdp_worker(rank: int) -> None:
    from torch.distributed.fsdp import fully_shard

    mesh: Any = dist.device_mesh.init_device_mesh("cpu", (2,))
    model = network().eval()
    for part in (model.stem, model.block, model.head):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(torchapl.parameter_groups(model), lr=0.1)
    loss_of(model, batch(rank)).backward()
    optimizer.step()
    expected = _reference_step()
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        torch.testing.assert_close(whole, expected[name], msg=name)


def _fsdp_reset_worker(rank: int) -> None:
    from torch.distributed.fsdp import fully_shard

    mesh: Any = dist.device_mesh.init_device_mesh("cpu", (2,))
    model = network().eval()
    model.append = torchapl.curves.fit(torch.tanh, 3, (-3.0, 3.0)).module(4)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    fully_shard(model, mesh=mesh)
    with torch.no_grad():
        for parameter in torchapl.curve_parameters(model):
            parameter.fill_(rank)
    units = [module for module in model.modules() if isinstance(module, torchapl.APL)]
    assert len(units) == 6
    for unit in units:
        unit.reset_parameters()
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        assert torch.equal(whole, expected[name]), name


def _fsdp_align_worker(rank: int) -> None:
    from torch.distributed.fsdp import fully_shard

    mesh: Any = dist.device_mesh.init_device_mesh("cpu", (2,))
    model, twin = network().eval(), network().eval()
    outputs = model(batch())
    fully_shard(model.block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert torchapl.init.align_(model, [batch()]) == torchapl.init.align_(twin, [batch()])
    torch.testing.assert_close(model(batch()), outputs)
    model.reshard()
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        torch.testing.assert_close(whole, twin.state_dict()[name], msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "worker", [_ddp_worker, _fsdp_worker, _fsdp_reset_worker, _fsdp_align_worker]
)
def test_two_processes(worker: Callable[[int], None]) -> None:
    _run(worker)


def test_copies_train_apart() -> None:
    model = network()
    twin = copy.deepcopy(model)
    before = curves_of(model)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    loss_of(twin, batch()).backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, curves_of(model), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(before, curves_of(twin), strict=True))
