"""Runs jobs in processes of this machine, each on its share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from torchapl.paper.sweep.jobs import Job

# Exit codes of `torchapl train` after which there is a result: finished, and failed (diverged).
_HAS_RESULT = (0, 1)
_POLL_SECONDS = 0.2
_RETRY_SECONDS = 20.0

# Called with a job and an error message, None when the job has a result.
Done = Callable[[Job, str | None], None]


def command(job: Job, root: Path, data: Path | None, device: str) -> list[str]:
    """Return the command line that trains, or resumes, one job."""
    arguments = [sys.executable, "-m", "torchapl.cli", "train", job.experiment]
    arguments += ["--scale", job.scale, "--seed", str(job.seed), "--runs", str(root)]
    arguments += ["--device", device, "--quiet"]
    for assignment in job.overrides:
        arguments += ["--set", assignment]
    return arguments if data is None else [*arguments, "--data", str(data)]


class LocalPool:
    """Runs jobs as child processes; a job that crashes is named and does not stop the others.

    Args:
        root: Folder of all runs.
        data: Folder with the data sets' files.
        device: As in ``torchapl train``.
        workers: Processes at a time.
    """

    def __init__(self, root: Path, data: Path | None, device: str, workers: int) -> None:
        self.root, self.data, self.device, self.workers = root, data, device, workers
        self.running: dict[Job, subprocess.Popen[bytes]] = {}
        self.gpus: dict[Job, int] = {}
        # When a job that another process was at may be tried again.
        self.retry: dict[Job, float] = {}

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        """Run all jobs and tell ``done`` about each; on an exception the children save and end.

        A job that another process is at, of a second sweep or of one that was killed, is awaited.
        """
        waiting = list(jobs)
        try:
            while waiting or self.running:
                now = time.monotonic()
                ready = [job for job in waiting if self.retry.get(job, now) <= now]
                for job in ready[: self.workers - len(self.running)]:
                    waiting.remove(job)
                    self._start(job)
                for job, code, message in list(self._ended()):
                    if code == os.EX_TEMPFAIL:
                        self._put_off(job)
                        waiting.append(job)
                    else:
                        done(job, None if code in _HAS_RESULT else message)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._stop()
            raise

    def _start(self, job: Job) -> None:
        settings = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.workers))}
        if self.device in ("auto", "cuda") and torch.cuda.device_count() > 1:
            settings["CUDA_VISIBLE_DEVICES"] = str(self._idle_gpu(job))
        log = self._log(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            self.running[job] = subprocess.Popen(
                command(job, self.root, self.data, self.device),
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **settings},
                # Ctrl-C reaches this process alone, which then asks the children to save.
                start_new_session=True,
            )

    def _put_off(self, job: Job) -> None:
        if job not in self.retry:
            folder = job.folder(self.root)
            warnings.warn(f"{folder} is in use by another process: waiting for it", stacklevel=3)
        self.retry[job] = time.monotonic() + _RETRY_SECONDS

    def _idle_gpu(self, job: Job) -> int:
        """Return the GPU with the fewest runs, and remember that it has one more."""
        busy = [self.gpus[other] for other in self.running]
        self.gpus[job] = min(range(torch.cuda.device_count()), key=busy.count)
        return self.gpus[job]

    def _log(self, job: Job) -> Path:
        return job.folder(self.root) / "log.txt"

    def _ended(self) -> Iterator[tuple[Job, int, str]]:
        for job, process in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[job]
                # A child of another locale may write what is no UTF-8.
                log = self._log(job).read_text(encoding="utf-8", errors="replace")
                lines = log.strip().splitlines()
                yield job, code, lines[-1] if lines else f"exit code {code}"

    def _stop(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            process.wait()
        self.running.clear()
