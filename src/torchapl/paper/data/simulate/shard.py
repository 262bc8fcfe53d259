"""Shards of accepted events, each made from its own seed: the unit of parallel work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchapl.paper.data.shards import Plan, write_shard
from torchapl.paper.data.simulate.detector import accepted, hopeless, measure, measure_leptons
from torchapl.paper.data.simulate.features import FEATURES, features
from torchapl.paper.data.simulate.generator import Generator, Process
from torchapl.paper.data.simulate.taus import leptons

PROCESSES: tuple[Process, ...] = ("background", "signal")  # the index is the label
# Pythia has 900,000,000 seeds. A seed of ours is a range of them, one for each process of each
# shard, so that no two shards ever share one: 45,000 ranges of 10,000 shards.
MAX_SHARDS = 10_000
MAX_SEED = 900_000_000 // (MAX_SHARDS * len(PROCESSES)) - 1
# Collisions made at a time. Another number gives other events: it orders the random numbers.
_TRIALS = 500


@dataclass(frozen=True)
class SimulatedShard:
    """Some neighbouring rows of the table, half of them signal, in random order."""

    number: int
    events: int
    seed: int
    hadronization: bool
    multiple_interactions: bool

    def make(self) -> NDArray[np.float32]:
        """Simulate the shard: features, then the label."""
        counts = {"background": self.events // 2, "signal": self.events - self.events // 2}
        rows = np.concatenate([self._rows(process, counts[process]) for process in PROCESSES])
        # The stream after those of the processes.
        np.random.default_rng([self.seed, len(PROCESSES), self.number]).shuffle(rows)
        return rows

    def write(self, folder: Path, plan: Plan) -> int:
        """Simulate the shard into a file; return how many rows it has."""
        rows = self.make()
        write_shard(folder, plan, self.number, rows)
        return len(rows)

    def pythia_seed(self, process: Process) -> int:
        """Return the seed that no other process, shard or seed of ours has.

        Example:
            >>> SimulatedShard(3, 100, 2, True, True).pythia_seed("signal")
            40008
        """
        shard = self.seed * MAX_SHARDS + self.number
        return 1 + shard * len(PROCESSES) + PROCESSES.index(process)

    def _rows(self, process: Process, count: int) -> NDArray[np.float32]:
        label = PROCESSES.index(process)
        rng = np.random.default_rng([self.seed, label, self.number])
        generator = Generator(
            process,
            seed=self.pythia_seed(process),
            rng=rng,
            hadronization=self.hadronization,
            multiple_interactions=self.multiple_interactions,
            hopeless=hopeless,
        )
        rows = np.empty((0, len(FEATURES)), np.float32)
        while len(rows) < count:
            rows = np.concatenate([rows, _accepted_rows(generator, rng)])
        return np.insert(rows[:count], len(FEATURES), label, axis=1)


def _accepted_rows(generator: Generator, rng: np.random.Generator) -> NDArray[np.float32]:
    """Features of the accepted among the next collisions."""
    pairs = generator.pairs(_TRIALS)
    measured = measure_leptons(leptons(pairs.rest, pairs.minus, pairs.plus), rng)
    chosen = accepted(measured)
    around = generator.surroundings([pairs.events[i] for i in np.flatnonzero(chosen).tolist()])
    return features(measure(measured[chosen], around, rng)).astype(np.float32)
