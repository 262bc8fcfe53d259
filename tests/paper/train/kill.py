"""Run as a program: train the toy in processes that are killed at random moments until one ends.

Children are forks, so that torch is imported once: FOLDER SEED LEAST_KILLS.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import toy

from torchapl.paper.train import train


def child(folder: Path, epochs: int) -> None:
    train(replace(toy.TOY, epochs=epochs), 0, folder, device="cpu", checkpoint_seconds=0.0)


def main(folder: Path, seed: int, least: int, epochs: int) -> None:
    torch.set_num_threads(1)
    chance = random.Random(seed)
    kills = 0
    while True:
        start = time.monotonic()
        process = os.fork()
        if process == 0:
            code = 1
            try:
                child(folder, epochs)
                code = 0
            finally:
                os._exit(code)
        # Short lives early on; a life that outlasts its term ends by itself or is the last.
        term = chance.uniform(0.0, 1.0) if kills < least else 1e9
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() - start > term:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                kills += 1
                break
            time.sleep(0.001)
        else:
            break
    sys.stdout.write(str(kills))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
