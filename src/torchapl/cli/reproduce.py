"""``torchapl reproduce``: the tables of the paper, run by run, resumed by repeating the command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchapl.cli.progress import duration, on_stderr
from torchapl.cli.train import SCALES_HELP, add_load_argument, add_set_argument

if TYPE_CHECKING:
    from torchapl.paper.experiments import Table
    from torchapl.paper.sweep import Job, Pool, Sweep
    from torchapl.paper.sweep.jobs import Results

EXAMPLES = """examples:
  torchapl reproduce table3 --scale smoke
  torchapl reproduce table1 --scale lab --seeds 5 --only 'cifar10-cnn-*' --data DIR --workers 2
  torchapl reproduce all --dry-run                 what would run, and how long it takes here
  torchapl reproduce all --scale lab --runs results/lab.jsonl   tables from stored results
  torchapl reproduce table1 --scale lab --runs results/lab.jsonl --baseline silu
  torchapl reproduce table1 --scale lab --seeds 8 --store results/lab.jsonl   only what it lacks
  torchapl reproduce modern --scale lab --data DIR --set precision=float32   where that is quicker
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
    parser.add_argument(
        "tables",
        nargs="+",
        metavar="TABLE",
        help="table1, table2, table3, ablation, activations, modern or all",
    )
    parser.add_argument("--scale", default="paper", help=SCALES_HELP)
    parser.add_argument(
        "--seeds", type=int, help="runs of each cell (default: as many as the paper made)"
    )
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
    add_pool_arguments(parser)
    add_load_argument(parser)
    add_set_argument(parser, "change a setting of all runs; see `torchapl show EXPERIMENT`")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("runs"),
        help="folder of all runs, or a file of stored ones",
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="add the results to this file of JSON lines; those it has are not made again",
    )
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        default="relu",
        help="row that the others are compared with, seed by seed (default relu)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    parser.add_argument("--markdown", action="store_true", help="tables as Markdown")
    parser.add_argument("--json", action="store_true", help="tables as JSON")
    parser.set_defaults(run=run)


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says where and by what runs are done."""
    parser.add_argument("--workers", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="run on this Ray cluster ('auto' finds it)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")
    parser.add_argument("--data", type=Path, help="folder with the data sets' files")


def run(args: argparse.Namespace) -> int:
    """Do what is missing, then print the tables; 1 if a run ended without a result."""
    from torchapl.paper.sweep import Sweep
    from torchapl.paper.sweep.jobs import read_results, read_store, write_results
    from torchapl.paper.sweep.selection import selected_tables
    from torchapl.paper.sweep.statistics import check_baseline

    for name, least in (("seeds", 1), ("selection_seeds", 0), ("workers", 1)):
        if getattr(args, name) is not None and getattr(args, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}")
    tables = selected_tables(args.tables, args.only, scale=args.scale)
    # Before anything runs for hours.
    for table in tables:
        check_baseline(table, args.baseline)
    sweep = Sweep(args.scale, args.seeds, args.selection_seeds, overrides=tuple(args.overrides))
    stored = {} if args.store is None else read_store(args.store)
    if args.dry_run:
        _print_plan(args, tables, sweep, stored | read_results(args.runs))
        return 0
    broken: dict[Job, str] = {}
    # A file holds results alone: there is nothing to run.
    if not args.runs.is_file():
        broken = complete(args, tables, sweep, stored)
    results = stored | read_results(args.runs)
    if args.store is not None:
        cells = [cell for table in tables for cell in table.cells]
        write_results(results | sweep.ensembles(cells, results), args.store)
    print_tables(args, tables, sweep, results)
    for job, error in broken.items():
        print(f"no result: {job.folder(args.runs)}: {error}", file=sys.stderr)
    return 1 if broken else 0


def complete(
    args: argparse.Namespace, tables: Sequence[Table], sweep: Sweep, stored: Results
) -> dict[Job, str]:
    """Do the runs that tables still need; return those without a result, with the reason."""
    from torchapl.paper.sweep import reproduce

    cells = [cell for table in tables for cell in table.cells]
    try:
        with _pool(args) as pool:
            return reproduce(cells, sweep, args.runs, pool, stored=stored, progress=on_stderr)
    except (KeyboardInterrupt, SystemExit):
        print("the same command goes on where the runs were", file=sys.stderr)
        raise


def _pool(args: argparse.Namespace) -> Pool:
    from torchapl.paper.sweep.pool import Workspace

    workspace = Workspace(args.runs, args.data, args.device, tuple(args.load))
    if args.ray is not None:
        from torchapl.paper.sweep.cluster import RayPool

        return RayPool(workspace, args.ray)
    from torchapl.paper.sweep.local import LocalPool

    return LocalPool(workspace, args.workers)


def _print_plan(
    args: argparse.Namespace, tables: Sequence[Table], sweep: Sweep, results: Results
) -> None:
    import torch

    from torchapl.paper.experiments import START_SECONDS, estimate

    on_gpu = args.device.startswith("cuda") or (args.device == "auto" and torch.cuda.is_available())
    runs, total = 0, 0.0
    planned: set[Job] = set()
    print(f"{'experiment':40} {'done':>5} {'to run':>6}  expected")
    for cell in (cell for table in tables for cell in table.cells):
        made, missing = sweep.choices(cell, results)
        finals = sweep.final_jobs(cell, made)
        # What two cells need counts once.
        jobs = {job for job in (*missing, *finals) if job not in results} - planned
        planned |= jobs
        # The candidates after the next decision are not known yet, but their number is.
        later = sum(len(stage.candidates) for stage in sweep.stages(cell)[len(made) + 1 :])
        count = len(jobs) + later * sweep.selection_seeds
        done = 0 if missing else sum(job in results for job in finals)
        # With what --set and the rows change.
        cost = estimate(finals[0].settings())
        seconds = 0.0 if cost is None else count * (cost.gpu if on_gpu else cost.cpu)
        runs, total = runs + count, total + seconds
        print(f"{cell.experiment:40} {done:5} {count:6}  {duration(seconds)}")
    workers = 1 if on_gpu else min(args.workers, os.cpu_count() or 1)
    start = START_SECONDS if runs else 0.0
    where = "one GPU" if on_gpu else f"{workers} CPU core{'s' if workers > 1 else ''}"
    print(f"in all {runs} runs, about {duration(start + total / workers)} on {where}")


def print_tables(
    args: argparse.Namespace, tables: Sequence[Table], sweep: Sweep, results: Results
) -> None:
    """Print tables, one part for every metric, as text, Markdown or JSON."""
    from torchapl.paper.sweep import render
    from torchapl.paper.sweep.statistics import summarise

    summaries = {table.name: summarise(table, sweep, results, args.baseline) for table in tables}
    if args.json:
        cells = {name: render.as_json(rows) for name, rows in summaries.items()}
        print(json.dumps(cells, indent=2))
        return
    show = render.markdown if args.markdown else render.text
    for table in tables:
        for metric, chosen in render.by_metric(summaries[table.name]).items():
            # What nothing was measured of is no part of the table.
            if any(summary.n or summary.failed for summary in chosen):
                print(f"\n{table.name}: {table.title}, {metric.title} ({sweep.scale} scale)\n")
                print(show(table, chosen, args.baseline))
        if not any(summary.n or summary.failed for summary in summaries[table.name]):
            # No result: a file of tables stays as it is when there is one more to fill.
            print(f"{table.name}: no runs yet", file=sys.stderr)
