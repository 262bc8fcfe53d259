"""The loop of one run in its folder: epochs, checkpoints, the last evaluation."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from torchapl.paper.atomic import write_atomic
from torchapl.paper.config import Json
from torchapl.paper.runs import (
    RunResult,
    append_line,
    environment,
    keep_epochs,
    write_json,
)
from torchapl.paper.train import checkpoint, interrupt, observe
from torchapl.paper.train.distributed import World, from_first, total
from torchapl.paper.train.progress import Reporter
from torchapl.paper.train.trainer import DivergedError, Evaluation, Trainer

# Steps between two looks at what is not free to look at: a GPU's loss, other processes' signals.
_LOOK_EVERY = 20
# Saving takes at most this part of the time, however short the interval.
_SAVING_SHARE = 0.05


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
        self.tested: Evaluation | None = None
        self.stop: list[int] = []
        self.mark = self.saved_at = time.monotonic()
        self.saving = 0.0

    def complete(self) -> RunResult:
        """Train to the end, from the start or from the last checkpoint."""
        trainer, experiment = self.trainer, self.trainer.experiment
        self.probe = next(iter(trainer.bundle.train.epoch(0)))[0]
        if not self._resume() and self.world.is_first:
            observe.add_snapshot(self._curves(), "initial", observe.snapshot(trainer.net))
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

    def _curves(self) -> Path:
        return self.folder / "curves.safetensors"

    def _resume(self) -> bool:
        stored = checkpoint.load(self.folder, "last") if self.world.is_first else None
        stored = from_first(stored, self.world)
        if stored is not None:
            self.trainer.restore(*stored)
        if self.world.is_first:
            keep_epochs(self.folder / "metrics.jsonl", self.trainer.position.epoch)
        return stored is not None

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
            checkpoint.save(self.folder, "last", step, tensors, facts, keep=2)
        self.saved_at = time.monotonic()
        self.saving = self.saved_at - start

    def _end_epoch(self) -> None:
        trainer, position = self.trainer, self.trainer.position
        trainer.check(self.probe)
        epoch = position.epoch + 1
        line: dict[str, Json] = {"epoch": epoch, "step": position.step}
        position.trained = trainer.train_numbers()
        line |= position.trained
        if trainer.bundle.validation is not None:
            self._validate(line, epoch)
        if epoch % trainer.experiment.test_every == 0 or epoch == trainer.experiment.epochs:
            self.tested = trainer.evaluate(trainer.bundle.test)
            line |= self.tested.named("test")
        line["lr"] = trainer.optimizer.param_groups[0]["lr"]
        seen = observe.inputs(trainer.net, self.probe)
        line["curves"] = {
            name: observe.statistics(unit, seen[name])
            for name, unit in observe.units(trainer.net).items()
            if name in seen
        }
        now = time.monotonic()
        line["seconds"] = round(position.seconds + now - self.mark, 3)
        if self.world.is_first:
            append_line(self.folder / "metrics.jsonl", line)
            if epoch in observe.recorded_epochs(trainer.experiment.epochs):
                few = observe.snapshot(trainer.net, at_most=observe.SNAPSHOT_UNITS)
                observe.add_snapshot(self._curves(), f"epoch_{epoch:04d}", few)
        self._tensorboard(line)
        self.reporter.epoch(line)
        position.epoch, position.batch = epoch, 0
        trainer.sums = trainer.new_sums()
        self.save()
        self._look(self.probe)

    def _validate(self, line: dict[str, Json], epoch: int) -> None:
        """Evaluate on the validation rows, and keep the weights if they are the best so far."""
        trainer, position = self.trainer, self.trainer.position
        if trainer.bundle.validation is None:
            return
        numbers = trainer.evaluate(trainer.bundle.validation).named("valid")
        line |= numbers
        value = -numbers["valid_auc"] if trainer.is_binary else numbers["valid_error"]
        if position.best is None or value < position.best:
            position.best, position.best_epoch, position.chosen = value, epoch, numbers
            if self.world.is_first:
                weights = trainer.net.state_dict()
                checkpoint.save(self.folder, "best", epoch, weights, {"epoch": epoch}, keep=1)

    def _tensorboard(self, line: dict[str, Json]) -> None:
        if self.writer is not None:
            for name, value in line.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, line["epoch"])

    def _finish(self) -> RunResult:
        trainer, position = self.trainer, self.trainer.position
        numbers = dict(position.trained)
        if position.best_epoch:
            best = checkpoint.load(self.folder, "best") if self.world.is_first else None
            best = from_first(best, self.world)
            if best is None:
                raise OSError(
                    f"the weights of the best epoch {position.best_epoch} are not in {self.folder}"
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
        seen = observe.inputs(trainer.net, self.probe)
        if self.world.is_first:
            observe.add_snapshot(self._curves(), "learned", observe.snapshot(trainer.net))
            if seen:
                content = safetensors.torch.save(observe.histograms(seen))
                write_atomic(self.folder / "inputs.safetensors", content)
            if tested.scores is not None and tested.labels is not None:
                tables = {"scores": tested.scores.float(), "labels": tested.labels.to(torch.uint8)}
                write_atomic(self.folder / "scores.safetensors", safetensors.torch.save(tables))
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
            environment=environment(trainer.device, trainer.compile)
            | {"processes": self.world.size},
            folder=self.folder,
        )
        if self.world.is_first:
            write_json(self.folder / "result.json", result.to_dict())
        return result
