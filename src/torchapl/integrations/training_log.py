"""A trainer's epochs in the folder that ``torchapl report`` reads."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, nn

from torchapl.runs import OwnRun, RunLockedError, log_run


class TrainingLog:
    """The log of one training, as :func:`torchapl.log_run` writes it.

    It is the folder ``log``, or ``log-2``, ``log-3``, ... beside earlier ones, which stay. A
    training that goes on from a checkpoint goes on with the log that it left unfinished.

    Args:
        folder: Where the logs are.
        model: Its units are recorded.
        name: What the runs of all seeds share.
        seed: Tells them apart.
        epochs_done: Those that the checkpoint has seen, 0 without one.
    """

    def __init__(
        self, folder: Path, model: nn.Module, *, name: str, seed: int, epochs_done: int = 0
    ) -> None:
        self._stack = ExitStack()
        self._run: OwnRun | None = None
        if find_spec("safetensors") is None:
            warnings.warn("without safetensors there is no log for `torchapl report`", stacklevel=3)
            return
        for number in itertools.count(1):
            path = folder / ("log" if number == 1 else f"log-{number}")
            is_new = not path.exists()
            done = 0 if is_new else epochs_done
            run = log_run(path, model, name=name, seed=seed, epochs_done=done)
            try:
                self._run = self._stack.enter_context(run)
            except (FileExistsError, RunLockedError, ValueError):
                # An earlier one: finished, in use, or not that of the checkpoint.
                if is_new:
                    raise
            else:
                return

    def epoch(self, numbers: Mapping[str, float | Tensor]) -> None:
        """Write the numbers of an epoch that has ended, and its curves.

        Statistics of curves and the number of the epoch are among what trainers log; the run has
        its own.
        """
        if self._run is not None:
            own = {name for name in numbers if name == "epoch" or name.startswith("curves/")}
            self._run.epoch({name: numbers[name] for name in numbers if name not in own})

    def close(self, *, finished: bool) -> None:
        """End the log; what was stopped stays unfinished, and may be gone on with."""
        if finished:
            self._stack.close()
        elif self._run is not None:
            # As an exception in the `with` block of a loop would.
            self._stack.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        self._run = None
