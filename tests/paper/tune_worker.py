"""Run as a program: a worker of a search that many share. FOLDER STORAGE TRIALS HEARTBEAT DIES."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from torchapl.paper import tune as module
from torchapl.paper.experiments import get, scaled
from torchapl.paper.tune import open_study, tune
from torchapl.runs.records import Json


class Dying(module._Pruning):
    """Kills this process in the middle of its first trial."""

    def epoch(self, line: dict[str, Json]) -> None:
        super().epoch(line)
        if line["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, storage: str, trials: int, heartbeat: int, dies: int) -> None:
    torch.set_num_threads(1)
    if dies:
        module._Pruning = Dying  # type: ignore[misc]
    experiment = replace(scaled(get("atlas-dnn-relu"), "smoke"), epochs=4)
    study = open_study("s", storage, heartbeat_seconds=heartbeat)
    tune(experiment, study, trials, folder, device="cpu")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
