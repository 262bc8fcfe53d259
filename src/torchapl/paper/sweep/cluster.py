"""Runs jobs on a Ray cluster; the runs' folder must be on storage that all nodes share.

A run lives in the worker process itself: when a node dies, so does the run, and Ray starts it again
elsewhere, where it goes on from its last checkpoint.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from torchapl.paper.sweep.jobs import Job
from torchapl.paper.sweep.local import HAS_RESULT, Done, command

# A dead node's lock may outlive it for a moment on shared storage.
_LOCK_PATIENCE = 60.0
_RETRIES = 10


class RayPool:
    """Runs jobs as tasks of a Ray cluster.

    Args:
        root: Folder of all runs, the same path on every node.
        data: Folder with the data sets' files, likewise.
        device: As in ``torchapl train``; a CUDA device asks the cluster for one GPU a run.
        address: Of the cluster; ``"auto"`` finds the one this machine belongs to.
    """

    def __init__(self, root: Path, data: Path | None, device: str, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError(f"--ray needs 'pip install torchapl[ray]': {error}") from error
        self.ray = ray
        # Workers have folders of their own.
        self.root = root.resolve()
        self.data = None if data is None else data.resolve()
        self.device = device
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        """Run all jobs and tell ``done`` about each; Ray reschedules those of dead nodes."""
        task = self.ray.remote(
            num_cpus=1,
            num_gpus=1 if self.device.startswith("cuda") else 0,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )(train_here)
        running = {
            task.remote(command(job, self.root, self.data, self.device)[3:]): job for job in jobs
        }
        while running:
            ready, _ = self.ray.wait(list(running), num_returns=1)
            for reference in ready:
                job = running.pop(reference)
                try:
                    code, message = self.ray.get(reference)
                except self.ray.exceptions.RayError as error:
                    done(job, f"{type(error).__name__}: {error}".splitlines()[0])
                else:
                    done(job, None if code in HAS_RESULT else message)


def train_here(arguments: list[str]) -> tuple[int, str]:
    """Do ``torchapl train`` in this process; return its exit code and the last line it said."""
    # In the worker, which has not imported it yet.
    from torchapl.cli import main

    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = main(arguments)
        lines = said.getvalue().strip().splitlines() or [f"exit code {code}"]
        if "is in use by" not in lines[-1] or time.monotonic() > deadline:
            return code, lines[-1]
        time.sleep(1.0)
