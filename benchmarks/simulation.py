"""What a simulated event costs, and whether what makes it cheaper changes it.

python benchmarks/simulation.py --events 20000

Makes events of each class twice: as `torchapl data simulate` does, and with all collisions finished
and Pythia's own lowest scale of radiation. Prints CPU time per accepted event of both, taken in
turns, and what it goes to, and for each feature the p-value of a Kolmogorov-Smirnov test that both
samples are of one distribution.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from torchapl.paper.data.simulate import generator, shard
from torchapl.paper.data.simulate.detector import hopeless
from torchapl.paper.data.simulate.features import FEATURES
from torchapl.paper.data.simulate.generator import Generator, Process

PLAIN = tuple(line for line in generator._COMMON if not line.startswith("TimeShower"))


# The steps of a simulation, where each is a function, and which other one it is called by.
STEPS = (
    ("collisions and showers", Generator, "pairs", None),
    ("jets", Generator, "surroundings", None),
    ("hadrons", Generator, "_hadronize", "jets"),
    ("leptons in the detector", shard, "measure_leptons", None),
    ("response of the detector", shard, "measure", None),
    ("features", shard, "features", None),
)
spent: Counter[str] = Counter()


def watch() -> None:
    """Let the steps count their CPU time."""
    for title, place, name, whole in STEPS:
        setattr(place, name, counting(getattr(place, name), title, whole))


def counting(step: Callable[..., Any], title: str, whole: str | None) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        begin = time.process_time()
        result = step(*args)
        seconds = time.process_time() - begin
        spent[title] += seconds
        if whole is not None:
            spent[whole] -= seconds
        return result

    return run


class Maker:
    """One way to make events of one class."""

    def __init__(self, process: Process, quick: bool, seed: int, interactions: bool) -> None:
        seed = 2 * seed + quick + 1
        self.rng = np.random.default_rng(seed)
        ours = generator._COMMON
        try:
            generator._COMMON = ours if quick else PLAIN
            self.generator = Generator(
                process,
                seed=seed,
                rng=self.rng,
                multiple_interactions=interactions,
                hopeless=hopeless if quick else generator._never,
            )
        finally:
            generator._COMMON = ours
        self.rows: list[np.ndarray] = []
        self.seconds = 0.0
        self.spent: Counter[str] = Counter()

    def more(self) -> int:
        spent.clear()
        begin = time.process_time()
        self.rows.append(shard._accepted_rows(self.generator, self.rng))
        self.seconds += time.process_time() - begin
        self.spent += spent
        return sum(map(len, self.rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="of each class, each way")
    parser.add_argument("--seed", type=int, default=400_000_000, help="of both, 0 to 449,999,999")
    parser.add_argument("--only", choices=shard.PROCESSES, help="one class")
    parser.add_argument("--multiple-interactions", action="store_true")
    args = parser.parse_args()
    watch()
    worst = []
    for process in [args.only] if args.only else shard.PROCESSES:
        quick, plain = (
            Maker(process, way, args.seed, args.multiple_interactions) for way in (True, False)
        )
        while plain.more() < args.events:
            # In turns: what else the machine does then disturbs both alike.
            while sum(map(len, quick.rows)) < sum(map(len, plain.rows)):
                quick.more()
        ours, theirs = (np.concatenate(maker.rows)[: args.events] for maker in (quick, plain))
        cost, full = (1e3 * maker.seconds / sum(map(len, maker.rows)) for maker in (quick, plain))
        print(
            f"{process}: {cost:.2f} ms of CPU per event, {full:.2f} in full, {full / cost:.2f} "
            f"times; {args.events:,} events each way",
            flush=True,
        )
        for title, seconds in quick.spent.most_common():
            print(f"  {1e3 * seconds / sum(map(len, quick.rows)):6.2f} ms {title}")
        for place, name in enumerate(FEATURES):
            result = ks_2samp(ours[:, place], theirs[:, place], method="asymp")
            worst.append(result.pvalue)
            print(f"  {name:24}distance {result.statistic:.4f}  p = {result.pvalue:.3f}")
    print(
        f"least of {len(worst)} p-values: {min(worst):.4f}; if nothing differs it is below "
        f"{1 - 0.95 ** (1 / len(worst)):.4f} in one of twenty runs"
    )


if __name__ == "__main__":
    main()
