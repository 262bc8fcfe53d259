"""Hugging Face transformers: save and load swapped models, ``hidden_act="apl"``, a callback."""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import (
    AutoConfig,
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.activations import ACT2FN

from torchapl.form import write_
from torchapl.integrations.curves import (
    Pictures,
    curve_statistics,
    has_curves,
    has_sharded_curves,
    is_milestone,
)
from torchapl.integrations.training_log import TrainingLog
from torchapl.modules import APL, AffineAPL
from torchapl.surgery import SwapReport, describe, rebuild_swapped
from torchapl.surgery.swap import and_more, can_rebuild, describe_when_saved

Model = TypeVar("Model")

# One learned curve for each layer: what makes an activation of its name is not told a size.
ACT2FN["apl"] = APL

# Of an affine unit that is told nothing, and of a curve.
_AFFINE_START = {"scale": 1.0, "shift": 0.0, "skip": 0.0, "center": 0.0}
_CURVE = ("slope", "offset")

# What the report knows by another name.
_NAMES = {"loss": "train_loss", "learning_rate": "lr"}


def from_pretrained(kind: type[Model], path: str | Path, **options: Any) -> Model:
    """Load a model, swapped or not, that ``save_pretrained`` or a ``Trainer`` saved.

    A swapped model carries its description in its configuration, where ``from_pretrained`` of
    transformers itself does not look: it would leave the curves out and report their names as
    unexpected.

    A class with another head on the same body gets the curves that it has a place for; a warning
    names the others.

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
    report = SwapReport.from_json(json.dumps(description))
    saved = getattr(config, "architectures", None) or ()
    left_out: list[str] = []
    if kind.__name__ not in saved:
        empty = _without_values(kind, config)
        kind = type(empty)
        if kind.__name__ not in saved:
            report, left_out = _fitting(report, empty)
    wants_info = options.pop("output_loading_info", False)
    model, info = _with_units(kind, report).from_pretrained(
        path, config=config, output_loading_info=True, **options
    )
    # The class was needed to build it.
    model.__class__ = kind
    _check_loaded(model, info["missing_keys"], path)
    if left_out:
        warnings.warn(
            f"{kind.__name__} has no place for some curves of the saved "
            f"{', '.join(saved) or 'model'}, which were left out: {', '.join(left_out)}",
            stacklevel=2,
        )
    return (model, info) if wants_info else model  # type: ignore[return-value]  # as transformers does


def _without_values(kind: Any, config: Any) -> Any:
    """Return a model of a class, or of the class that an ``Auto`` class chooses, on meta."""
    with torch.device("meta"):
        return kind(config) if issubclass(kind, PreTrainedModel) else kind.from_config(config)


def _with_units(kind: Any, report: SwapReport) -> Any:
    """Return a class whose constructor also puts the units in."""

    def build(self: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        # While it builds a model, transformers makes the wanted dtype the default.
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        swaps = tuple(replace(swap, dtype=dtype) for swap in report.swaps)
        if rebuild_swapped(self, replace(report, swaps=swaps)) is not self:
            raise ValueError(
                f"the forward of {kind.__name__} itself was rewritten, which cannot be loaded: "
                "build the model, use rebuild_swapped, and load its state_dict"
            )

    return type(kind.__name__, (kind,), {"__init__": build, "__module__": kind.__module__})


def _fitting(report: SwapReport, model: PreTrainedModel) -> tuple[SwapReport, list[str]]:
    """Return what of a report fits a model with another head, or none, and what does not.

    The first has the model's names, the second those of the units in the saved model.
    """
    prefix = model.base_model_prefix
    names = [swap.name for swap in report.swaps]

    def renamed(part: SwapReport) -> SwapReport:
        if not hasattr(model, prefix):
            return part.renamed(lambda name: name.removeprefix(f"{prefix}."))
        saved_with_head = any(name.startswith(f"{prefix}.") for name in names)
        return part if saved_with_head else part.under(prefix)

    others = [part for part in report.parts() if not can_rebuild(model, renamed(part))]
    swaps = [swap for part in others for swap in part.swaps]
    rewrites = [entry for part in others for entry in part.rewrites]
    fitting = replace(
        report,
        swaps=tuple(swap for swap in report.swaps if swap not in swaps),
        rewrites=tuple(entry for entry in report.rewrites if entry not in rewrites),
    )
    return renamed(fitting), [swap.name for swap in swaps]


def _check_loaded(model: PreTrainedModel, missing: Iterable[str], path: str | Path) -> None:
    """Refuse weights of a model without units: curves that nobody learned are not its function."""
    absent = tuple(missing)
    names = [
        swap.name
        for swap in describe(model).swaps
        if any(key.startswith(f"{swap.name}.") for key in absent)
    ]
    if names:
        raise ValueError(
            f"the weights at {str(path)!r} have no values for {and_more(names)}, which the "
            "configuration describes as learned: they are not those of the swapped model. Save "
            "that one again, or remove 'torchapl' from the configuration to load a model without "
            "units"
        )


def _start_missing_curves() -> None:
    """Let curves that a checkpoint lacks start as new ones do.

    transformers builds models without memory. What it does not find gets memory that nobody has
    written, and transformers writes the start only of the layers that it knows.
    """
    # The second is the name before transformers 5.
    for name in ("_move_missing_keys_from_meta_to_device", "_move_missing_keys_from_meta_to_cpu"):
        move = getattr(PreTrainedModel, name, None)
        if move is not None:
            setattr(PreTrainedModel, name, _and_start_curves(move))


def _and_start_curves(move: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(move)
    def move_and_start(self: nn.Module, *args: Any, **options: Any) -> None:
        before = [
            (module, _without_memory(module))
            for module in self.modules()
            if isinstance(module, APL | AffineAPL)
        ]
        move(self, *args, **options)
        for module, names in before:
            # Before transformers 5 what will be loaded still has no memory.
            _start(module, names - _without_memory(module))

    return move_and_start


def _without_memory(module: nn.Module) -> set[str]:
    tensors = {**module._parameters, **module._buffers}
    return {name for name, tensor in tensors.items() if tensor is not None and tensor.is_meta}


def _start(module: APL | AffineAPL, names: set[str]) -> None:
    """Write the start of new units into those of their tensors that have these names."""
    if isinstance(module, AffineAPL):
        for name in names & _AFFINE_START.keys():
            getattr(module, name).fill_(_AFFINE_START[name])
    elif names:
        start = {name: torch.empty_like(module.slope, device="cpu") for name in _CURVE}
        module.init(start["slope"], start["offset"])
        # Of a half that was loaded nothing is lost.
        for name in names & start.keys():
            write_(getattr(module, name), start[name])


# What has to be known before any model is saved or loaded.
describe_when_saved()
_start_missing_curves()


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
