"""More than one process: torchrun starts them, every one computes its rows of each batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from torchapl.paper.nets.dropout import Dropout

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and talks."""
        return self.rank == 0


def is_first_process() -> bool:
    """Whether this is the only process, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str) -> Iterator[tuple[World, torch.device]]:
    """Join the processes torchrun started; alone without it.

    Args:
        device: ``"auto"`` takes CUDA where there is one.

    Example:
        >>> with joined("cpu") as (world, device):
        ...     world.size, device.type
        (1, 'cpu')
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    world = World(
        int(os.environ.get("RANK", "0")) if size > 1 else 0,
        size,
        int(os.environ.get("LOCAL_RANK", "0")) if size > 1 else 0,
    )
    chosen = _choose(device, world)
    if size == 1:
        yield world, chosen
        return
    # torchrun keeps one store over restarts: a new life would meet the addresses of the last one.
    store, rank, size = next(rendezvous("env://"))
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        "nccl" if chosen.type == "cuda" else "gloo",
        store=PrefixStore(f"life {life}", store),
        rank=rank,
        world_size=size,
    )
    try:
        yield world, chosen
    finally:
        dist.destroy_process_group()


def _choose(device: str, world: World) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or such as cuda:1, got {device!r}")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device {device!r} is none: {error}") from error
    if chosen.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device {device!r} was asked for, but torch finds no CUDA device")
        if chosen.index is not None and chosen.index >= torch.cuda.device_count():
            raise ValueError(
                f"device {device!r} was asked for, but torch finds {torch.cuda.device_count()} "
                "CUDA devices"
            )
        if chosen.index is None:
            chosen = torch.device("cuda", world.local_rank)
        torch.cuda.set_device(chosen)
    return chosen


def from_first(value: T, world: World) -> T:
    """Return the first process's value in all of them."""
    if world.size == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


def total(value: Tensor, world: World) -> Tensor:
    """Return the sum over all processes."""
    if world.size > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def in_order(chunks: list[Tensor], world: World) -> Tensor:
    """Return all processes' rows in the order of the data; ``chunks`` holds one per batch."""
    if world.size > 1:
        gathered: list[list[Tensor] | None] = [None] * world.size
        dist.all_gather_object(gathered, chunks)
        parts = [rank_chunks for rank_chunks in gathered if rank_chunks is not None]
        chunks = [chunk for batch in zip(*parts, strict=True) for chunk in batch]
    return torch.cat(chunks)


@dataclass
class Share:
    """Which rows of the present batch are this process's: from ``first`` on, of ``rows`` in all."""

    first: int = 0
    rows: int = 0


def shard_dropout_(model: nn.Module, share: Share) -> None:
    """Make every dropout layer draw the mask of the whole batch and use this process's rows.

    The processes then see the masks that a single one would have seen (on the CPU, to the bit),
    whatever their number.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            # The same layer to everyone who looks, with a mask of more rows.
            module.forward = _ShardedDropout(module, share)  # type: ignore[method-assign]


class _ShardedDropout:
    def __init__(self, module: nn.Dropout, share: Share) -> None:
        self.module = module
        self.share = share

    def __call__(self, input: Tensor) -> Tensor:
        if not self.module.training or self.module.p == 0:
            return input
        return input * self._mask(input)[self.share.first : self.share.first + input.shape[0]]

    def _mask(self, input: Tensor) -> Tensor:
        if isinstance(self.module, Dropout) and input.is_cpu:
            return self.module.factors(input, self.share.rows)
        keep = 1 - self.module.p
        shape = (self.share.rows, *input.shape[1:])
        mask = torch.empty(shape, dtype=input.dtype, device=input.device)
        return mask.bernoulli_(keep).div_(keep)
