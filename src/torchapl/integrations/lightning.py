"""A callback for Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from torchapl.integrations.curves import curve_statistics, save_figure


class CurveCallback(Callback):  # type: ignore[misc]  # lightning may be absent for the type checker
    """Logs the statistics of all curves during training and saves pictures of them.

    Args:
        every_n_steps: How often statistics are logged.
        folder: Where a picture is saved at the end of every epoch; none are by default.

    Example:
        >>> from torchapl.integrations.lightning import CurveCallback
        >>> callbacks = [CurveCallback(every_n_steps=100, folder="curves")]  # for Trainer(...)
    """

    def __init__(self, every_n_steps: int = 50, folder: str | Path | None = None) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        self.folder = None if folder is None else Path(folder)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        if trainer.global_step % self.every_n_steps == 0:
            pl_module.log_dict(curve_statistics(pl_module))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.folder is not None and trainer.is_global_zero:
            save_figure(pl_module, self.folder, trainer.global_step)
