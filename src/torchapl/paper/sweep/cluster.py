"""Runs jobs on a Ray cluster; the runs' folder must be on storage that all nodes share.

A run lives in the worker process itself: when a node dies, so does the run, and Ray starts it again
elsewhere, where it goes on from its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchapl.paper.sweep.jobs import Job
from torchapl.paper.sweep.local import Done
from torchapl.paper.train import RunLockedError, train

# A dead node's lock may outlive it for a moment on shared storage.
_LOCK_PATIENCE = 60.0
_RETRIES = 10


class RayPool:
    """Runs jobs as tasks of a Ray cluster.

    Args:
        root: Folder of all runs, the same path on every node.
        data: Folder with the data sets' files, likewise.
        device: As in ``torchapl train``; on a cluster with GPUs a run asks for one of them.
        address: Of the cluster; ``"auto"`` finds the one this machine belongs to.
    """

    def __init__(self, root: Path, data: Path | None, device: str, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError(f"--ray needs 'pip install torchapl[ray]': {error}") from error
        # Partly typed: strict checking would refuse some of its functions.
        self.ray: Any = ray
        # Workers have folders of their own.
        self.root = root.resolve()
        self.data = None if data is None else data.resolve()
        self.device = device
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)

    def _on_gpu(self) -> bool:
        has_gpus = self.ray.cluster_resources().get("GPU", 0) > 0
        return self.device.startswith("cuda") or (self.device == "auto" and has_gpus)

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        """Run all jobs and tell ``done`` about each; Ray reschedules those of dead nodes."""
        task = self.ray.remote(
            num_cpus=1,
            num_gpus=1 if self._on_gpu() else 0,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )(train_here)
        running = {task.remote(job, self.root, self.data, self.device): job for job in jobs}
        while running:
            ready, _ = self.ray.wait(list(running), num_returns=1)
            for reference in ready:
                job = running.pop(reference)
                try:
                    self.ray.get(reference)
                except self.ray.exceptions.RayTaskError as error:
                    done(job, str(error.cause))
                except self.ray.exceptions.RayError as error:
                    done(job, f"{type(error).__name__}: {error}".splitlines()[0])
                else:
                    done(job, None)


def train_here(job: Job, root: Path, data: Path | None, device: str) -> None:
    """Train, or resume, one job in this process, a worker of the cluster."""
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            train(
                job.settings(),
                job.seed,
                job.folder(root),
                device=device,
                data_root=data,
                overrides=job.overrides,
            )
            return
        except RunLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
