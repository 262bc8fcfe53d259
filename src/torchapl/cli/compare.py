"""``torchapl compare``: which activation is best for a network?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchapl.cli.reproduce import add_pool_arguments, complete, print_tables
from torchapl.cli.train import add_experiment_arguments

if TYPE_CHECKING:
    from torchapl.paper.experiments import Table
    from torchapl.paper.sweep import Sweep
    from torchapl.paper.sweep.comparison import Comparison
    from torchapl.paper.sweep.jobs import Results

EXAMPLES = """examples:
  torchapl compare atlas-dnn-relu --scale lab --activations relu,silu,apl --seeds 5 --workers 2
  torchapl compare my-net --load my_experiments.py --activations relu,gelu,apl,apl:5:channel
  torchapl compare my-net --load my_experiments.py --rates 1      one learning rate for all
  torchapl compare my-net --load my_experiments.py --held-out     test rows stay untouched

For every activation the learning rate is chosen on held-out training rows, from the same factors;
then as many runs as --seeds are made on all training rows. Differences are paired by seed, with
95 % intervals. Interrupted, the same command goes on where it was.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "compare",
        help="find the best activation for a network",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_experiment_arguments(parser)
    parser.add_argument(
        "--activations",
        type=_texts,
        default=("relu", "silu", "apl"),
        metavar="A,B,...",
        help="default relu,silu,apl; see `torchapl list activations`",
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument(
        "--selection-seeds", type=int, default=1, help="runs of each candidate (default 1)"
    )
    parser.add_argument(
        "--rates",
        type=_numbers,
        metavar="A,B,...",
        help="factors of the learning rate to choose from (default 0.3,1,3)",
    )
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="measure by held-out training rows: while you still choose, leave the test rows alone",
    )
    parser.add_argument("--baseline", help="activation to compare with (default: the first)")
    add_pool_arguments(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    parser.add_argument("-o", "--output", type=Path, help="the report (default RUNS/report.html)")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    parser.set_defaults(run=run)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"numbers such as 0.3,1,3, got {text!r}") from None


def run(args: argparse.Namespace) -> int:
    """Do the runs, print the table, write the report.

    Returns 1 if a run ended without a result, or if all runs of an activation failed.
    """
    from torchapl.paper.report.html import write_report
    from torchapl.paper.sweep.jobs import read_results

    comparison = _comparison(args)
    table, sweep = comparison.table(), comparison.sweep(args.seeds)
    _check_data(args, table, sweep)
    comparison.save(args.runs)
    broken = complete(args, [table], sweep, {})
    results = read_results(args.runs)
    print_tables(args, [table], sweep, results)
    for job, error in broken.items():
        print(f"no result: {job.folder(args.runs)}: {error}", file=sys.stderr)
    is_row_lost = _tell_failures(table, sweep, results)
    if results:
        output = args.output or args.runs / "report.html"
        write_report(args.runs, output)
        print(f"the learned curves and all runs: {output}", file=sys.stderr)
    return 1 if broken or is_row_lost else 0


def _comparison(args: argparse.Namespace) -> Comparison:
    from torchapl.paper.sweep.comparison import RATES, Comparison

    for name, least in (("seeds", 1), ("selection_seeds", 1), ("workers", 1)):
        if getattr(args, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}")
    if len(args.activations) < 2:
        raise ValueError("--activations needs at least two, such as relu,silu,apl")
    args.baseline = args.baseline or args.activations[0]
    return Comparison(
        args.experiment,
        args.activations,
        args.scale,
        tuple(args.overrides),
        RATES if args.rates is None else args.rates,
        args.selection_seeds,
        args.baseline,
        args.held_out,
    )


def _check_data(args: argparse.Namespace, table: Table, sweep: Sweep) -> None:
    """Refuse data that no run can use, in one line, before each run says so after its start."""
    from torchapl.paper.data import DATA_SETS, DataError, default_root
    from torchapl.paper.data.own import check_parts
    from torchapl.paper.sweep.jobs import read_results

    # A cluster may have the data where this machine has none.
    if args.ray is not None:
        return
    results = read_results(args.runs)
    wanted = {job.settings().data for cell in table.cells for job in sweep.next_jobs(cell, results)}
    for data in wanted:
        content = DATA_SETS.get(data.name).load(args.data or default_root())
        try:
            check_parts(content, data.validation, data.limit)
        except DataError as error:
            raise DataError(f"{data.name}: {error}") from error


def _tell_failures(table: Table, sweep: Sweep, results: Results) -> bool:
    """Say why runs that count failed; return whether some activation has no other."""
    is_row_lost = False
    for cell in table.cells:
        runs = sweep.final_runs(cell, results)[1].values()
        failed = [run for run in runs if run.status == "failed"]
        for run in failed:
            print(f"failed: {run.folder}: {run.error}", file=sys.stderr)
        is_row_lost |= 0 < len(failed) == len(runs)
    return is_row_lost
