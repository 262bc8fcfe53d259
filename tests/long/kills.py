"""Kills of single runs, of pairs of processes and of sweeps, each at a moment of its work."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from outcomes import Table, is_fault, outcome_of, toy

from torchapl.paper.sweep import Job, Sweep, local, pool, reproduce, worker
from torchapl.paper.sweep.jobs import read_results
from torchapl.paper.sweep.pool import Workspace
from torchapl.paper.sweep.selection import selected_tables
from torchapl.paper.train import train

RUN = replace(toy.TOY, epochs=10)
# Processor time of a life; a whole run takes about 0.6 seconds.
LONGEST_LIFE = 0.25
# Lives of a run before one that nobody ends.
LIVES = 25


@dataclass(frozen=True)
class Moment:
    """When a process is killed: after some processor time, or at one of its writes."""

    seconds: float = float("inf")
    write: int = 0

    @classmethod
    def draw(cls, chance: random.Random) -> Moment:
        if chance.random() < 0.5:
            return cls(seconds=chance.uniform(0.0, LONGEST_LIFE))
        return cls(write=chance.randint(1, 15))


NEVER = Moment()


def at_write(number: int, act: Callable[[], None]) -> None:
    """Act at the given one of this process's steps to the disk: before or after a sync or rename.

    There a kill leaves the most behind: a partial file, a file before its folder is synced, a line
    of metrics whose checkpoint is not there yet.
    """
    if not number:
        return
    left = number

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            step()
            result = function(*arguments, **options)
            step()
            return result

        return call

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)  # type: ignore[assignment]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fork(work: Callable[[], int], environment: Mapping[str, str] | None = None) -> int:
    """Do work in a child process; torch is imported already."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(environment or {})
        # Warnings of lives that begin after a kill are not the matter here.
        warnings.simplefilter("ignore")
        code = work()
    finally:
        os._exit(code)


def processor_time(process: int) -> float:
    try:
        # The clock of another process, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime((~process << 3) | 2)
    except OSError:
        return 0.0


def free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


class FailedLifeError(Exception):
    """A run that nobody had killed ended before its end."""


def live(folder: Path, processes: int, moment: Moment, victim: int | None) -> bool:
    """Train until the end or until a kill; say whether it got to the end.

    One of several processes is killed, or all of them at once where ``victim`` is None.

    Raises:
        FailedLifeError: If a process ends by itself, other than by the death of another.
    """
    port = free_port()

    def child(rank: int) -> int:
        def work() -> int:
            if rank == (victim or 0):
                at_write(moment.write, die)
            train(RUN, 0, folder, device="cpu", checkpoint_seconds=0.0)
            return 0

        together = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        return fork(work, together if processes > 1 else None)

    children = [child(rank) for rank in range(processes)]
    codes: dict[int, int] = {}

    def collect() -> list[int]:
        for process in children:
            if process not in codes and (status := os.waitpid(process, os.WNOHANG)) != (0, 0):
                codes[process] = os.waitstatus_to_exitcode(status[1])
        return [process for process in children if process not in codes]

    struck = failed = False
    while len(codes) < processes:
        living = collect()
        if any(codes.values()):
            # Again: the one that was killed may have died after it was looked at.
            living = collect()
            failed |= -signal.SIGKILL not in codes.values()
            # As torchrun does: without one process the others have nothing to do.
            chosen = living
        elif not struck and processor_time(children[victim or 0]) > moment.seconds:
            struck = True
            chosen = living if victim is None else [children[victim]]
        else:
            chosen = []
        for process in chosen:
            if process in living:
                os.kill(process, signal.SIGKILL)
        time.sleep(0.001)
    if failed:
        raise FailedLifeError
    return not any(codes.values())


def kill_runs(root: Path, kills: int, processes: int, chance: random.Random, table: Table) -> None:
    if not kills:
        return
    kind = f"kill, {processes} process{'es' if processes > 1 else ''}"
    whole = root / f"whole-{processes}"
    if not live(whole, processes, NEVER, None):
        raise RuntimeError("a run that nobody kills did not end")
    done = run = 0
    while done < kills:
        folder = root / f"killed-{processes}-{run}"
        run += 1
        lives = 0
        wanted = min(LIVES, kills - done)
        outcome = ""
        while True:
            moment = Moment.draw(chance) if lives < wanted else NEVER
            victim = chance.randrange(processes) if chance.random() < 0.5 else None
            try:
                if live(folder, processes, moment, victim):
                    break
            except FailedLifeError:
                outcome = "FAILED"
                break
            lives += 1
        outcome = outcome or outcome_of(whole, folder, [])
        # One that was never killed counts only where it is a fault.
        lives = max(lives, is_fault(outcome))
        done += lives
        table[kind, outcome] += lives
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{kind}: {done} of {kills}", file=sys.stderr)


class Forked:
    """A worker of a sweep as a fork of it, which spares it the import of torch.

    Stands in for ``subprocess.Popen``. Workers stay in the sweep's process group, by which all of
    them can be killed at once.
    """

    strike: Callable[[], None]
    write: int

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **options: object):
        requests, answers = os.pipe(), os.pipe()
        self.pid = fork(lambda: self._work(requests[0], answers[1]), env)
        os.close(requests[0])
        os.close(answers[1])
        self.stdin, self.stdout = os.fdopen(requests[1], "wb"), os.fdopen(answers[0], "rb")

    @classmethod
    def _work(cls, requests: int, answers: int) -> int:
        os.dup2(requests, 0)
        os.dup2(answers, 1)
        # The pipes of the workers before.
        os.closerange(3, 1024)
        at_write(cls.write, cls.strike)
        return worker.main()

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def stop_for_a_while() -> None:
    """Stop this process as Ctrl-Z would; another one wakes it up."""
    worker_id = os.getpid()

    def wake() -> int:
        time.sleep(0.2)
        os.kill(worker_id, signal.SIGCONT)
        return 0

    waker = fork(wake)
    os.kill(worker_id, signal.SIGSTOP)
    os.waitpid(waker, 0)


class Untold:
    def __init__(self, jobs: Sequence[Job]) -> None: ...

    def step(self, job: Job, share: float) -> None: ...

    def done(self, job: Job, error: str | None) -> None: ...

    def end(self) -> None: ...


def sweep(root: Path, victim: str, write: int) -> bool:
    """Run a sweep of four runs by two workers; say whether it got to its end.

    Args:
        root: Of the runs.
        victim: ``"worker"``, ``"sweep"``, ``"all"`` is killed; ``"stopped worker"`` only stopped.
        write: Of a worker, when that happens; 0 for never.

    Raises:
        FailedLifeError: If it ends by an exception.
    """

    def work() -> int:
        os.setpgid(0, 0)
        driver = os.getpid()
        strikes = {
            "worker": die,
            "sweep": lambda: os.kill(driver, signal.SIGKILL),
            "all": lambda: os.killpg(driver, signal.SIGKILL),
            "stopped worker": stop_for_a_while,
        }
        Forked.strike, Forked.write = staticmethod(strikes[victim]), write
        local.subprocess = SimpleNamespace(Popen=Forked, PIPE=None)  # type: ignore[assignment]
        # Orphans of the life before hold their runs for a moment.
        pool._RETRY_SECONDS = 0.1
        cells = [
            cell
            for table in selected_tables(["table2"], ["atlas-dnn-relu", "atlas-dnn-apl"])
            for cell in table.cells
        ]
        with local.LocalPool(Workspace(root, None, "cpu"), 2) as workers:
            plan = Sweep("smoke", seeds=2, selection_seeds=0)
            broken = reproduce(cells, plan, root, workers, stored={}, progress=Untold)
        return 3 if broken else 0

    code = os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])
    if code not in (0, 3, -signal.SIGKILL):
        raise FailedLifeError
    return code == 0


def kill_sweeps(root: Path, kills: int, chance: random.Random, table: Table) -> None:
    if not kills:
        return
    whole = root / "whole-sweep"
    if not sweep(whole, "worker", 0):
        raise RuntimeError("a sweep that nobody kills did not end")
    expected = read_results(whole)
    done = number = 0
    while done < kills:
        folder = root / f"killed-sweep-{number}"
        number += 1
        # How often what was killed in the life of these runs.
        struck: Table = Table()
        failed = False
        while True:
            victim = chance.choice(("worker", "sweep", "all", "stopped worker"))
            write = chance.randint(1, 60) if struck.total() < min(LIVES, kills - done) else 0
            try:
                whole_life = sweep(folder, victim, write)
            except FailedLifeError:
                whole_life = failed = True
            if not whole_life or failed or (write and victim == "stopped worker"):
                struck[victim, ""] += 1
            if whole_life:
                break
        if failed:
            outcome = "FAILED"
        elif read_results(folder).keys() != expected.keys():
            outcome = "LOST RUNS"
        else:
            outcomes = {outcome_of(job.folder(whole), job.folder(folder), []) for job in expected}
            outcome = outcomes.pop() if len(outcomes) == 1 else "SILENT DIFFERENCE"
        for (victim, _), count in struck.items():
            table[f"{'' if 'stop' in victim else 'kill, '}{victim} of a sweep", outcome] += count
        done += struck.total()
        shutil.rmtree(folder)
        print(f"kills of sweeps: {done} of {kills}", file=sys.stderr)


def warm_up(folder: Path) -> None:
    """Import what training imports late, so that forks have it; no thread may be left."""
    train(replace(RUN, epochs=1), 0, folder, device="cpu")
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch.distributed")
