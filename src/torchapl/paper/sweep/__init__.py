"""Many runs: what tables need, done by processes of this machine or by a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torchapl.paper.experiments import Cell
from torchapl.paper.sweep.jobs import Job, Results, read_results
from torchapl.paper.sweep.plan import Sweep
from torchapl.paper.sweep.pool import Listener, Pool

__all__ = ["Job", "Listener", "Pool", "Sweep", "reproduce"]


def reproduce(
    cells: Sequence[Cell],
    sweep: Sweep,
    root: Path,
    pool: Pool,
    *,
    stored: Results,
    progress: Callable[[Sequence[Job]], Listener],
) -> dict[Job, str]:
    """Do all runs that some cells of tables still need, choices of the validation rows first.

    What to do next follows from the results on disk, so an interrupted call goes on where it was.

    Args:
        cells: What to fill.
        sweep: Scale and seeds.
        root: Folder of all runs.
        pool: Runs the jobs.
        stored: Results from elsewhere, which are not made again.
        progress: Given the jobs about to run, returns what is told about each.

    Returns:
        The jobs that ended without a result, with the reason; the others are on disk.
    """
    broken: dict[Job, str] = {}
    tried: set[Job] = set()
    while True:
        results = {**stored, **read_results(root)}
        # Two cells may want the same run.
        wanted = dict.fromkeys(job for cell in cells for job in sweep.next_jobs(cell, results))
        for job in tried & wanted.keys() - broken.keys():
            broken[job] = "it ended without an error, but there is no result that counts"
        jobs = [job for job in wanted if job not in broken]
        if not jobs:
            return broken
        tried.update(jobs)
        listener = _Noting(progress(jobs), broken)
        try:
            pool.run(jobs, listener)
        finally:
            listener.end()


class _Noting:
    """Passes on what is told, and keeps the errors."""

    def __init__(self, listener: Listener, broken: dict[Job, str]) -> None:
        self._listener, self._broken = listener, broken

    def step(self, job: Job, share: float) -> None:
        self._listener.step(job, share)

    def done(self, job: Job, error: str | None) -> None:
        if error is not None:
            self._broken[job] = error
        self._listener.done(job, error)

    def end(self) -> None:
        self._listener.end()
