"""Writing a run while it is trained, by any loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from torchapl.runs.atomic import write_atomic
from torchapl.runs.curves import (
    INITIAL,
    LEARNED,
    Layer,
    add_curves,
    inputs_of,
    layers_of,
    thinned,
    write_inputs,
)
from torchapl.runs.folder import (
    CURVES,
    METRICS,
    SCORES,
    RunConfig,
    RunResult,
    environment,
    locked,
    read_result,
    write_config,
    write_result,
)
from torchapl.runs.records import (
    DamagedError,
    Json,
    append_line,
    naming,
    parse_lines,
    read_tensors,
    write_tensors,
)
from torchapl.watch import Inputs

# The scale of runs that are of no experiment of the paper.
OWN = "own"
_RESERVED = ("epoch", "curves", "checksum")


class RunLog:
    """One run while it is trained: its lines, its curves, and what they see.

    :func:`log_run` makes one for a loop of your own.

    Args:
        folder: Held by this process.
        model: Its units are recorded.
        batch: Inputs of the model, on which the inputs of the units are looked at.
        records: Says whether the curves of an epoch, counted from 1, are kept.
        writes: Only one of several processes does; all of them call, since a model that they share
            is read and run by all.
    """

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        *,
        batch: Inputs | None = None,
        records: Callable[[int], bool],
        writes: bool = True,
    ) -> None:
        self.folder, self.model, self.batch = folder, model, batch
        self.last: dict[str, Json] = {}
        # The lines so far, as they are in the file.
        self.lines = b""
        self._records, self._writes = records, writes
        self._after = ""
        self._epochs = 0
        self._start = time.monotonic()

    @property
    def epochs(self) -> int:
        """Epochs that are in the log."""
        return self._epochs

    def restore(self, lines: bytes) -> None:
        """Begin with these lines, those of the file up to some epoch."""
        for number, (line, checksum) in enumerate(parse_lines(self.folder / METRICS, lines), 1):
            if line.get("epoch") != number:
                reason = f"has no line of epoch {number}, where it has one of {line.get('epoch')}"
                raise DamagedError(self.folder / METRICS, reason)
            self.last, self._after, self._epochs = line, checksum, number
        self.lines = lines
        seconds = self.last.get("seconds")
        self._start = time.monotonic() - (seconds if isinstance(seconds, int | float) else 0.0)
        if self._writes:
            self._mend(lines)

    def _mend(self, lines: bytes) -> None:
        """See that the file has these lines and no others."""
        path = self.folder / METRICS
        with naming(path):
            content = path.read_bytes() if path.exists() else b""
        later = content.count(b"\n") - lines.count(b"\n")
        if not content.startswith(lines):
            _warn(f"{path} is not what was written: it is mended from the last checkpoint")
        elif later > 1:
            _warn(f"{path} has {later} epochs after the last checkpoint: they are trained again")
        if content != lines:
            write_atomic(path, lines)

    def begin(self, initial: Mapping[str, Layer]) -> None:
        """Record the curves of the start, where they are not recorded yet."""
        path = self.folder / CURVES
        if not initial or not self._writes:
            return
        try:
            moments = {key.partition("/")[0] for key in read_tensors(path)}
        except FileNotFoundError:
            moments = set()
            if self._epochs:
                _warn(f"{path} is missing: the curves of the first {self._epochs} epochs are lost")
        except DamagedError as error:
            moments = set()
            self._set_aside(error)
        if INITIAL not in moments:
            add_curves(self.folder, INITIAL, initial)

    def epoch(
        self, numbers: Mapping[str, float | Tensor] | None = None, /, **more: float | Tensor
    ) -> dict[str, Json]:
        """Write the numbers of an epoch that has ended, and its curves.

        Args:
            numbers: By name, where names are not those of Python.
            **more: By name, such as ``test_error=12.5``; errors in percent.

        Returns:
            The line of metrics.jsonl.
        """
        line: dict[str, Json] = {"epoch": self._epochs + 1}
        line |= plain_numbers({**(numbers or {}), **more})
        layers = layers_of(self.model)
        samples = self._samples(layers)
        line["curves"] = {
            name: layer.statistics(samples.get(name)) for name, layer in layers.items()
        }
        line.setdefault("seconds", round(time.monotonic() - self._start, 3))
        self.last, self._epochs = line, self._epochs + 1
        if self._writes:
            written, self._after = append_line(self.folder / METRICS, line, self._after)
            self.lines += written
            if self._records(self._epochs):
                self._add(f"epoch_{self._epochs:04d}", thinned(layers))
        return line

    def end(self) -> None:
        """Record the learned curves, and the inputs that they see."""
        layers = layers_of(self.model)
        samples = self._samples(layers)
        if self._writes:
            self._add(LEARNED, layers)
            write_inputs(self.folder, samples)

    def scores(self, scores: Tensor, labels: Tensor) -> None:
        """Keep what a classifier of two classes said about the test rows, for its ROC curve.

        Args:
            scores: Probabilities of class 1, one for each row.
            labels: 0 or 1.
        """
        if scores.shape != labels.shape or scores.dim() != 1:
            shapes = f"{tuple(scores.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"scores and labels must be one number for each row, got {shapes}")
        if self._writes:
            tables = {"scores": scores.detach().float().cpu(), "labels": labels.cpu().byte()}
            write_tensors(self.folder / SCORES, tables)

    def _samples(self, layers: Mapping[str, Layer]) -> dict[str, Tensor]:
        if self.batch is None or not layers:
            return {}
        return inputs_of(self.model, self.batch)

    def _add(self, moment: str, layers: Mapping[str, Layer]) -> None:
        try:
            add_curves(self.folder, moment, layers)
        except DamagedError as error:
            self._set_aside(error)
            add_curves(self.folder, moment, layers)

    def _set_aside(self, error: DamagedError) -> None:
        """Keep a damaged file under another name: somebody may want what is left of it."""
        other = error.path.with_name(f"{error.path.name}.damaged")
        _warn(f"{error}; it is now {other.name}, and the curves recorded so far are lost")
        error.path.replace(other)


class OwnRun(RunLog):
    """The run of a loop of your own, from :func:`log_run`."""

    def __init__(
        self, folder: Path, model: nn.Module, config: RunConfig, batch: Inputs | None, writes: bool
    ) -> None:
        super().__init__(folder, model, batch=batch, records=_is_power_of_two, writes=writes)
        self.config = config
        self.result: RunResult | None = None

    def finish(
        self, numbers: Mapping[str, float | Tensor] | None = None, /, **more: float | Tensor
    ) -> RunResult:
        """Write the result; at the end of the ``with`` block at the latest.

        Args:
            numbers: The final numbers by name; by default those of the last epoch.
            **more: Likewise.
        """
        final = plain_numbers({**(numbers or {}), **more})
        if not final:
            names = (name for name in self.last if name not in (*_RESERVED, "seconds", "lr"))
            final = {name: self.last[name] for name in names}
        self.end()
        config = self.config
        self.result = RunResult(
            config.name,
            config.scale,
            config.seed,
            "finished",
            {name: float(str(value)) for name, value in final.items()},
            n_parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            seconds=round(time.monotonic() - self._start, 3),
            epochs=self.epochs,
            environment=config.environment,
            folder=self.folder,
        )
        if self._writes:
            write_result(self.folder, self.result)
        return self.result


@contextmanager
def log_run(
    folder: str | Path,
    model: nn.Module,
    *,
    name: str | None = None,
    seed: int = 0,
    data: str = "",
    settings: Mapping[str, Json] | None = None,
    batch: Inputs | None = None,
    epochs_done: int = 0,
) -> Iterator[OwnRun]:
    """Log the training of a model in a folder that ``torchapl report`` reads.

    Curves are recorded at the start, after epochs 1, 2, 4, 8 and so on, and at the end. With
    several processes all of them call, and the first one writes. Needs ``safetensors``.

    Args:
        folder: The run's own; runs of other seeds have folders beside it.
        model: With units somewhere; without, the run is a baseline.
        name: What runs of all seeds share; by default the folder's name.
        seed: Tells the runs of a name apart.
        data: Name of the data set; learning curves of different ones share no axes.
        settings: Anything to be kept with the run that JSON can hold.
        batch: Inputs of the model, as :func:`torchapl.swap_activations` takes them. On these, the
            inputs of the units are looked at after each epoch.
        epochs_done: Of a run that goes on from a checkpoint of your own; lines of later epochs are
            dropped, since they are about to be written again.

    Raises:
        FileExistsError: If the folder has a run already.
        RunLockedError: If another process logs to it.
        DamagedError: If the lines of a run that goes on cannot be trusted.

    Example:
        >>> import tempfile
        >>> from torchapl import APL, log_run
        >>> model = nn.Sequential(nn.Linear(2, 8), APL(8, init="leaky"))
        >>> folder = Path(tempfile.mkdtemp())
        >>> with log_run(folder, model, name="mine") as run:
        ...     for epoch in range(3):
        ...         line = run.epoch(train_loss=1 / (epoch + 1))
        >>> line["epoch"], line["curves"]["1"]["left_slope_mean"]
        (3, 0.25)
    """
    folder = Path(folder)
    parameter = next(model.parameters(), torch.zeros(()))
    config = RunConfig(
        {"name": name or folder.resolve().name, "data": data, **(settings or {})},
        OWN,
        seed,
        environment=environment(parameter.device),
    )
    is_first = not distributed.is_initialized() or distributed.get_rank() == 0
    with ExitStack() as stack:
        if is_first:
            stack.enter_context(locked(folder))
        run = OwnRun(folder, model, config, batch, is_first)
        lines = _lines_to_go_on(folder, epochs_done)
        if is_first:
            write_config(folder, config)
        run.restore(lines)
        if not epochs_done:
            run.begin(layers_of(model))
        yield run
        if run.result is None:
            run.finish()


def _lines_to_go_on(folder: Path, epochs: int) -> bytes:
    path = folder / METRICS
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    if read_result(folder) is not None:
        raise FileExistsError(f"{folder} has a finished run: choose another folder or remove it")
    if lines and not epochs:
        raise FileExistsError(
            f"{folder} has {len(lines)} epochs of a run: choose another folder, remove it, or say "
            "with epochs_done how many of them your checkpoint has seen"
        )
    if epochs < 0 or len(lines) < epochs:
        raise ValueError(f"epochs_done must be between 0 and {len(lines)}, got {epochs}")
    return b"".join(line + b"\n" for line in lines[:epochs])


def plain_numbers(values: Mapping[str, float | Tensor]) -> dict[str, Json]:
    """Return numbers as JSON holds them.

    Example:
        >>> plain_numbers({"test_error": torch.tensor(12.5), "step": 3})
        {'test_error': 12.5, 'step': 3}
    """
    plain: dict[str, Json] = {}
    for name, value in values.items():
        if name in _RESERVED:
            raise ValueError(f"a number cannot be called {name!r}: the log has its own")
        if isinstance(value, Tensor):
            value = value.detach()
        if isinstance(value, bool):
            raise TypeError(f"{name} must be a number, got {value}")
        try:
            plain[name] = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be a number, got {value!r}") from error
    return plain


def _is_power_of_two(epoch: int) -> bool:
    return epoch & (epoch - 1) == 0


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)
