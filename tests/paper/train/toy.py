"""A run of a few seconds with everything a checkpoint must hold, and how two runs are compared."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import safetensors.torch
import torch

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment, Optim
from torchapl.paper.train.progress import Silent

TOY = Experiment(
    "toy",
    net="higgs-dnn",
    activation=Activation.parse("apl:2"),
    data=Data("toy-events", "physics", validation=100, limit=500),
    optim=Optim(lr=0.006, momentum=0.9, momentum_start=0.5, momentum_ramp=50.0),
    epochs=3,
    batch_size=50,
    width=0.05,
    scale="smoke",
)
# What depends on the clock: the time itself, and what vouches for it.
_CLOCKS = ("seconds", "commit", "checksum")


class StopAt(Silent):
    """Sends this process a signal at a step, as a person at the keyboard would."""

    def __init__(self, step: int, signum: int = signal.SIGINT) -> None:
        self.at, self.signum = step, signum

    def step(self, step: int) -> None:
        if step == self.at:
            os.kill(os.getpid(), self.signum)


def contents(folder: Path) -> dict[str, object]:
    """Return everything a run leaves behind but wall-clock times."""
    found: dict[str, object] = {}
    for path in sorted(folder.glob("*.safetensors")):
        # The name carries a checksum, and the checksum the seconds.
        name = path.name.split(".")[0]
        for key, tensor in safetensors.torch.load(path.read_bytes()).items():
            # The lines of the metrics, which are compared without their times below.
            if key != "lines":
                found[f"{name}/{key}"] = tensor
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found["metrics"] = [_without_clocks(json.loads(line)) for line in lines]
    found["result"] = _without_clocks(json.loads((folder / "result.json").read_text()))
    return found


def _without_clocks(values: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if key not in _CLOCKS}


def assert_identical(first: Path, second: Path) -> None:
    """Compare to the bit; the newest checkpoint of each, since older ones depend on the clock."""
    left, right = contents(first), contents(second)
    newest = max(key.split("/")[0] for key in left if key.startswith("last-"))
    common = [key for key in left if not key.startswith("last-") or key.startswith(newest)]
    assert {key for key in right if not key.startswith("last-") or key.startswith(newest)} == set(
        common
    )
    assert any(key.startswith(f"{newest}/rng/") for key in common)
    assert any(key.startswith(f"{newest}/optimizer/") for key in common)
    for key in common:
        if isinstance(left[key], torch.Tensor):
            assert torch.equal(left[key], right[key]), key
        else:
            assert left[key] == right[key], key
