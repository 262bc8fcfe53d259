"""Run as a program: break runs in every way and see that each ends as if nothing had happened.

    python tests/long/faults.py --kills 1000 --damages 1000 --disks 100

Kills processes, damages every kind of file that the program writes or reads, refuses writes, and
repeats the command. Each case ends identical to the bit, or is refused or told in words. Prints a
table of counts by kind and outcome; anything silent is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from damages import damage_files
from disks import refuse_writes
from kills import kill_runs, kill_sweeps, warm_up
from outcomes import Table, is_fault, print_table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="a fifth each of pairs and sweeps")
    parser.add_argument("--damages", type=int, default=1000, help="over all kinds of files")
    parser.add_argument("--disks", type=int, default=100, help="half full, half read-only")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    chance = random.Random(args.seed)
    table: Table = Counter()
    # Stopped by Ctrl-C, it still says what it has counted.
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # Forks go first: what follows starts threads.
        warm_up(root / "warm")
        fifth = args.kills // 5
        kill_runs(root, args.kills - 2 * fifth, 1, chance, table)
        kill_runs(root, fifth, 2, chance, table)
        kill_sweeps(root, fifth, chance, table)
        refuse_writes(root, args.disks, chance, table)
        damage_files(root, args.damages, chance, table)
    print_table(table)
    return 1 if any(is_fault(outcome) for _, outcome in table) else 0


if __name__ == "__main__":
    sys.exit(main())
