"""Shards made by a real cluster of two nodes on this machine, one of which is killed at work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from torchapl.paper.data import simulate as module
from torchapl.paper.data.simulate import simulate

ray = pytest.importorskip("ray")
pytest.importorskip("pythia8mc")
pytestmark = [
    pytest.mark.slow,
    # Ray's own, on the way up and down.
    pytest.mark.filterwarnings("ignore"),
]
OPTIONS: dict[str, Any] = {"events": 60, "multiple_interactions": False}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    nodes = Cluster()
    # The head makes nothing: it would be a second place for the shards.
    nodes.add_node(num_cpus=0, object_store_memory=80_000_000)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def test_a_node_that_dies_loses_the_shard_it_was_at(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARD_ROWS", 20)
    folder = tmp_path / "x.events"
    doomed = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    made: list[Any] = []
    driver = Thread(
        target=lambda: made.append(simulate(folder, ray=cluster.address, **OPTIONS)), daemon=True
    )
    driver.start()
    partial = tmp_path / "x.events.partial"
    while not (finished := list(partial.glob("*.parquet"))):
        assert driver.is_alive(), "the driver ended before the first shard"
        time.sleep(0.05)
    before = {path.name: path.stat().st_mtime_ns for path in finished}
    assert len(before) < 3
    cluster.remove_node(doomed, allow_graceful=False)
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    driver.join()
    (store,) = made
    alone = simulate(tmp_path / "alone.events", **OPTIONS)
    assert store.checksum == alone.checksum
    assert store.rows == 60
    # What the dead node had finished was not made again.
    for name, written in before.items():
        assert (folder / name).stat().st_mtime_ns == written
