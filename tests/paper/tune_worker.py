"""Run as a program: a worker of a search that many share. FOLDER STORAGE TRIALS EPOCHS."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from torchapl.paper.experiments import get, scaled
from torchapl.paper.tune import open_study, tune


def main(folder: Path, storage: str, trials: int, epochs: int) -> None:
    torch.set_num_threads(1)
    experiment = replace(scaled(get("atlas-dnn-relu"), "smoke"), epochs=epochs)
    tune(experiment, open_study("s", storage, heartbeat_seconds=1), trials, folder, device="cpu")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
