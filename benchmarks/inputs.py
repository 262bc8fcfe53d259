"""Do low-level, high-level and all inputs order as in the physics paper, shallow and deep?

python benchmarks/inputs.py --data DIR

Trains the physics baseline of lab scale (ReLU, no dropout) on simulated Higgs events with the ten
measured inputs, with the fifteen derived ones, and with all: seven hidden layers, and one with as
many weights. The learning rate of each is the best of three on held-out rows; then three seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

from torchapl.paper.config import override_all
from torchapl.paper.data import DATA_SETS, DataSet
from torchapl.paper.data.content import EventData
from torchapl.paper.data.convert import open_store
from torchapl.paper.data.sets.htautau import LAYOUT
from torchapl.paper.data.simulate.features import FEATURES, LOW_LEVEL
from torchapl.paper.experiments import get
from torchapl.paper.experiments.scales import scaled
from torchapl.paper.train import train

INPUTS = {
    "low-level": slice(0, len(LOW_LEVEL)),
    "high-level": slice(len(LOW_LEVEL), len(FEATURES)),
    "complete": slice(0, len(FEATURES)),
}
# Factor on 274 units: a layer of 2,740 has as many weights as seven of 110, within a tenth for all
# inputs together.
NETWORKS = {"shallow": ("depth=1", "width=10"), "deep": ()}
RATES = (0.002, 0.004, 0.008)


def columns(chosen: slice, root: Path) -> EventData:
    store = open_store("htautau", root)
    table = store.table()
    kept = [*range(len(FEATURES))[chosen], store.label]
    return EventData.of_table(table[:, kept], store.features[chosen], LAYOUT.split(store.rows)[1])


def auc(settings: list[str], seed: int, root: Path, split: str) -> float:
    experiment = override_all(scaled(get("higgs-dnn-baldi"), "lab"), settings)
    with tempfile.TemporaryDirectory() as folder:
        result = train(experiment, seed, Path(folder), data_root=root)
    return result.metrics[f"{split}_auc"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with htautau.events")
    parser.add_argument("--limit", type=int, help="training rows; all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for name, chosen in INPUTS.items():
        about = f"{name} inputs of htautau"
        DATA_SETS.register(DataSet(f"htautau-{name}", about, about, partial(columns, chosen)))
    print("| inputs | network | AUC, mean (std) | rate |\n| --- | --- | --- | --- |")
    for name in INPUTS:
        for network, changes in NETWORKS.items():
            settings = [f"data.name=htautau-{name}", *changes]
            settings.append(f"epochs={args.epochs}")
            if args.limit is not None:
                settings.append(f"data.limit={args.limit}")
            held_out = {
                rate: auc(
                    [*settings, f"optim.lr={rate}", "data.validation=0.1"], 0, args.data, "valid"
                )
                for rate in RATES
            }
            best = max(held_out, key=held_out.__getitem__)
            settings.append(f"optim.lr={best}")
            found = [auc(settings, seed, args.data, "test") for seed in range(args.seeds)]
            mean, std = statistics.mean(found), statistics.stdev(found)
            print(f"| {name} | {network} | {mean:.4f} ({std:.4f}) | {best} |", flush=True)


if __name__ == "__main__":
    main()
