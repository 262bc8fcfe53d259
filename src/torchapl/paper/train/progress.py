"""What a person sees of a run, on stderr: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from torchapl.runs.records import Json


class Reporter(Protocol):
    """What a run tells while it goes on."""

    def begin(self, name: str, step: int, total_steps: int, epochs: int) -> None:
        """Announce a run that has done ``step`` of its steps."""

    def step(self, step: int) -> None:
        """Tell the number of steps done."""

    def epoch(self, line: dict[str, Json]) -> None:
        """Tell the numbers of an epoch, as metrics.jsonl gets them."""

    def message(self, text: str) -> None:
        """Tell anything else."""

    def end(self) -> None:
        """Finish."""


class Silent:
    """Tells nothing: what library calls use."""

    def begin(self, name: str, step: int, total_steps: int, epochs: int) -> None: ...
    def step(self, step: int) -> None: ...
    def epoch(self, line: dict[str, Json]) -> None: ...
    def message(self, text: str) -> None: ...
    def end(self) -> None: ...


class Plain:
    """One line per epoch, and one every half minute within long ones."""

    def __init__(self, stream: TextIO | None = None, every: float = 30.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every

    def begin(self, name: str, step: int, total_steps: int, epochs: int) -> None:
        self._name, self._total, self._epochs = name, total_steps, epochs
        self._first, self._start = step, time.monotonic()
        self._next = self._start + self._every
        self._best = _Best()
        self.message(f"{name}: {epochs} epochs, {total_steps} steps" + _resumed(step))

    def step(self, step: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            rate = (step - self._first) / (now - self._start)
            left = (self._total - step) / rate
            self.message(
                f"{self._name}: step {step}/{self._total}, {rate:.1f} steps/s, {_clock(left)} left"
            )

    def epoch(self, line: dict[str, Json]) -> None:
        self.message(f"{self._name}: epoch {line['epoch']}/{self._epochs}, {self._best.text(line)}")

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def end(self) -> None:
        self._stream.flush()


class Live:
    """A bar with step rate, time left, current and best error."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} steps"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console,
        )

    def begin(self, name: str, step: int, total_steps: int, epochs: int) -> None:
        self._name, self._epochs, self._best = name, epochs, _Best()
        self._first, self._start, self._next = step, time.monotonic(), 0.0
        self._bar.start()
        self._task: TaskID = self._bar.add_task(
            name, total=total_steps, completed=step, rate="", numbers=""
        )

    def step(self, step: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.1
            rate = (step - self._first) / max(now - self._start, 1e-9)
            self._bar.update(self._task, completed=step, rate=f"{rate:.1f}/s")

    def epoch(self, line: dict[str, Json]) -> None:
        self._bar.update(
            self._task,
            description=f"{self._name} epoch {line['epoch']}/{self._epochs}",
            completed=line["step"] if isinstance(line["step"], int) else None,
            numbers=self._best.text(line),
        )

    def message(self, text: str) -> None:
        self._console.print(text)

    def end(self) -> None:
        self._bar.stop()


class _Best:
    """Remembers the best value of what a run is judged by."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    def text(self, line: dict[str, Json]) -> str:
        parts = [f"loss {line['train_loss']:.4f}", f"train error {line['train_error']:.2f} %"]
        for name, unit, better in (("error", " %", min), ("auc", "", max)):
            for split in ("valid", "test"):
                value = line.get(f"{split}_{name}")
                if isinstance(value, float):
                    key = f"{split} {'AUC' if name == 'auc' else name}"
                    self._values[key] = best = better(value, self._values.get(key, value))
                    digits = 2 if name == "error" else 4
                    parts.append(f"{key} {value:.{digits}f}{unit} (best {best:.{digits}f})")
        return ", ".join(parts)


def _resumed(step: int) -> str:
    return f", resumed at step {step}" if step else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def on_stderr() -> Reporter:
    """Return the live display in a terminal, plain lines elsewhere."""
    console = Console(stderr=True)
    return Live(console) if console.is_terminal else Plain()
