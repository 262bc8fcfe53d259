"""Print what `torchapl bench op --csv` collected as the tables of docs/performance.md.

python benchmarks/op_table.py benchmarks/results/op.csv --plot docs/images/op.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torchapl.bench.op import Measurement, Setting
from torchapl.bench.record import plot, read_csv

FAST = ("apl", "silu", "gelu", "prelu")
# Also the kernels themselves where the others were measured, in the same rounds.
SLOW = ("apl compiled", "apl eager")
PEERS = ("deepsplines", "rational-activations", "torch-activation APLU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--plot", type=Path, help="also draw ratio against S")
    options = parser.parse_args()
    rows = read_csv(options.csv)
    for mode, training in (("Forward and backward", True), ("Inference", False)):
        for threads in sorted({row.setting.threads for row in rows}):
            chosen = [
                row
                for row in rows
                if (row.setting.training, row.setting.threads) == (training, threads)
            ]
            shown = FAST if training else ("apl", "apl fused", *FAST[1:])
            show(f"{mode}, {threads} thread{'s' if threads > 1 else ''}", chosen, shown)
    show("Eager and compiled definition", rows, SLOW)
    show("Other packages", rows, PEERS)
    show("Default allocator", read_csv(options.csv, allocator="default"), FAST[:2])
    if options.plot is not None:
        # Those that a page has room for; the tables have the others.
        drawn = (row for row in rows if row.setting.threads == 1 and row.candidate in FAST)
        plot(list(drawn), options.plot)


def show(title: str, rows: list[Measurement], candidates: tuple[str, ...]) -> None:
    """Print a table: a line for every setting, the ratios of all S in one cell."""
    found: dict[Setting, dict[str, list[Measurement]]] = {}
    for row in rows:
        if row.candidate in candidates:
            found.setdefault(row.setting, {}).setdefault(row.candidate, []).append(row)
    sizes = sorted({row.hinges for row in rows if row.candidate in candidates and row.hinges})
    print(f"\n{title}, S = {' / '.join(map(str, sizes))}:\n")
    print(f"| shape | units | threads | {' | '.join(candidates)} |")
    print("|---" * (3 + len(candidates)) + "|")
    for setting, measured in found.items():
        cells = [
            " / ".join(f"{row.ratio.median:.2f}" for row in measured.get(name, []))
            for name in candidates
        ]
        print(f"| {setting.shape} | {setting.units} | {setting.threads} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
