"""``torchapl data``: list, fetch, verify, describe and simulate data sets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchapl.paper.data.management import Report

EXAMPLES = """examples:
  torchapl data list
  torchapl data fetch cifar10 --root data           also if the archive is there already
  torchapl data fetch uci-higgs --root data --from ~/downloads/HIGGS.parquet
  torchapl data verify cifar10 --root data
  torchapl data info atlas-higgs-2014 --root data --json
  torchapl data simulate htautau --events 400000 --workers 2 --root data
  torchapl data simulate htautau --events 80000000 --ray HEAD:6379 --root /shared/data
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "data",
        help="list, fetch, verify, describe or simulate data sets",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--root", type=Path, help="folder of the data sets (default: ~/.cache/torchapl)"
    )
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("--json", action="store_true", help="for machines")

    listing = actions.add_parser(
        "list", parents=[common, machine], help="all sets, and which are here"
    )
    listing.set_defaults(run=run_list)

    fetch = actions.add_parser(
        "fetch", parents=[common], help="download, check and unpack or convert a set"
    )
    fetch.add_argument("name")
    fetch.add_argument(
        "--form",
        choices=("binary", "python"),
        help="of CIFAR archives (default: that of the file at hand, else binary)",
    )
    fetch.add_argument(
        "--from", dest="file", type=Path, metavar="FILE", help="use this file, no download"
    )
    fetch.set_defaults(run=run_fetch)

    verify = actions.add_parser("verify", parents=[common], help="compare a set with its checksums")
    verify.add_argument("name")
    verify.set_defaults(run=run_verify)

    info = actions.add_parser(
        "info", parents=[common, machine], help="source, citation, size and columns of a set"
    )
    info.add_argument("name")
    info.set_defaults(run=run_info)

    simulate = actions.add_parser("simulate", parents=[common], help="make events with Pythia 8")
    simulate.add_argument("name", choices=("htautau",))
    simulate.add_argument("--events", type=int, required=True, help="number of accepted events")
    where = simulate.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, default=1, help="number of processes")
    where.add_argument(
        "--ray", metavar="ADDRESS", help="make the events on a Ray cluster that shares the root"
    )
    simulate.add_argument("--seed", type=int, default=0, help="0 to 44,999 (default: 0)")
    simulate.add_argument(
        "--no-hadronization", dest="hadronization", action="store_false", help="jets of partons"
    )
    simulate.add_argument(
        "--no-multiple-interactions",
        dest="multiple_interactions",
        action="store_false",
        help="faster by five to ten times",
    )
    simulate.set_defaults(run=run_simulate)


def _root(args: argparse.Namespace) -> Path:
    from torchapl.paper.data import default_root

    return default_root() if args.root is None else Path(args.root)


def run_list(args: argparse.Namespace) -> int:
    """Print all sets, and where those are that are here."""
    from torchapl.paper.data import DATA_SETS
    from torchapl.paper.data.management import describe

    root = _root(args)
    rows = [
        {key: record[key] for key in ("name", "here", "about")}
        for record in (describe(name, root) for name in DATA_SETS)
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['name']:22}{'here' if row['here'] else '-':6}{row['about']}")
    return 0


def run_fetch(args: argparse.Namespace) -> int:
    """Fetch a set and print its folder."""
    from torchapl.paper.data.management import fetch_set

    with _progress() as report:
        path = fetch_set(args.name, _root(args), form=args.form, file=args.file, report=report)
    print(path)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Check a set; exit code 2 with a message if it is damaged."""
    from torchapl.paper.data.management import verify_set

    with _progress() as report:
        checked = verify_set(args.name, _root(args), report)
    print(f"{args.name}: ok ({checked})")
    return 0


def run_info(args: argparse.Namespace) -> int:
    """Print what is known of a set."""
    from torchapl.paper.data.management import describe

    record = describe(args.name, _root(args))
    if args.json:
        print(json.dumps(record, indent=2))
        return 0
    store = record.pop("store", None)
    for key, value in record.items():
        if key == "files":
            for file in value:
                print(f"{'file':10}{file['url']} ({file['bytes'] or '?'} bytes)")
        else:
            print(f"{key:10}{value if value is not None else 'no'}")
    if store is not None:
        _print_store(store)
    return 0


def _print_store(store: dict[str, Any]) -> None:
    print(f"{'rows':10}{store['rows']} ({store['training_rows']} train, {store['test_rows']} test)")
    print(f"{'checksum':10}{store['checksum']}")
    head = ("column", "missing", "mean", "deviation", "minimum", "maximum")
    print("\n" + f"{head[0]:28}" + "".join(f"{name:>12}" for name in head[1:]))
    for column in store["columns"]:
        numbers = "".join(f"{column[name]:12.5g}" for name in head[2:])
        print(f"{column['name']:28}{column['missing']:12d}{numbers}")


def run_simulate(args: argparse.Namespace) -> int:
    """Simulate events into the store of the set, and print its folder."""
    from torchapl.paper.data import store_folder
    from torchapl.paper.data.simulate import simulate

    folder = store_folder(_root(args), args.name)
    done = 0
    with _progress() as report:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            report("events", done, args.events)

        simulate(
            folder,
            events=args.events,
            workers=args.workers,
            ray=args.ray,
            seed=args.seed,
            hadronization=args.hadronization,
            multiple_interactions=args.multiple_interactions,
            advance=advance,
        )
    print(folder)
    return 0


@contextmanager
def _progress() -> Iterator[Report]:
    """Show bars on stderr, one per task; stdout is for results."""
    from rich.console import Console
    from rich.progress import Progress, TaskID

    progress = Progress(console=Console(file=sys.stderr), transient=True)
    tasks: dict[str, TaskID] = {}

    def report(task: str, done: float, total: float | None) -> None:
        progress.start()
        if task not in tasks:
            tasks[task] = progress.add_task(task, total=total)
        progress.update(tasks[task], completed=done, total=total)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()
