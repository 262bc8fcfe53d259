from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from parallel import main
from torch import nn
from toy import assert_identical

from torchapl.paper.nets.dropout import Dropout
from torchapl.paper.train.distributed import Share, World, in_order, shard_dropout_


def torchrun(folder: Path, *arguments: str, restarts: int = 0) -> None:
    program = Path(__file__).with_name("parallel.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node", "2", "--max-restarts", str(restarts)]
    run = subprocess.run(
        [*launcher, str(program), str(folder), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-4000:]


def state(folder: Path) -> dict[str, torch.Tensor]:
    newest = sorted(folder.glob("last-*"))[-1]
    return safetensors.torch.load(newest.read_bytes())


def numbers(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_trajectory(alone: Path, together: Path) -> None:
    one, two = state(alone), state(together)
    assert set(one) == set(two)
    assert torch.equal(one["rng/cpu"], two["rng/cpu"])
    for name, tensor in one.items():
        if name.startswith(("net/", "optimizer/")):
            torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
    for first, second in zip(numbers(alone), numbers(together), strict=True):
        for key in ("train_loss", "train_error", "test_loss", "test_error", "test_auc"):
            assert second[key] == pytest.approx(first[key], rel=1e-4, abs=1e-4), key
    tables = [
        safetensors.torch.load((folder / "scores.safetensors").read_bytes())
        for folder in (alone, together)
    ]
    # Sharded without loss, and put back in order.
    assert torch.equal(tables[0]["labels"], tables[1]["labels"])
    torch.testing.assert_close(tables[0]["scores"], tables[1]["scores"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_follow_the_trajectory_of_one(tmp_path: Path) -> None:
    """50 steps, with dropout and a last batch that does not divide evenly."""
    assert main(tmp_path / "alone") == 0
    torchrun(tmp_path / "together")
    assert numbers(tmp_path / "alone")[-1]["step"] == 50
    result = json.loads((tmp_path / "together" / "result.json").read_text())
    assert result["processes"] == 2
    assert_same_trajectory(tmp_path / "alone", tmp_path / "together")


@pytest.mark.slow
# The process that writes the checkpoints, and the one that does not.
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_an_elastic_restart_ends_as_an_uninterrupted_run(tmp_path: Path, rank: int) -> None:
    torchrun(tmp_path / "whole")
    torchrun(tmp_path / "killed", "43", str(rank), restarts=1)
    assert_identical(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(nn.Dropout, (7, 3, 4)), (Dropout, (7, 3, 4)), (Dropout, (7, 3, 4, 5))],
)
def test_sharded_dropout_uses_the_masks_of_one_process(
    kind: type[nn.Dropout], shape: tuple[int, ...]
) -> None:
    input = torch.randn(shape)
    if len(shape) == 4:
        input = input.contiguous(memory_format=torch.channels_last)
    torch.manual_seed(3)
    expected = kind(0.3)(input)
    parts = []
    for first, last in ((0, 3), (3, 7)):
        layer = nn.Sequential(kind(0.3))
        shard_dropout_(layer, Share(first, 7))
        torch.manual_seed(3)
        parts.append(layer(input[first:last]))
        layer.eval()
        assert torch.equal(layer(input), input)
    torch.testing.assert_close(torch.cat(parts), expected)


def test_rows_of_one_process_are_in_order() -> None:
    assert in_order([torch.arange(2), torch.arange(2, 3)], World()).tolist() == [0, 1, 2]
