"""Many runs: what a table needs, done by processes of this machine or by a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from torchapl.paper.experiments import Table
from torchapl.paper.sweep.ensemble import make_ensemble
from torchapl.paper.sweep.jobs import Job, Sweep, read_results, wanted_experiments
from torchapl.paper.sweep.local import Done, LocalPool

__all__ = ["Job", "LocalPool", "Pool", "Sweep", "reproduce"]


class Pool(Protocol):
    """What runs jobs somewhere."""

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        """Run all jobs; tell ``done`` about each, with an error message if it has no result."""


def reproduce(
    tables: Sequence[Table],
    sweep: Sweep,
    root: Path,
    pool: Pool,
    *,
    progress: Callable[[Sequence[Job]], Done],
) -> dict[Job, str]:
    """Do all runs that the tables still need, choices of the validation rows first.

    What to do next follows from the results on disk, so an interrupted call goes on where it was.

    Args:
        tables: Which cells.
        sweep: Scale and seeds.
        root: Folder of all runs.
        pool: Runs the jobs.
        progress: Given the jobs about to run, returns what is told about each.

    Returns:
        The jobs that ended without a result, with the reason; the others are on disk.
    """
    wanted = wanted_experiments(tables)
    broken: dict[Job, str] = {}
    while True:
        results = read_results(root)
        jobs = [
            job
            for (name, choose), members in wanted.items()
            for job in sweep.next_jobs(name, results, choose=choose, members=members)
            if job not in broken
        ]
        # Two tables may want the same run.
        jobs = list(dict.fromkeys(jobs))
        if not jobs:
            break
        tell = progress(jobs)

        def done(job: Job, error: str | None, tell: Done = tell) -> None:
            if error is not None:
                broken[job] = error
            tell(job, error)

        pool.run(jobs, done)
    for (name, choose), members in wanted.items():
        if members > 1:
            made, missing = sweep.choices(name, results, choose=choose)
            if not missing:
                make_ensemble(sweep.final_jobs(name, made, members), results, root)
    return broken
