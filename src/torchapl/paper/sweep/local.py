"""Runs jobs in processes of this machine, each on its share of the cores."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, cast

import torch

from torchapl.paper.sweep.jobs import Job
from torchapl.paper.sweep.pool import Listener, Outcome, Pool, Workspace
from torchapl.paper.sweep.worker import request

_POLL_SECONDS = 0.2
_CHUNK = 1 << 16


class _Worker:
    """One process, the job it is at, and what it has said of an unfinished line."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.job: Job | None = None
        self._said = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torchapl.paper.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings},
            # Ctrl-C reaches the sweep alone, which then asks the workers to save.
            start_new_session=True,
        )
        self.input = cast("IO[bytes]", self.process.stdin)
        self.output = cast("IO[bytes]", self.process.stdout)

    def begin(self, job: Job, workspace: Workspace) -> None:
        self.job = job
        # One that has died is met when its answer is read.
        with suppress(BrokenPipeError):
            self.input.write(request(job, workspace))
            self.input.flush()

    def answers(self) -> list[bytes] | None:
        """Return the lines that have come, None at the end of the process."""
        chunk = os.read(self.output.fileno(), _CHUNK)
        if not chunk:
            return None
        *lines, self._said = (self._said + chunk).split(b"\n")
        return lines

    def end(self) -> int:
        """Wait for the process, and close its pipes."""
        code = self.process.wait()
        with suppress(BrokenPipeError):
            self.input.close()
        self.output.close()
        return code


class LocalPool(Pool):
    """Runs jobs in worker processes that live until the end.

    Args:
        workspace: Where runs and data are.
        workers: Processes at a time.
    """

    def __init__(self, workspace: Workspace, workers: int) -> None:
        super().__init__(workspace)
        # Each has a slot, with its GPU if there are several; one that died is replaced.
        self.workers: list[_Worker | None] = [None] * workers

    def room(self) -> int:
        return sum(worker is None or worker.job is None for worker in self.workers)

    def start(self, job: Job) -> None:
        """Give the job to a worker that has nothing to do, or to a new one."""
        idle = [number for number, worker in enumerate(self.workers) if worker and not worker.job]
        number = idle[0] if idle else self.workers.index(None)
        worker = self.workers[number] or _Worker(self._settings(number))
        self.workers[number] = worker
        worker.begin(job, self.workspace)

    def _settings(self, number: int) -> dict[str, str]:
        """Return the environment of a worker: its share of the threads, its GPU."""
        # As many as torch would take here in all, which OMP_NUM_THREADS may have made fewer.
        threads = max(1, torch.get_num_threads() // len(self.workers))
        settings = {"OMP_NUM_THREADS": str(threads)}
        gpus = torch.cuda.device_count()
        if self.workspace.device in ("auto", "cuda") and gpus > 1:
            settings["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
        return settings

    def ended(self, listener: Listener) -> Iterator[tuple[Job, Outcome]]:
        with selectors.DefaultSelector() as selector:
            for number, worker in enumerate(self.workers):
                if worker is not None:
                    selector.register(worker.output, selectors.EVENT_READ, number)
            ready = [key.data for key, _ in selector.select(_POLL_SECONDS)]
        for number in ready:
            yield from self._read(number, listener)

    def _read(self, number: int, listener: Listener) -> Iterator[tuple[Job, Outcome]]:
        worker = self.workers[number]
        if worker is None:
            return
        lines = worker.answers()
        job = worker.job
        if lines is None:
            self.workers[number] = None
            code = worker.end()
            if job is not None:
                yield job, Outcome(_death(code, job, self.workspace))
            return
        for answer in map(json.loads, lines):
            if job is None:
                continue
            if "share" in answer:
                listener.step(job, answer["share"])
            else:
                worker.job = None
                yield job, Outcome(**answer["outcome"])

    def stop(self) -> None:
        """Let idle workers end, and those at a run once they have saved it."""
        living = [worker for worker in self.workers if worker is not None]
        for worker in living:
            if worker.job is not None:
                worker.process.send_signal(signal.SIGTERM)
            with suppress(BrokenPipeError):
                worker.input.close()
        for worker in living:
            worker.end()
        self.workers = [None] * len(self.workers)


def _death(code: int, job: Job, workspace: Workspace) -> str:
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"its process was {how}; see {job.folder(workspace.root) / 'log.txt'}"
