"""A callback for the ``Trainer`` of Hugging Face transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from torchapl.integrations.curves import curve_statistics, save_figure


class CurveCallback(TrainerCallback):  # type: ignore[misc]  # transformers may be absent
    """Adds the statistics of all curves to what is logged and saves pictures of them.

    The trainer calls the reporters that it makes itself (``report_to``: TensorBoard and the like)
    before the ``callbacks`` it is given, whose additions reach its history and what it prints
    alone. So put this one in front.

    Args:
        folder: Where a picture is saved at the end of every epoch; none are by default.

    Example:
        >>> from torchapl.integrations.transformers import CurveCallback
        >>> def add_curves(trainer):  # a transformers.Trainer
        ...     trainer.callback_handler.callbacks.insert(0, CurveCallback(folder="curves"))
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        statistics = curve_statistics(kwargs["model"])
        if kwargs.get("logs") is not None:
            kwargs["logs"].update(statistics)
        # The trainer has kept a copy of its own before it called.
        if state.log_history:
            state.log_history[-1].update(statistics)

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        if self.folder is not None and state.is_world_process_zero:
            save_figure(kwargs["model"], self.folder, state.global_step)
