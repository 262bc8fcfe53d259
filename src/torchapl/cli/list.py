"""``torchapl list``: what there is to train and to reproduce."""

from __future__ import annotations

import argparse
import json
from fnmatch import fnmatch
from typing import Any

from torchapl.cli.train import add_load_argument

EXAMPLES = """examples:
  torchapl list
  torchapl list experiments --only 'cifar10-cnn-*'
  torchapl list tables --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "list",
        help="list experiments, tables, networks, activations and data sets",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="experiments",
        choices=("experiments", "tables", "nets", "activations", "data"),
    )
    add_load_argument(parser)
    parser.add_argument("--only", metavar="GLOB", default="*", help="names to show")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list; one line each, or JSON."""
    rows = [row for row in _rows(args.what) if fnmatch(row["name"], args.only)]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    if not rows:
        raise ValueError(f"--only {args.only} matches none of the {args.what}")
    columns = list(rows[0])
    widths = {key: max(len(_text(row[key])) for row in [*rows, {key: key}]) for key in columns}
    for row in [{key: key for key in columns}, *rows]:
        print("  ".join(_text(row[key]).ljust(widths[key]) for key in columns).rstrip())
    return 0


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _rows(what: str) -> list[dict[str, Any]]:
    from torchapl.paper.activations import ACTIVATIONS
    from torchapl.paper.data import DATA_SETS
    from torchapl.paper.experiments import EXPERIMENTS, TABLES
    from torchapl.paper.nets import NETWORKS

    if what == "nets":
        return [
            {"name": name, "family": network.family, "title": network.title}
            for name, network in NETWORKS.entries.items()
        ]
    if what == "activations":
        return [
            {"name": kind, "usual": str(activation.parse(kind)), "title": activation.title}
            for kind, activation in ACTIVATIONS.entries.items()
        ]
    if what == "data":
        return [{"name": name, "about": entry.about} for name, entry in DATA_SETS.entries.items()]
    if what == "tables":
        return [
            {"name": table.name, "rows": len(table.rows), "title": table.title}
            for table in TABLES.values()
        ]
    tables = {
        name: [table.name for table in TABLES.values() if name in table.experiments]
        for name in EXPERIMENTS
    }
    return [
        {
            "name": name,
            "net": experiment.net,
            "activation": str(experiment.activation),
            "data": experiment.data.name,
            "published": None if experiment.published is None else experiment.published.mean,
            "tables": tables[name],
        }
        for name, experiment in EXPERIMENTS.entries.items()
    ]
