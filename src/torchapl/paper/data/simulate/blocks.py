"""Blocks of accepted events, each made from its own seed: the unit of parallel work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchapl.paper.data.simulate.detector import accepted, measure, measure_leptons
from torchapl.paper.data.simulate.features import FEATURES, features
from torchapl.paper.data.simulate.generator import Generator, Process
from torchapl.paper.data.simulate.taus import decay

PROCESSES: tuple[Process, ...] = ("background", "signal")  # the index is the label
# Collisions made at a time. Another number gives other events: it orders the random numbers.
_TRIALS = 500


@dataclass(frozen=True)
class Block:
    """Some neighbouring rows of the table, half of them signal, in random order."""

    index: int
    events: int
    seed: int
    hadronization: bool
    multiple_interactions: bool

    def make(self) -> NDArray[np.float32]:
        """Simulate the block: features, then the label."""
        counts = {"background": self.events // 2, "signal": self.events - self.events // 2}
        rows = np.concatenate([self._rows(process, counts[process]) for process in PROCESSES])
        # The stream after those of the processes.
        np.random.default_rng([self.seed, len(PROCESSES), self.index]).shuffle(rows)
        return rows

    def _rows(self, process: Process, count: int) -> NDArray[np.float32]:
        label = PROCESSES.index(process)
        seeds = np.random.SeedSequence([self.seed, label, self.index])
        rng = np.random.default_rng(seeds.spawn(1)[0])
        generator = Generator(
            process,
            seed=1 + int(seeds.generate_state(1, np.uint64)[0] % 900_000_000),
            hadronization=self.hadronization,
            multiple_interactions=self.multiple_interactions,
        )
        rows = np.empty((0, len(FEATURES)), np.float32)
        while len(rows) < count:
            rows = np.concatenate([rows, _accepted_rows(generator, rng)])
        return np.insert(rows[:count], len(FEATURES), label, axis=1)


def _accepted_rows(generator: Generator, rng: np.random.Generator) -> NDArray[np.float32]:
    """Features of the accepted among the next collisions."""
    pairs = generator.pairs(_TRIALS)
    leptons = measure_leptons(decay(pairs.minus, pairs.plus, pairs.spin(), rng), rng)
    chosen = accepted(leptons)
    around = generator.surroundings([pairs.events[i] for i in np.flatnonzero(chosen).tolist()])
    return features(measure(leptons[chosen], around, rng)).astype(np.float32)
