"""Runs jobs on a Ray cluster; the runs' folder must be on storage that all nodes share.

A run lives in the worker process itself: when a node dies, so does the run, and Ray starts it again
elsewhere, where it goes on from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torchapl.paper.sweep.jobs import Job
from torchapl.paper.sweep.pool import Listener, Outcome, Pool, Workspace, attempt

_RETRIES = 10
_POLL_SECONDS = 0.2


class RayPool(Pool):
    """Runs jobs as tasks of a Ray cluster, which reschedules those of dead nodes.

    Args:
        workspace: Where runs and data are, the same paths on every node; on a cluster with GPUs a
            run asks for one of them.
        address: Of the cluster; ``"auto"`` finds the one this machine belongs to.
    """

    def __init__(self, workspace: Workspace, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError(f"--ray needs 'pip install torchapl[ray]': {error}") from error
        # Workers have folders of their own.
        resolved = replace(
            workspace,
            root=workspace.root.resolve(),
            data=None if workspace.data is None else workspace.data.resolve(),
            loaded=tuple(file.resolve() for file in workspace.loaded),
        )
        super().__init__(resolved)
        # Partly typed: strict checking would refuse some of its functions.
        self.ray: Any = ray
        self.running: dict[Any, Job] = {}
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
        self.task = self.ray.remote(
            num_cpus=1,
            num_gpus=1 if self._on_gpu() else 0,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )(attempt)

    def _on_gpu(self) -> bool:
        has_gpus = self.ray.cluster_resources().get("GPU", 0) > 0
        device = self.workspace.device
        return device.startswith("cuda") or (device == "auto" and has_gpus)

    def room(self) -> int:
        # Ray has queues of its own.
        return 1_000_000

    def start(self, job: Job) -> None:
        self.running[self.task.remote(job, self.workspace)] = job

    def ended(self, listener: Listener) -> Iterator[tuple[Job, Outcome]]:
        ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=_POLL_SECONDS)
        for reference in ready:
            job = self.running.pop(reference)
            try:
                yield job, self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                yield job, Outcome(str(error.cause))
            except self.ray.exceptions.RayError as error:
                yield job, Outcome(f"{type(error).__name__}: {error}".splitlines()[0])

    def stop(self) -> None:
        for reference in self.running:
            self.ray.cancel(reference)
        self.running.clear()
