"""Measure everything that docs/performance.md says of the CPU, and print it as its tables.

python benchmarks/performance.py             # a quarter of an hour of an otherwise idle machine
python benchmarks/performance.py --tables    # from what is stored

Runs ``torchapl bench op`` in parts, each a process of its own, into benchmarks/results/op.csv, and
draws docs/images/op.png. With ``--shape`` only the kernels are measured, on these shapes alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchapl.bench.op import SHAPES, Measurement, Setting
from torchapl.bench.record import plot, read_csv
from torchapl.ops.extension import backends

ROOT = Path(__file__).parents[1]
BEST = backends()["cpu"].implementation
CSV, PLOT = ROOT / "benchmarks/results/op.csv", ROOT / "docs/images/op.png"
OTHER_SHAPES = (
    (128, 64, 8, 8),
    (64, 512, 7, 7),
    (256, 1000),
    (1_000_000, 3),
    (8, 96, 32, 32),
    (1, 64, 112, 112),
)
# Eager PyTorch keeps eight maps for eight hinges.
SLOW_SHAPES = (SHAPES[0], *SHAPES[2:5])
HINGES = "--hinges 1 2 5 8 16"
FAST = ("apl", "silu", "gelu", "prelu")
SLOW = ("apl compiled", "apl eager")


def parts(given: Sequence[tuple[int, ...]] | None) -> list[str]:
    """Return the arguments of ``torchapl bench op`` for each part."""
    shapes = SHAPES if given is None else given
    usual, first = _of(shapes), _of(shapes[:1])
    every = [
        f"{usual} --quick {HINGES}",
        f"{usual} --quick {HINGES} --dtype bfloat16 --mode training",
        f"{first} --quick {HINGES} --channels-last --mode training",
        f"{first} --quick {HINGES} --default-allocator --mode training --rounds 5",
    ]
    if BEST.startswith("C++ (AVX-512"):
        every.append(f"{usual} --quick {HINGES} --capability AVX2")
    if given is None:
        every += [
            f"{_of(OTHER_SHAPES)} --quick {HINGES} --threads 1 --mode training",
            f"{_of(SLOW_SHAPES)} --hinges 1 8 --threads 2 --mode training --rounds 3",
        ]
    return every


def _of(shapes: Iterable[tuple[int, ...]]) -> str:
    return " ".join(f"--shape {','.join(map(str, shape))}" for shape in shapes)


def measure(given: Sequence[tuple[int, ...]] | None, csv: Path, rounds: int) -> None:
    csv.parent.mkdir(parents=True, exist_ok=True)
    csv.unlink(missing_ok=True)
    for part in parts(given):
        # What a part says of rounds comes later and counts.
        arguments = ["--csv", str(csv), "--rounds", str(rounds), *part.split()]
        print(f"torchapl bench op {part}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "torchapl.cli", "bench", "op", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def tables(csv: Path) -> None:
    rows = read_csv(csv, allocator="reusing", implementation=BEST)
    usual = [row for row in rows if row.setting.shape not in OTHER_SHAPES]
    plain = _kind(usual, "float32")
    for title, training in (("Forward and backward", True), ("Inference", False)):
        for threads in (1, 2):
            show(f"{title}, threads: {threads}", _chosen(plain, training, threads))
    for threads in (1, 2):
        halves = _chosen(_kind(usual, "bfloat16"), True, threads)
        show(f"bfloat16, forward and backward, threads: {threads}", halves)
    held = read_csv(csv, allocator="reusing", implementation="C++ (AVX2)")
    for title, training in (("forward and backward", True), ("inference", False)):
        for threads in (1, 2) if BEST.startswith("C++ (AVX-512") else ():
            show(f"AVX2, {title}, threads: {threads}", _chosen(held, training, threads))
    others = [row for row in rows if row.setting.shape in OTHER_SHAPES]
    show("Other shapes, forward and backward, threads: 1", others)
    last = [row for row in rows if row.setting.channels_last]
    fresh = read_csv(csv, allocator="default")
    for threads in (1, 2):
        show(f"Channels last, threads: {threads}", _chosen(last, True, threads))
        show(f"Fresh memory, threads: {threads}", _chosen(fresh, True, threads))
    show("Eager and compiled definition", [row for row in plain if row.candidate in SLOW], SLOW)


def _kind(rows: list[Measurement], dtype: str) -> list[Measurement]:
    return [r for r in rows if r.setting.dtype == dtype and not r.setting.channels_last]


def _chosen(rows: list[Measurement], training: bool, threads: int) -> list[Measurement]:
    return [
        row for row in rows if (row.setting.training, row.setting.threads) == (training, threads)
    ]


def show(title: str, rows: list[Measurement], candidates: tuple[str, ...] = FAST) -> None:
    """Print a table: a line for every setting, the ratios of all S in one cell."""
    if candidates == FAST and any(row.candidate == "apl fused" for row in rows):
        candidates = (FAST[0], "apl fused", *FAST[1:])
    rows = [row for row in rows if row.candidate in candidates]
    if not rows:
        return
    found: dict[Setting, dict[str, dict[int, float]]] = {}
    for row in rows:
        # The slow candidates' few rounds time the others once more; the first ones count.
        ratios = found.setdefault(row.setting, {}).setdefault(row.candidate, {})
        ratios.setdefault(row.hinges, row.ratio.median)
    sizes = sorted({row.hinges for row in rows if row.hinges})
    compared = "silu" in candidates
    heads = [*candidates, *(["S = 8 over SiLU"] if compared else [])]
    print(f"\n{title}, S = {' / '.join(map(str, sizes))}:\n")
    print(f"| shape | curve per | {' | '.join(heads)} |\n|---|---" + "|---" * len(heads) + "|")
    for setting, measured in found.items():
        cells = [
            " / ".join(f"{ratio:.2f}" for ratio in measured.get(name, {}).values())
            for name in candidates
        ]
        if compared:
            cells.append(f"{measured['apl'][8] / measured['silu'][0]:.2f}")
        print(f"| {setting.shape} | {setting.units} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    parser.add_argument("--csv", type=Path, default=CSV)
    parser.add_argument("--plot", type=Path, default=PLOT)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument(
        "--shape", action="append", type=lambda text: tuple(map(int, text.split(",")))
    )
    options = parser.parse_args()
    if not options.tables:
        measure(options.shape, options.csv, options.rounds)
    tables(options.csv)
    rows = read_csv(options.csv, allocator="reusing", implementation=BEST)
    # What a page has room for; the tables have the others.
    drawn = [row for row in _kind(rows, "float32") if row.setting.threads == 1]
    usual = [row for row in drawn if row.setting.shape not in OTHER_SHAPES]
    plot([row for row in usual if row.candidate in FAST], options.plot)


if __name__ == "__main__":
    main()
