"""A real cluster of two nodes on this machine; one of them is killed in the middle of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from torchapl.paper.sweep.jobs import Job, read_results
from torchapl.paper.sweep.pool import Workspace

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # Ray's own, on the way up and down.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    nodes = Cluster()
    # The head runs nothing: it would be a second place for the runs.
    nodes.add_node(num_cpus=0, object_store_memory=80_000_000)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def test_runs_of_a_dead_node_go_on_elsewhere(cluster: Any, tmp_path: Path) -> None:
    from torchapl.paper.sweep.cluster import RayPool

    doomed = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    pool = RayPool(Workspace(tmp_path, None, "cpu"), cluster.address)
    long = Job("atlas-dnn-apl", "smoke", 0, ("epochs=60",))
    short = Job("atlas-dnn-relu", "smoke", 0)
    told: dict[Job, str | None] = {}

    class Listening:
        def step(self, job: Job, share: float) -> None: ...

        def done(self, job: Job, error: str | None) -> None:
            told[job] = error

        def end(self) -> None: ...

    driver = Thread(target=pool.run, args=([long, short], Listening()))
    driver.start()

    lines = long.folder(tmp_path) / "metrics.jsonl"
    # However long a busy machine takes.
    while not (lines.exists() and len(lines.read_text().splitlines()) >= 3):
        assert driver.is_alive(), f"the first run did not begin: {told}"
        time.sleep(0.1)
    before = len(lines.read_text().splitlines())
    assert before < 60
    cluster.remove_node(doomed, allow_graceful=False)
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    driver.join()

    assert told == {long: None, short: None}
    assert set(read_results(tmp_path)) == {long, short}
    # Every epoch stands there once: what the dead node had done was not done again.
    epochs = [json.loads(line)["epoch"] for line in lines.read_text().splitlines()]
    assert epochs == list(range(1, 61))
