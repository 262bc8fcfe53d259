"""Lightning: a callback that shows the curves, and checkpoints of swapped models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from torchapl.integrations.curves import (
    Pictures,
    curve_statistics,
    has_curves,
    has_sharded_curves,
    is_milestone,
)
from torchapl.integrations.training_log import TrainingLog
from torchapl.surgery import describe, rebuild_swapped, restore_activations


class CurveCallback(Callback):  # type: ignore[misc]  # lightning may be absent for the type checker
    """Logs the statistics of all curves during training and saves pictures of them.

    Pictures are drawn at the start, after 8 steps, at every doubling of their number and at the end
    of every epoch; a TensorBoard logger gets them, too. The folder ``log`` beside the pictures has
    the numbers and curves of each epoch, for ``torchapl report``; a model without units is logged
    as a baseline.

    Args:
        every_n_steps: How often statistics are logged, whatever the trainer's own rhythm.
        folder: Where pictures are saved; by default ``curves`` in the folder of the trainer's log.
        name: Of the run in the report, the same for all seeds; by default that of the module's
            class. The seed is that of ``seed_everything``.

    Example:
        >>> from torchapl.integrations.lightning import CurveCallback
        >>> callbacks = [CurveCallback()]  # for Trainer(callbacks=callbacks)
    """

    def __init__(
        self, every_n_steps: int = 50, folder: str | Path | None = None, name: str | None = None
    ) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        self.folder = folder
        self.name = name
        self._pictures: Pictures | None = None
        self._log: TrainingLog | None = None
        self._logged = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pictures = self._log = None
        # All processes ask: the first one sends the others its answer.
        folder = self.folder or Path(trainer.log_dir or trainer.default_root_dir) / "curves"
        if has_sharded_curves(pl_module):
            return
        if trainer.is_global_zero:
            self._log = TrainingLog(
                Path(folder),
                pl_module,
                name=self.name or type(pl_module).__name__,
                seed=int(os.environ.get("PL_GLOBAL_SEED", "0")),
                epochs_done=trainer.current_epoch,
            )
        if not has_curves(pl_module):
            return
        experiments = (getattr(logger, "experiment", None) for logger in trainer.loggers)
        writers = [experiment for experiment in experiments if hasattr(experiment, "add_figure")]
        self._pictures = Pictures(Path(folder), writers)
        self._draw(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        step = trainer.global_step
        if self._pictures is None or step == self._logged:
            return
        if step % self.every_n_steps == 0 or is_milestone(step):
            self._logged = step
            statistics = curve_statistics(pl_module)
            # Not by way of the module: that would log them when the trainer thinks fit.
            pl_module.log_dict(statistics, logger=False)
            for logger in trainer.loggers:
                logger.log_metrics(statistics, step=step)
        if is_milestone(step):
            self._draw(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer, pl_module)
        if self._log is not None:
            self._log.epoch(trainer.callback_metrics)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._log is not None:
            self._log.close(finished=True)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if self._log is not None:
            self._log.close(finished=False)

    def _draw(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._pictures is not None and trainer.is_global_zero:
            self._pictures.draw(pl_module, trainer.global_step)


class SwappedCheckpoints:
    """Lets the checkpoints of a module with swapped models load: to be mixed in, on the left.

    They then hold what :func:`torchapl.describe` says, and loading one puts the same units into the
    module before it fills in their values: also where the class itself knows of no swap, or where
    its own swap would take another number of hinges.

    Example:
        >>> from lightning.pytorch import LightningModule
        >>> from torchapl.integrations.lightning import SwappedCheckpoints
        >>> class Classifier(SwappedCheckpoints, LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
        >>> classifier = Classifier()
        >>> classifier.net = swap_activations(classifier.net, torch.randn(64, 4))
        >>> # Trainer().fit(classifier, ...), then Classifier.load_from_checkpoint(path)
    """

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)  # type: ignore[misc]  # of the LightningModule
        checkpoint["torchapl"] = describe(self).to_json()  # type: ignore[arg-type]  # it is one

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)  # type: ignore[misc]
        module: Any = self
        if "torchapl" in checkpoint and describe(module).to_json() != checkpoint["torchapl"]:
            rebuild_swapped(restore_activations(module), checkpoint["torchapl"])
