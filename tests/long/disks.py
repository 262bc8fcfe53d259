"""Disks that are full or read-only from some moment on: a small file system that only we see."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from kills import fork
from outcomes import Table, answer_of, outcome_of, toy

from torchapl.paper.report.payload import build_payload
from torchapl.paper.train import InterruptedRunError, train

_NEW_NAMESPACE = 0x00020000
_ROOM = 16 << 20
# By exit code; 1 is that of a fork that ends by an exception.
OUTCOMES = (
    "refused, then identical",
    "TRACEBACK",
    "identical",
    "SILENT DIFFERENCE",
    "UNCLEAR",
    "FINISHED RUN NOT READ",
    "not permitted here",
)


def mount(folder: Path, *options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def on_disk(disk: Path, whole: Path, kind: str, chance: random.Random) -> str:
    """Train on a disk that refuses at some moment, mend it, and repeat the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACE):
        return "not permitted here"
    private = ["mount", "--make-rprivate", "/"]
    if subprocess.run(private, capture_output=True).returncode:
        return "not permitted here"
    full = kind == "full disk"
    # A whole run needs about 160 kB, with a checkpoint that is being replaced.
    mount(disk, f"size={chance.randrange(4, 168)}k" if full else f"size={_ROOM}")
    run = disk / "run"
    if not full:
        # Between two lives: the system refuses to make a disk read-only that is written to.
        with contextlib.suppress(InterruptedRunError):
            train(toy.TOY, 0, run, device="cpu", reporter=toy.StopAt(chance.randint(1, 30)))
        mount(disk, "remount", "ro")

    def begin() -> str:
        train(toy.TOY, 0, run, device="cpu", checkpoint_seconds=0.0)
        return "identical"

    answer, _ = answer_of(begin, str(run))
    if answer not in ("refused", "identical"):
        print(answer, file=sys.stderr)
        return "UNCLEAR"
    mount(disk, "remount", "rw", f"size={_ROOM}")
    train(toy.TOY, 0, run, device="cpu")
    outcome = outcome_of(whole, run, [])
    mount(disk, "remount", "ro")
    if train(toy.TOY, 0, run, device="cpu").status != "finished" or not build_payload(run):
        return "FINISHED RUN NOT READ"
    return "refused, then identical" if (answer, outcome) == ("refused", "identical") else outcome


def refuse_writes(root: Path, count: int, chance: random.Random, table: Table) -> None:
    whole, disk = root / "whole-disk", root / "disk"
    train(toy.TOY, 0, whole, device="cpu")
    for number in range(count):
        kind = ("full disk", "read-only disk")[number % 2]
        disk.mkdir()
        seed = random.Random(chance.random())
        child = fork(lambda: OUTCOMES.index(on_disk(disk, whole, kind, seed)))  # noqa: B023
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        table[kind, OUTCOMES[code]] += 1
        shutil.rmtree(disk)
