"""``torchapl reproduce``: the tables of the paper, run by run, resumed by repeating the command."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchapl.paper.experiments import Table
    from torchapl.paper.sweep import Job, Pool, Sweep
    from torchapl.paper.sweep.jobs import Results
    from torchapl.paper.sweep.local import Done
    from torchapl.paper.sweep.statistics import Summary

EXAMPLES = """examples:
  torchapl reproduce table3 --scale smoke
  torchapl reproduce table1 --scale lab --seeds 5 --only 'cifar10-cnn-*' --data DIR --workers 2
  torchapl reproduce all --dry-run                 what would run, and how long it takes here
  torchapl reproduce all --scale lab --runs results/lab.jsonl   tables from stored results
  torchapl reproduce table1 --scale lab --runs results/lab.jsonl --baseline silu
  torchapl reproduce table2 --ray auto             on a Ray cluster, runs on shared storage

A finished run is never repeated, an interrupted one goes on where it was, a failed one is shown.
Started twice on the same --runs, also from other machines, the command shares the work.
Learning rates (at lab scale), slopes and numbers of hinges are chosen on held-out training rows.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "reproduce",
        help="run the paper's tables",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tables = ("table1", "table2", "table3", "ablation", "all")
    parser.add_argument(
        "tables", nargs="+", choices=tables, metavar="TABLE", help=", ".join(tables)
    )
    parser.add_argument("--scale", choices=("paper", "lab", "smoke"), default="paper")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each cell (default 5)")
    parser.add_argument(
        "--selection-seeds",
        type=int,
        default=1,
        help="runs of each candidate (default 1); 0 chooses nothing",
    )
    parser.add_argument(
        "--only",
        metavar="GLOB",
        action="append",
        default=[],
        help="only experiments whose name matches; may be repeated",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="run on this Ray cluster ('auto' finds it)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")
    parser.add_argument("--data", type=Path, help="folder with the data sets' files")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("runs"),
        help="folder of all runs, or a file of stored ones",
    )
    parser.add_argument("--store", type=Path, help="write the results to this file of JSON lines")
    parser.add_argument(
        "--baseline",
        choices=("relu", "leaky", "prelu", "silu", "gelu"),
        default="relu",
        help="row that the others are compared with, seed by seed (default relu)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    parser.add_argument("--markdown", action="store_true", help="tables as Markdown")
    parser.add_argument("--json", action="store_true", help="tables as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what is missing, then print the tables; 1 if a run ended without a result."""
    from torchapl.paper.sweep import Sweep, reproduce
    from torchapl.paper.sweep.jobs import read_results, write_results
    from torchapl.paper.sweep.selection import selected_tables

    for name, least in (("seeds", 1), ("selection_seeds", 0), ("workers", 1)):
        if getattr(args, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}")
    tables = selected_tables(args.tables, args.only)
    sweep = Sweep(args.scale, args.seeds, args.selection_seeds)
    if args.dry_run:
        _print_plan(args, tables, sweep)
        return 0
    broken: dict[Job, str] = {}
    # A file holds results alone: there is nothing to run.
    if not args.runs.is_file():
        try:
            broken = reproduce(tables, sweep, args.runs, _pool(args), progress=_progress)
        except (KeyboardInterrupt, SystemExit):
            print("the same command goes on where the runs were", file=sys.stderr)
            raise
    results = read_results(args.runs)
    if args.store is not None:
        write_results(results, args.store)
    _print_tables(args, tables, sweep, results)
    for job, error in broken.items():
        print(f"no result: {job.folder(args.runs)}: {error}", file=sys.stderr)
    return 1 if broken else 0


def _pool(args: argparse.Namespace) -> Pool:
    if args.ray is not None:
        from torchapl.paper.sweep.cluster import RayPool

        return RayPool(args.runs, args.data, args.device, args.ray)
    from torchapl.paper.sweep.local import LocalPool

    return LocalPool(args.runs, args.data, args.device, args.workers)


def _progress(jobs: Sequence[Job]) -> Done:
    """Announce the jobs and return what tells about each of them, with the time left."""
    start, total = time.monotonic(), len(jobs)
    ended = 0
    print(f"{total} runs to do", file=sys.stderr)

    def tell(job: Job, error: str | None) -> None:
        nonlocal ended
        ended += 1
        elapsed = time.monotonic() - start
        left = elapsed / ended * (total - ended)
        name = " ".join((job.experiment, *job.overrides, f"seed {job.seed}"))
        outcome = "done" if error is None else f"no result: {error}"
        print(
            f"[{ended}/{total}, {_duration(elapsed)}, {_duration(left)} left] {name}: {outcome}",
            file=sys.stderr,
            flush=True,
        )

    return tell


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 3 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"


def _print_plan(args: argparse.Namespace, tables: Sequence[Table], sweep: Sweep) -> None:
    import torch

    from torchapl.paper.sweep.jobs import read_results, wanted_experiments

    results = read_results(args.runs)
    on_gpu = args.device.startswith("cuda") or (args.device == "auto" and torch.cuda.is_available())
    runs, total = 0, 0.0
    planned: set[Job] = set()
    print(f"{'experiment':40} {'done':>5} {'to run':>6}  expected")
    for (name, choose), members in wanted_experiments(tables).items():
        made, missing = sweep.choices(name, results, choose=choose)
        finals = sweep.final_jobs(name, made, max(sweep.seeds, members))
        # What two experiments need counts once.
        jobs = {job for job in (*missing, *finals) if job not in results} - planned
        planned |= jobs
        # The candidates after the next decision are not known yet, but their number is.
        later = sum(len(stage) for stage in sweep.stages(name, choose=choose)[len(made) + 1 :])
        count = len(jobs) + later * sweep.selection_seeds
        done = 0 if missing else sum(job in results for job in finals)
        cost = finals[0].settings().cost
        seconds = 0.0 if cost is None else count * (cost.gpu if on_gpu else cost.cpu)
        runs, total = runs + count, total + seconds
        print(f"{name:40} {done:5} {count:6}  {_duration(seconds)}")
    workers = 1 if on_gpu else min(args.workers, os.cpu_count() or 1)
    where = "one GPU" if on_gpu else f"{workers} CPU core{'s' if workers > 1 else ''}"
    print(f"in all {runs} runs, about {_duration(total / workers)} on {where}")


def _print_tables(
    args: argparse.Namespace, tables: Sequence[Table], sweep: Sweep, results: Results
) -> None:
    from torchapl.paper.sweep import render
    from torchapl.paper.sweep.statistics import SIGNIFICANCE, summarise

    def summaries(table: Table, metric: str | None = None) -> dict[str, dict[str, Summary]]:
        return summarise(table, sweep, results, metric, args.baseline)

    if args.json:
        cells = {table.name: render.as_json(summaries(table)) for table in tables}
        print(json.dumps(cells, indent=2))
        return
    show = render.markdown if args.markdown else render.text
    for table in tables:
        print(f"\n{table.name}: {table.title} ({sweep.scale} scale)\n")
        print(show(table, summaries(table), args.baseline))
        if table.name == "table2":
            print(f"\n{table.name}: expected significance, sigma (histogram)\n")
            print(show(table, summaries(table, SIGNIFICANCE[0]), args.baseline))
