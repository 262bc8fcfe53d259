"""Run as a program, alone or under torchrun: train a fixed experiment. FOLDER [KILL_AT RANK]."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment, Optim
from torchapl.paper.train import InterruptedRunError, train
from torchapl.paper.train.trainer import Trainer

# 25 steps an epoch; the last batch has 11 rows, shared as 5 and 6 by two processes. Dropout is on.
PARALLEL = Experiment(
    "parallel",
    net="higgs-dnn",
    activation=Activation.parse("apl:2"),
    data=Data("toy-events", "physics", limit=395),
    optim=Optim(lr=0.006, momentum=0.9, weight_decay=1e-4),
    epochs=2,
    batch_size=16,
    width=0.1,
)


def kill_at(step: int) -> None:
    """Let this process be killed in the middle of a step, as a dying machine would."""
    backward = Trainer.backward

    def deadly(self: Trainer, loss: torch.Tensor) -> None:
        if self.position.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        backward(self, loss)

    Trainer.backward = deadly


def main(folder: Path, step: int = 0, rank: int = 0) -> int:
    torch.set_num_threads(1)
    # Only in the first life, so that the restarted one gets to the end.
    first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if step and first_life and os.environ["RANK"] == str(rank):
        kill_at(step)
    try:
        train(PARALLEL, 0, folder, device="cpu", checkpoint_seconds=0.0)
    except InterruptedRunError as error:
        return 128 + error.signum
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
