"""Higgs -> tau tau events that anyone can make again: Pythia 8, a simple detector, 25 features.

From a collision to a row: :mod:`.generator` (Pythia), :mod:`.taus` (decays), :mod:`.detector`,
:mod:`.features`; :mod:`.blocks` strings them together. The physics is described in docs/htautau.md.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchapl.paper.data.simulate.blocks import Block
from torchapl.paper.data.simulate.features import FEATURES
from torchapl.paper.data.simulate.generator import import_pythia
from torchapl.paper.data.store import EventStore
from torchapl.paper.data.writer import EventStoreWriter

__all__ = ["FEATURES", "simulate"]

# About 20 seconds of work, which is what an interrupted run loses; starting Pythia takes 1 of them.
_BLOCK_EVENTS = 5000


def simulate(
    path: Path,
    *,
    events: int,
    workers: int = 1,
    seed: int = 0,
    hadronization: bool = True,
    multiple_interactions: bool = True,
    advance: Callable[[int], None] | None = None,
) -> EventStore:
    """Simulate Higgs (label 1) and Z/gamma* (label 0) events into an event store.

    Signal and background alternate at random, half and half, so any stretch of rows can serve as a
    test set. The result depends on ``events``, ``seed`` and the two switches, not on ``workers``.
    An interrupted run goes on where it stopped when called again with the same arguments.

    Args:
        path: Folder of the store; must not exist yet.
        events: Number of accepted events.
        workers: Number of processes.
        seed: Any non-negative number.
        hadronization: Turn partons into hadrons; without, jets are made of partons.
        multiple_interactions: Simulate further parton collisions of the same two protons; without,
            events are made five to ten times faster.
        advance: Called with the number of events whenever some are finished.

    Example:
        >>> store = simulate(Path("data/htautau.events"), events=1000)  # doctest: +SKIP
        >>> store.rows, len(store.features)  # doctest: +SKIP
        (1000, 25)
    """
    for name, value, least in (("events", events, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    import_pythia()
    source = {
        "simulation": "gg -> H -> tau tau against q qbar -> Z/gamma* -> tau tau, "
        "leptonic, pp at 8 TeV",
        "events": events,
        "seed": seed,
        "hadronization": hadronization,
        "multiple_interactions": multiple_interactions,
        "pythia8mc": version("pythia8mc"),
    }
    with EventStoreWriter(path, (*FEATURES, "label"), source=source) as writer:
        if advance is not None:
            advance(writer.rows)
        starts = range(writer.rows, events, _BLOCK_EVENTS)
        blocks = [
            Block(
                start // _BLOCK_EVENTS,
                min(_BLOCK_EVENTS, events - start),
                seed,
                hadronization,
                multiple_interactions,
            )
            for start in starts
        ]
        with closing(_in_processes(blocks, workers)) as finished:
            for rows in finished:
                writer.append(rows)
                if advance is not None:
                    advance(len(rows))
        return writer.finish()


def _in_processes(blocks: list[Block], workers: int) -> Generator[NDArray[np.float32], None, None]:
    """Make blocks in child processes, and hand them over in order."""
    # Not in this process: the jet finder greets on standard output, which belongs to the caller.
    # Not by fork: the caller may have threads, and torch does.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker) as pool:
        try:
            yield from pool.map(Block.make, blocks)
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process was killed, perhaps for want of memory: "
                "run again, with fewer workers, to go on from the last finished block"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Keep a worker process quiet, and end it with its parent, even a killed one."""
    # Ctrl-C reaches the workers too; they end at once, without a traceback each.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.close(silence)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
