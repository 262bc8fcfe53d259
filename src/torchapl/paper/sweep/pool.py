"""What runs jobs somewhere: the waiting, the same for processes of this machine and a cluster."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchapl.paper.loading import load
from torchapl.paper.sweep.jobs import Job
from torchapl.paper.train import InterruptedRunError, RunLockedError, train
from torchapl.paper.train.progress import Reporter

_RETRY_SECONDS = 20.0


class Listener(Protocol):
    """Told about jobs while they run."""

    def step(self, job: Job, share: float) -> None:
        """Tell which part of a job is over, now and then."""

    def done(self, job: Job, error: str | None) -> None:
        """Tell that a job has ended, with an error message if it has no result."""

    def end(self) -> None:
        """Tell that no more will come, whatever the reason."""


@dataclass(frozen=True)
class Workspace:
    """Where runs and data are, and what computes: the same for all jobs of a sweep.

    Args:
        root: Folder of all runs.
        data: Folder with the data sets' files.
        device: As in ``torchapl train``.
        loaded: Python files with registrations, which every process that trains loads too.
    """

    root: Path
    data: Path | None = None
    device: str = "auto"
    loaded: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a job ended: with a result, with an error, or at another's lock."""

    error: str | None = None
    is_locked: bool = False


def attempt(job: Job, workspace: Workspace, reporter: Reporter | None = None) -> Outcome:
    """Train, or resume, one job in this process.

    An exception is the outcome, with a traceback on stderr.

    Raises:
        InterruptedRunError: If a signal asked for it; the run is saved.
    """
    try:
        load(workspace.loaded)
        train(
            job.settings(),
            job.seed,
            job.folder(workspace.root),
            device=workspace.device,
            data_root=workspace.data,
            overrides=job.assignments,
            reporter=reporter,
        )
        return Outcome()
    except RunLockedError as error:
        return Outcome(str(error), is_locked=True)
    except InterruptedRunError:
        raise
    except Exception as error:
        traceback.print_exc()
        # What the user can mend says so itself.
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        return Outcome(f"{kind}{error}")


class Pool:
    """Runs jobs; made to be inherited from. A job without a result does not stop the others.

    Its processes live to the end of the ``with`` block, from one call of :meth:`run` to the next.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def run(self, jobs: Sequence[Job], listener: Listener) -> None:
        """Run all jobs and tell about each.

        A job that another process is at, of a second sweep or of one that was killed, is awaited.
        """
        # When each may be tried.
        waiting = dict.fromkeys(jobs, 0.0)
        awaited: set[Job] = set()
        running = 0
        while waiting or running:
            now = time.monotonic()
            ready = [job for job, when in waiting.items() if when <= now]
            for job in ready[: self.room()]:
                del waiting[job]
                self.start(job)
                running += 1
            for job, outcome in self.ended(listener):
                running -= 1
                if not outcome.is_locked:
                    listener.done(job, outcome.error)
                    continue
                waiting[job] = time.monotonic() + _RETRY_SECONDS
                if job not in awaited:
                    awaited.add(job)
                    folder = job.folder(self.workspace.root)
                    warnings.warn(
                        f"{folder} is in use by another process: waiting for it", stacklevel=2
                    )

    def room(self) -> int:
        """Return how many more jobs may start now."""
        raise NotImplementedError

    def start(self, job: Job) -> None:
        """Begin a job."""
        raise NotImplementedError

    def ended(self, listener: Listener) -> Iterator[tuple[Job, Outcome]]:
        """Wait a moment; yield the jobs that have ended, and tell how far the others are."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what is still running, once it has saved."""
        raise NotImplementedError
