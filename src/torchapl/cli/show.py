"""``torchapl show``: one experiment in full."""

from __future__ import annotations

import argparse
import json

from torchapl.cli.train import add_experiment_arguments, chosen_experiment

EXAMPLES = """examples:
  torchapl show cifar10-cnn-apl
  torchapl show higgs-dnn-apl --scale lab --set optim.lr=0.001 --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "show",
        help="print an experiment: settings, provenance, published number, cost, search space",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_experiment_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the experiment as ``key = value`` lines, ready for ``--set``, or as JSON."""
    from dataclasses import asdict

    from torchapl.paper.config import flat, to_dict
    from torchapl.paper.space import search_space

    experiment = chosen_experiment(args)
    space = search_space(experiment)
    if args.json:
        varied = [asdict(dimension) for dimension in space]
        print(json.dumps({**to_dict(experiment), "search_space": varied}, indent=2))
        return 0
    for key, value in flat(to_dict(experiment)).items():
        print(f"{key} = {value}")
    print("\n`torchapl tune` varies:")
    for dimension in space:
        print(f"  {dimension}")
    return 0
