"""Hugging Face transformers: save and load swapped models, ``hidden_act="apl"``, a callback."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import (
    AutoConfig,
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.activations import ACT2FN

from torchapl.integrations.curves import (
    Pictures,
    curve_statistics,
    has_curves,
    has_sharded_curves,
    is_milestone,
)
from torchapl.integrations.training_log import TrainingLog
from torchapl.modules import APL
from torchapl.surgery import SwapReport, rebuild_swapped

Model = TypeVar("Model")

# One learned curve for each layer: what makes an activation of its name is not told a size.
ACT2FN["apl"] = APL

# What the report knows by another name.
_NAMES = {"loss": "train_loss", "learning_rate": "lr"}


def from_pretrained(kind: type[Model], path: str | Path, **options: Any) -> Model:
    """Load a model, swapped or not, that ``save_pretrained`` or a ``Trainer`` saved.

    A swapped model carries its description in its configuration, where ``from_pretrained`` of
    transformers itself does not look: it would leave the curves out and report their names as
    unexpected.

    Args:
        kind: The model's class, or one of the ``Auto`` classes.
        path: A folder, or a name on the hub.
        options: As in ``from_pretrained`` of transformers.

    Example:
        >>> from transformers import AutoModelForCausalLM, GPT2Config
        >>> from torchapl.integrations.transformers import from_pretrained
        >>> config = GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=50)
        >>> model = AutoModelForCausalLM.from_config(config)
        >>> model = swap_activations(model, {"input_ids": torch.arange(10)[None]})
        >>> model.save_pretrained("swapped")
        >>> from_pretrained(AutoModelForCausalLM, "swapped").transformer.h[0].mlp.act
        APL((32,), num_hinges=..., unit_dim=-1)
    """
    config = options.pop("config", None) or AutoConfig.from_pretrained(path)
    description = getattr(config, "torchapl", None)
    if description is None:
        return kind.from_pretrained(path, config=config, **options)  # type: ignore[attr-defined,no-any-return]
    if not issubclass(kind, PreTrainedModel):
        with torch.device("meta"):
            kind = type(kind.from_config(config))  # type: ignore[attr-defined]
    model: Any = _with_units(kind, description).from_pretrained(path, config=config, **options)
    # The class was needed to build it.
    model.__class__ = kind
    return model  # type: ignore[no-any-return]


def _with_units(kind: Any, description: dict[str, Any]) -> Any:
    """Return a class whose constructor also puts the units in."""

    def build(self: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        report = _fitting(SwapReport.from_json(json.dumps(description)), self)
        # While it builds a model, transformers makes the wanted dtype the default.
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        report = replace(report, swaps=tuple(replace(swap, dtype=dtype) for swap in report.swaps))
        if rebuild_swapped(self, report) is not self:
            raise ValueError(
                f"the forward of {kind.__name__} itself was rewritten, which cannot be loaded: "
                "build the model, use rebuild_swapped, and load its state_dict"
            )

    return type(kind.__name__, (kind,), {"__init__": build, "__module__": kind.__module__})


def _fitting(report: SwapReport, model: PreTrainedModel) -> SwapReport:
    """Return the report with the names of a model that may have another head, or none."""
    prefix = model.base_model_prefix
    names = [swap.name for swap in report.swaps]
    if hasattr(model, prefix) and not any(name.startswith(f"{prefix}.") for name in names):
        return report.under(prefix)
    if not hasattr(model, prefix):
        return report.renamed(lambda name: name.removeprefix(f"{prefix}."))
    return report


class CurveCallback(TrainerCallback):  # type: ignore[misc]  # transformers may be absent
    """Adds the statistics of all curves to what is logged and saves pictures of them.

    Pictures are drawn at the start, after 8 steps, at every doubling of their number and at the end
    of every epoch. Where the trainer reports to TensorBoard, statistics and pictures are there as
    the run ``curves``, wherever in the list of callbacks this one stands. Other reporters get the
    statistics if they come after it. The folder ``log`` beside the pictures has the numbers and
    curves of each epoch, for ``torchapl report``; a model without units is logged as a baseline.

    Args:
        folder: Where pictures are saved; by default ``curves`` in the trainer's ``output_dir``.
        name: Of the run in the report, the same for all seeds; by default that of the model's
            class.

    Example:
        >>> from torchapl.integrations.transformers import CurveCallback
        >>> callbacks = [CurveCallback()]  # for Trainer(callbacks=callbacks)
    """

    def __init__(self, folder: str | Path | None = None, name: str | None = None) -> None:
        self.folder = folder
        self.name = name
        self._pictures: Pictures | None = None
        self._writers: list[Any] = []
        self._log: TrainingLog | None = None
        # Of the epoch, and whether it is over: its evaluation comes after its end.
        self._numbers: dict[str, float] = {}
        self._epoch_ended = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model = kwargs["model"]
        if self._log is not None:
            self._log.close(finished=False)
        self._pictures, self._writers, self._log = None, [], None
        if not state.is_world_process_zero or has_sharded_curves(model):
            return
        folder = Path(self.folder or Path(str(args.output_dir), "curves"))
        self._numbers, self._epoch_ended = {}, False
        self._log = TrainingLog(
            folder,
            model,
            name=self.name or type(model).__name__,
            seed=args.seed,
            epochs_done=int(state.epoch or 0),
        )
        if not has_curves(model):
            return
        if "tensorboard" in (args.report_to or ()):
            from torch.utils.tensorboard import SummaryWriter

            # Beside the run that the trainer writes, whose folder it tells nobody.
            runs = os.getenv("TENSORBOARD_LOGGING_DIR") or Path(str(args.output_dir), "runs")
            self._writers = [SummaryWriter(str(Path(runs, "curves")))]  # type: ignore[no-untyped-call]
        self._pictures = Pictures(folder, self._writers)
        self._pictures.draw(model, state.global_step)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        logs = kwargs.get("logs") or {}
        # The summary of the whole training is no number of an epoch.
        if "train_runtime" not in logs:
            numbers = {name: value for name, value in logs.items() if _is_number(value)}
            self._numbers |= {_NAMES.get(name, name): value for name, value in numbers.items()}
        if self._pictures is None:
            return
        statistics = curve_statistics(kwargs["model"])
        if kwargs.get("logs") is not None:
            kwargs["logs"].update(statistics)
        # The trainer has kept a copy of its own before it called.
        if state.log_history:
            state.log_history[-1].update(statistics)
        for writer in self._writers:
            for tag, value in statistics.items():
                writer.add_scalar(tag, value, state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._pictures is not None and is_milestone(state.global_step):
            self._pictures.draw(kwargs["model"], state.global_step)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._write_epoch()

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._epoch_ended = True
        if self._pictures is not None:
            self._pictures.draw(kwargs["model"], state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for writer in self._writers:
            writer.close()
        self._write_epoch()
        if self._log is not None:
            self._log.close(finished=True)
            self._log = None

    def _write_epoch(self) -> None:
        if self._log is not None and self._epoch_ended:
            self._log.epoch(self._numbers)
            self._numbers, self._epoch_ended = {}, False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
