"""A process that trains one job after the other: ``python -m torchapl.paper.sweep.worker``.

Jobs come as lines of JSON on standard input; how far they are and how they ended goes back the same
way on standard output. What a run itself prints goes to log.txt in its folder. The process ends
with its input, so a run whose sweep was killed is still finished.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from types import FrameType
from typing import TextIO

from torchapl.paper.sweep.jobs import Job
from torchapl.paper.sweep.pool import Workspace, attempt
from torchapl.paper.train import InterruptedRunError
from torchapl.paper.train.progress import Plain
from torchapl.runs.records import Json

_TELL_SECONDS = 0.5


def request(job: Job, workspace: Workspace) -> bytes:
    """Return the line that asks a worker to do a job.

    Example:
        >>> line = request(Job("atlas-dnn-relu", "smoke", 0), Workspace(Path("runs")))
        >>> str(read_request(line.decode())[0])
        'atlas-dnn-relu seed 0'
    """
    values = {"job": dataclasses.asdict(job), "workspace": dataclasses.asdict(workspace)}
    return (json.dumps(values, default=str) + "\n").encode()


def read_request(line: str) -> tuple[Job, Workspace]:
    """Read what :func:`request` wrote."""
    values = json.loads(line)
    job, workspace = values["job"], values["workspace"]
    return (
        Job(**{**job, "overrides": tuple(job["overrides"])}),
        Workspace(
            Path(workspace["root"]),
            None if workspace["data"] is None else Path(workspace["data"]),
            workspace["device"],
            tuple(Path(file) for file in workspace["loaded"]),
        ),
    )


class _Telling(Plain):
    """Writes lines to the log as usual, and tells the sweep how far the run is."""

    def __init__(self, channel: TextIO) -> None:
        super().__init__()
        self._channel, self._told = channel, 0.0

    def step(self, step: int) -> None:
        super().step(step)
        now = time.monotonic()
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            _send(self._channel, {"share": step / self._total})


def _send(channel: TextIO, values: dict[str, Json]) -> None:
    channel.write(json.dumps(values) + "\n")
    channel.flush()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Do jobs until there are no more."""
    # Where no run is to be saved, a request to stop unwinds: locks and partial files go.
    signal.signal(signal.SIGTERM, _leave)
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    for line in sys.stdin:
        job, workspace = read_request(line)
        log = job.folder(workspace.root) / "log.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(file.fileno(), stream.fileno())
        with warnings.catch_warnings():
            # Of every run anew.
            warnings.simplefilter("default")
            warnings.showwarning = lambda message, *_: sys.stderr.write(f"warning: {message}\n")  # type: ignore[assignment, return-value]  # nobody reads it
            try:
                outcome = attempt(job, workspace, _Telling(channel))
            except InterruptedRunError as error:
                sys.stderr.write(f"{error}\n")
                return 128 + error.signum
        if outcome.error is not None:
            sys.stderr.write(f"error: {outcome.error}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        _send(channel, {"outcome": dataclasses.asdict(outcome)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
