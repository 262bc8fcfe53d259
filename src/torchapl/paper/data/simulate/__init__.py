"""Higgs -> tau tau events that anyone can make again: Pythia 8, a simple detector, 25 features.

From a collision to a row: :mod:`.generator` (Pythia), :mod:`.taus` (decays), :mod:`.detector`,
:mod:`.features`; :mod:`.shard` strings them together, :mod:`.pool` spreads shards over processes
and machines. The physics is described in docs/htautau.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from torchapl.paper.data.shards import SHARD_ROWS, Plan, rows_of
from torchapl.paper.data.simulate.features import FEATURES
from torchapl.paper.data.simulate.generator import import_pythia
from torchapl.paper.data.simulate.pool import in_processes, on_cluster
from torchapl.paper.data.simulate.shard import MAX_SEED, MAX_SHARDS, SimulatedShard
from torchapl.paper.data.store import EventStore
from torchapl.paper.data.writer import EventStoreWriter

__all__ = ["FEATURES", "simulate"]


def simulate(
    path: Path,
    *,
    events: int,
    workers: int = 1,
    ray: str | None = None,
    seed: int = 0,
    hadronization: bool = True,
    multiple_interactions: bool = True,
    advance: Callable[[int], None] | None = None,
) -> EventStore:
    """Simulate Higgs (label 1) and Z/gamma* (label 0) events into an event store.

    Signal and background alternate at random, half and half, so any stretch of rows can serve as a
    test set. The result depends on ``events``, ``seed`` and the two switches, not on who makes it:
    every shard of 20,000 events has random numbers of its own. An interrupted run goes on with the
    shards that are missing when called again with the same arguments.

    Args:
        path: Folder of the store; must not exist yet, or lack shards.
        events: Number of accepted events, up to 200 million.
        workers: Number of processes on this machine.
        ray: Address of a Ray cluster that makes the shards instead; ``path`` is then on storage
            that all nodes share.
        seed: From 0 to 44,999.
        hadronization: Turn partons into hadrons; without, jets are made of partons.
        multiple_interactions: Simulate further parton collisions of the same two protons; without,
            events are made five to ten times faster.
        advance: Called with the number of events whenever some are finished.

    Example:
        >>> store = simulate(Path("data/htautau.events"), events=1000)  # doctest: +SKIP
        >>> store.rows, len(store.features)  # doctest: +SKIP
        (1000, 25)
    """
    for name, value, least, most in (
        ("events", events, 1, MAX_SHARDS * SHARD_ROWS),
        ("workers", workers, 1, None),
        ("seed", seed, 0, MAX_SEED),
    ):
        if value < least or (most is not None and value > most):
            bound = f"at least {least}" if most is None else f"from {least} to {most:,}"
            raise ValueError(f"{name} must be {bound}, got {value}")
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
    plan = Plan((*FEATURES, "label"), source=source)
    with EventStoreWriter(path, plan) as writer:
        present = writer.shards
        if advance is not None:
            advance(sum(rows_of(shard) for shard in present.values()))
        missing = [
            SimulatedShard(
                number,
                min(SHARD_ROWS, events - number * SHARD_ROWS),
                seed,
                hadronization,
                multiple_interactions,
            )
            for number in range(-(-events // SHARD_ROWS))
            if number not in present
        ]
        made = (
            in_processes(missing, writer.partial, plan, workers)
            if ray is None
            else on_cluster(missing, writer.partial, plan, ray)
        )
        with closing(made) as finished:
            for rows in finished:
                if advance is not None:
                    advance(rows)
        return writer.finish(-(-events // SHARD_ROWS))
