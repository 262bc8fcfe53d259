"""Makes shards in processes of this machine or on a Ray cluster, in whatever order they finish."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from torchapl.paper.data.files import DataError
from torchapl.paper.data.shards import Plan
from torchapl.paper.data.simulate.shard import SimulatedShard

# How often Ray starts a shard again whose node died.
_RETRIES = 10


def in_processes(
    shards: Sequence[SimulatedShard], folder: Path, plan: Plan, workers: int
) -> Generator[int, None, None]:
    """Write shards by child processes; yield the number of rows of each as it is done."""
    # Not in this process: the jet finder greets on standard output, which belongs to the caller.
    # Not by fork: the caller may have threads, and torch does.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker) as pool:
        try:
            futures = [pool.submit(shard.write, folder, plan) for shard in shards]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process was killed, perhaps for want of memory: run again, with fewer "
                "workers, to go on with the shards that are missing"
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


def on_cluster(
    shards: Sequence[SimulatedShard], folder: Path, plan: Plan, address: str
) -> Generator[int, None, None]:
    """Write shards by a Ray cluster; yield the number of rows of each as it is done.

    The folder is on storage that all nodes share, under the same path. When a node dies, Ray makes
    the shard it was at on another one.
    """
    try:
        import ray as untyped
    except ImportError as error:
        raise ValueError(f"--ray needs 'pip install torchapl[ray]': {error}") from error
    # Partly typed: strict checking would refuse some of its functions.
    ray: Any = untyped
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    task = ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(_write)
    running = [task.remote(shard, folder.resolve(), plan) for shard in shards]
    try:
        while running:
            ready, running = ray.wait(running, num_returns=1)
            try:
                yield ray.get(ready[0])
            except ray.exceptions.RayTaskError as error:
                raise DataError(f"a node of {address} failed: {error.cause}") from error
    finally:
        for reference in running:
            ray.cancel(reference)


def _write(shard: SimulatedShard, folder: Path, plan: Plan) -> int:
    return shard.write(folder, plan)
