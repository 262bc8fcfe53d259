"""What a person sees of many runs, on stderr: bars in a terminal, a line for each run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from torchapl.paper.sweep import Job, Listener


def duration(seconds: float) -> str:
    """Return a time for people.

    Example:
        >>> duration(42), duration(600), duration(4e5)
        ('42 s', '10 min', '5 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 3 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"


def on_stderr(jobs: Sequence[Job]) -> Listener:
    """Announce some jobs, and return what tells about each of them, with the time left."""
    from rich.console import Console

    console = Console(stderr=True)
    work = _Work(jobs)
    return _Bars(work, console) if console.is_terminal else _Lines(work)


class _Work:
    """How much of some jobs is done, each weighted by what it is expected to cost."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        costs = {job: job.settings().cost for job in jobs}
        self._costs = {job: 1.0 if cost is None else cost.cpu for job, cost in costs.items()}
        self._shares = dict.fromkeys(jobs, 0.0)
        self.ended, self.total = 0, len(jobs)
        self._start = time.monotonic()

    def tell(self, job: Job, share: float) -> None:
        self._shares[job] = share

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def share(self) -> float:
        """Part of all the work that is done."""
        done = sum(self._costs[job] * share for job, share in self._shares.items())
        return done / sum(self._costs.values())

    @property
    def left(self) -> str:
        """The time that the rest will take, as far as one can tell."""
        if self.share < 1e-3:
            return "?"
        return duration(self.elapsed * (1 - self.share) / self.share)


class _Lines:
    def __init__(self, work: _Work) -> None:
        self._work = work
        print(f"{work.total} runs to do", file=sys.stderr, flush=True)

    def step(self, job: Job, share: float) -> None:
        self._work.tell(job, share)

    def done(self, job: Job, error: str | None) -> None:
        work = self._work
        work.tell(job, 1.0)
        work.ended += 1
        outcome = "done" if error is None else f"no result: {error}"
        print(
            f"[{work.ended}/{work.total}, {duration(work.elapsed)}, {work.left} left] "
            f"{job}: {outcome}",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None: ...


class _Bars:
    """One bar for all runs, and one for each that is at work."""

    def __init__(self, work: _Work, console: object) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._work = work
        self._bars: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            console=console,  # type: ignore[arg-type]  # rich is imported late
        )
        self._running: dict[Job, TaskID] = {}
        self._all = self._bars.add_task(self._title(), total=1.0, note="")
        self._bars.start()

    def _title(self) -> str:
        return f"[bold]{self._work.ended} of {self._work.total} runs"

    def _update(self) -> None:
        self._bars.update(
            self._all,
            completed=self._work.share,
            description=self._title(),
            note=f"{duration(self._work.elapsed)}, {self._work.left} left",
        )

    def step(self, job: Job, share: float) -> None:
        if job not in self._running:
            self._running[job] = self._bars.add_task(str(job), total=1.0, note="")
        self._bars.update(self._running[job], completed=share)
        self._work.tell(job, share)
        self._update()

    def done(self, job: Job, error: str | None) -> None:
        if job in self._running:
            self._bars.remove_task(self._running.pop(job))
        if error is not None:
            self._bars.console.print(f"{job}: no result: {error}", markup=False)
        self._work.tell(job, 1.0)
        self._work.ended += 1
        self._update()

    def end(self) -> None:
        self._bars.stop()
