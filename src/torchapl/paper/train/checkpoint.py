"""Checkpoints that survive a kill at any moment, and are trusted only after their checksum."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from torchapl.runs.atomic import write_atomic
from torchapl.runs.records import Json

_PATTERN = "{kind}-{number:09d}.{digest}.safetensors"
_DIGITS = 16


def save(
    folder: Path,
    kind: str,
    number: int,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Json],
    *,
    keep: int,
) -> Path:
    """Write a checkpoint and remove all but the newest ``keep`` of its kind.

    The name carries a checksum of the whole file, so file and checksum appear by one rename.

    Args:
        folder: Exists.
        kind: Such as ``"last"`` or ``"best"``.
        number: Orders the checkpoints of a kind: the step or epoch.
        tensors: Any tensors.
        facts: Anything JSON holds.
        keep: How many to leave.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = safetensors.torch.save(plain, metadata={"facts": json.dumps(facts)})
    name = _PATTERN.format(kind=kind, number=number, digest=_digest(content))
    write_atomic(folder / name, content)
    prune(folder, kind, keep=keep)
    return folder / name


def prune(folder: Path, kind: str, *, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints of a kind."""
    paths = _paths(folder, kind)
    for old in paths[: max(0, len(paths) - keep)]:
        old.unlink(missing_ok=True)


def load(
    folder: Path, kind: str, number: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Json]] | None:
    """Return tensors and facts of the newest checkpoint that is whole; None if there is none.

    A damaged one is removed with a warning, and the one before it is tried.

    Args:
        folder: Where the checkpoints are.
        kind: Such as ``"last"``.
        number: Only the one of this number.
    """
    for path in reversed(_paths(folder, kind, number)):
        content = path.read_bytes()
        if _digest(content) != path.name.split(".")[-2]:
            warnings.warn(f"{path} is damaged, going back to the one before it", stacklevel=2)
            # It must not count as one of those to keep.
            path.unlink()
            continue
        return safetensors.torch.load(content), _facts(content)
    return None


def _paths(folder: Path, kind: str, number: int | None = None) -> list[Path]:
    wanted = "*" if number is None else f"{number:09d}.*"
    return sorted(folder.glob(f"{kind}-{wanted}.safetensors"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _facts(content: bytes) -> dict[str, Json]:
    # The file starts with the length of its JSON header.
    length = int.from_bytes(content[:8], "little")
    facts: dict[str, Json] = json.loads(
        json.loads(content[8 : 8 + length])["__metadata__"]["facts"]
    )
    return facts


def pack_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[Json]]:
    """Split an optimiser's state into tensors and plain settings.

    Example:
        >>> optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
        >>> tensors, groups = pack_optimizer(optimizer)
        >>> unpack_optimizer(optimizer, tensors, groups)
    """
    state = optimizer.state_dict()
    tensors = {
        f"{index}/{key}": value
        for index, values in state["state"].items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }
    return tensors, state["param_groups"]


def unpack_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: list[Json]
) -> None:
    """Put back what :func:`pack_optimizer` returned."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        index, key = name.split("/")
        like = parameters[int(index)]
        # Fused kernels walk parameter and buffer in memory order, so both need the same strides.
        value = torch.empty_like(like).copy_(tensor) if tensor.shape == like.shape else tensor
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})
