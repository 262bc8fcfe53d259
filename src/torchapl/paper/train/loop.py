"""The loop of one run in its folder: epochs, checkpoints, the last evaluation."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from torchapl.paper.config import fingerprint
from torchapl.paper.data import Batches
from torchapl.paper.train import checkpoint, interrupt, observe
from torchapl.paper.train.distributed import World, from_first, total
from torchapl.paper.train.progress import Reporter
from torchapl.paper.train.trainer import DivergedError, Evaluation, Trainer
from torchapl.runs.curves import layers_of
from torchapl.runs.folder import METRICS, RunResult, environment, write_result
from torchapl.runs.log import RunLog
from torchapl.runs.records import DamagedError, Json

# Steps between two looks at what is not free to look at: a GPU's loss, other processes' signals.
_LOOK_EVERY = 20
# Saving takes at most this part of the time, however short the interval.
_SAVING_SHARE = 0.05
# Moments between start and end whose curves are kept.
_MOMENTS = 10
# In a checkpoint: the lines of metrics.jsonl, as bytes.
_LINES = "lines"


def recorded_epochs(epochs: int, count: int = _MOMENTS) -> set[int]:
    """Return the epochs, counted from 1, whose curves are kept.

    Example:
        >>> sorted(recorded_epochs(180, 4))
        [45, 90, 135, 180]
    """
    return {max(1, round(epochs * moment / count)) for moment in range(1, count + 1)}


def _padded(lines: bytes) -> Tensor:
    """Return bytes as a tensor, filled up to a power of two by zeros, which no line has.

    For each length of a tensor that it writes, safetensors makes a type that ctypes keeps for ever.
    """
    size = 1 << len(lines).bit_length()
    return torch.frombuffer(bytearray(lines.ljust(size, b"\0")), dtype=torch.uint8)


def _unpadded(tensor: Tensor) -> bytes:
    """Return what :func:`_padded` was given; also of older versions, which did not fill up."""
    return bytes(tensor.numpy()).rstrip(b"\0")


class Run:
    """One run in its folder.

    Args:
        trainer: At its start.
        folder: Locked by this process.
        overrides: For the record.
        checkpoint_seconds: Time between two checkpoints within an epoch.
        reporter: Told about progress.
        tensorboard: Also write TensorBoard's files.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        overrides: tuple[str, ...],
        checkpoint_seconds: float,
        reporter: Reporter,
        tensorboard: bool,
    ) -> None:
        self.trainer, self.folder, self.overrides = trainer, folder, overrides
        self.checkpoint_seconds, self.reporter = checkpoint_seconds, reporter
        self.world: World = trainer.world
        self.writer: Any = None
        if tensorboard:
            # Optional, and slow to import.
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]  # torch's
        self.probe = next(iter(trainer.bundle.train.epoch(0)))[0]
        self.log = RunLog(
            folder,
            trainer.net,
            batch=self.probe,
            records=recorded_epochs(trainer.experiment.epochs).__contains__,
            writes=self.world.is_first,
        )
        self.tested: Evaluation | None = None
        self.stop: list[int] = []
        self.mark = self.saved_at = time.monotonic()
        self.saving = 0.0

    def complete(self) -> RunResult:
        """Train to the end, from the start or from the last checkpoint."""
        trainer, experiment = self.trainer, self.trainer.experiment
        # Before the weights of a checkpoint take their place.
        initial = layers_of(trainer.net)
        self._resume()
        self.log.begin(initial)
        self.mark = self.saved_at = time.monotonic()
        self.reporter.begin(
            experiment.name, trainer.position.step, trainer.total_steps, experiment.epochs
        )
        try:
            with interrupt.requests() as self.stop:
                while trainer.position.epoch < experiment.epochs:
                    self._epoch()
                return self._finish()
        except DivergedError as error:
            return self._write_result("failed", {}, str(error))
        finally:
            self.reporter.end()
            if self.writer is not None:
                self.writer.close()

    def _resume(self) -> None:
        stored = from_first(self._stored() if self.world.is_first else None, self.world)
        if stored is None:
            self.log.restore(b"")
            return
        tensors, facts = stored
        lines = tensors.pop(_LINES, None)
        self.trainer.restore(tensors, facts)
        self.log.restore(self._lines_of_file() if lines is None else _unpadded(lines))
        done = self.trainer.position.epoch
        if self.log.epochs != done:
            raise DamagedError(
                self.folder / METRICS,
                f"has {self.log.epochs} of the {done} epochs that are done, and the checkpoint, of "
                "an older version, not the others; remove last-* to train again from the start",
            )

    def _stored(self) -> tuple[dict[str, Tensor], dict[str, Json]] | None:
        """Return the last state from which the run can end as if nothing had happened."""
        stored = checkpoint.load(self.folder, "last")
        if stored is None:
            return None
        best = int(cast("dict[str, int]", stored[1]["position"])["best_epoch"])
        if best and checkpoint.load(self.folder, "best", best) is None:
            warnings.warn(
                f"the weights of the best epoch, {best}, are no longer in {self.folder}: the run "
                "starts again",
                stacklevel=2,
            )
            for kind in ("last", "best"):
                checkpoint.prune(self.folder, kind, keep=0)
            return None
        return stored

    def _lines_of_file(self) -> bytes:
        """Return the lines of whole epochs; checkpoints of older versions do not have them."""
        path = self.folder / METRICS
        content = path.read_bytes() if path.exists() else b""
        lines = content.splitlines(keepends=True)
        return b"".join(lines[: self.trainer.position.epoch])

    def _epoch(self) -> None:
        trainer, position = self.trainer, self.trainer.position
        trainer.net.train()
        self.steps(trainer.bundle.train.epoch(position.epoch, start=position.batch))
        self._end_epoch()

    def steps(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Do a step with each batch, and all that goes with it: progress, checks, checkpoints."""
        for inputs, targets in batches:
            self.trainer.step(inputs, targets)
            self.reporter.step(self.trainer.position.step)
            if self._should_look():
                self._look(inputs)

    def _should_look(self) -> bool:
        if not self.trainer.checks_each_step:
            return self.trainer.position.step % _LOOK_EVERY == 0
        return bool(self.stop) or time.monotonic() - self.saved_at > self._interval()

    def _interval(self) -> float:
        return max(self.checkpoint_seconds, self.saving / _SAVING_SHARE)

    def _look(self, inputs: Tensor) -> None:
        """Save if it is time to, stop if a signal asks to; all processes decide alike."""
        trainer = self.trainer
        if trainer.position.batch >= trainer.steps_per_epoch:
            # The end of the epoch is about to do both, with the epoch's numbers.
            return
        due = time.monotonic() - self.saved_at > self._interval()
        asked = torch.tensor([float(due and self.world.is_first), float(bool(self.stop))])
        due, stopped = (total(asked.to(trainer.device), self.world) > 0).tolist()
        if due or stopped or not trainer.checks_each_step:
            trainer.check(inputs)
        if due or stopped:
            self.save()
        if stopped:
            raise interrupt.InterruptedRunError(self.stop[0] if self.stop else signal.SIGTERM)

    def save(self) -> None:
        """Write a checkpoint; all processes call."""
        start = time.monotonic()
        self.trainer.position.seconds += start - self.mark
        self.mark = start
        tensors, facts = self.trainer.state()
        if self.world.is_first:
            step = self.trainer.position.step
            tensors[_LINES] = _padded(self.log.lines)
            checkpoint.save(self.folder, "last", step, tensors, facts, keep=2)
            # The one before belonged to the state before.
            checkpoint.prune(self.folder, "best", keep=1)
        self.saved_at = time.monotonic()
        self.saving = self.saved_at - start

    def _end_epoch(self) -> None:
        trainer, position = self.trainer, self.trainer.position
        trainer.check(self.probe)
        epoch = position.epoch + 1
        position.trained = trainer.train_numbers()
        numbers: dict[str, float] = {"step": position.step, **position.trained}
        if trainer.bundle.validation is not None:
            numbers |= self._validate(trainer.bundle.validation, epoch)
        if epoch % trainer.experiment.test_every == 0 or epoch == trainer.experiment.epochs:
            self.tested = trainer.evaluate(trainer.bundle.test)
            numbers |= self.tested.named("test")
        numbers["lr"] = trainer.optimizer.param_groups[0]["lr"]
        numbers["seconds"] = round(position.seconds + time.monotonic() - self.mark, 3)
        line = self.log.epoch(numbers)
        self._tensorboard(line)
        self.reporter.epoch(line)
        position.epoch, position.batch = epoch, 0
        trainer.sums = trainer.new_sums()
        self.save()
        self._look(self.probe)

    def _validate(self, rows: Batches, epoch: int) -> dict[str, float]:
        """Evaluate on the validation rows, and keep the weights if they are the best so far."""
        trainer, position = self.trainer, self.trainer.position
        numbers = trainer.evaluate(rows).named("valid")
        value = -numbers["valid_auc"] if trainer.is_binary else numbers["valid_error"]
        if position.best is None or value < position.best:
            position.best, position.best_epoch, position.chosen = value, epoch, numbers
            if self.world.is_first:
                weights = trainer.net.state_dict()
                # Until the next state is saved, the last one needs the best before.
                checkpoint.save(self.folder, "best", epoch, weights, {"epoch": epoch}, keep=2)
        return numbers

    def _tensorboard(self, line: dict[str, Json]) -> None:
        if self.writer is not None:
            for name, value in line.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, line["epoch"])

    def _finish(self) -> RunResult:
        trainer, position = self.trainer, self.trainer.position
        numbers = dict(position.trained)
        if position.best_epoch:
            stored = None
            if self.world.is_first:
                stored = checkpoint.load(self.folder, "best", position.best_epoch)
            best = from_first(stored, self.world)
            if best is None:
                raise OSError(
                    f"the weights of the best epoch, {position.best_epoch}, are no longer in "
                    f"{self.folder}: repeated, the command trains again from the start"
                )
            trainer.net.load_state_dict(best[0])
            self.tested = None
            numbers |= position.chosen
        tested = self.tested or trainer.evaluate(trainer.bundle.test)
        numbers |= tested.named("test")
        if observe.units(trainer.net):
            # Weights that grew with their curves may overflow without them: not the run's fault.
            with suppress(DivergedError), observe.relu_in_place_of_curves(trainer.net):
                numbers |= trainer.evaluate(trainer.bundle.test).named("replaced_test")
        self.log.end()
        if tested.scores is not None and tested.labels is not None:
            self.log.scores(tested.scores, tested.labels)
        result = self._write_result("finished", numbers, None)
        if self.world.is_first:
            # The second one is for a damaged first, from which a run would go on.
            checkpoint.prune(self.folder, "last", keep=1)
        return result

    def _write_result(
        self, status: Literal["finished", "failed"], numbers: dict[str, float], error: str | None
    ) -> RunResult:
        trainer, position = self.trainer, self.trainer.position
        result = RunResult(
            trainer.experiment.name,
            trainer.experiment.scale,
            trainer.seed,
            status,
            numbers,
            overrides=self.overrides,
            n_parameters=sum(parameter.numel() for parameter in trainer.net.parameters()),
            seconds=round(position.seconds + time.monotonic() - self.mark, 3),
            epochs=position.epoch,
            error=error,
            environment=environment(trainer.device)
            | {
                "compile": trainer.compile,
                "processes": self.world.size,
                "settings": fingerprint(trainer.experiment),
            },
            folder=self.folder,
        )
        if self.world.is_first:
            write_result(self.folder, result)
        return result
