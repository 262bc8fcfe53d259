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
        help="print an experiment: settings, provenance, published number, cost",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_experiment_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the experiment as ``key = value`` lines, ready for ``--set``, or as JSON."""
    from torchapl.paper.config import flat, to_dict

    experiment = chosen_experiment(args)
    if args.json:
        print(json.dumps(to_dict(experiment), indent=2))
        return 0
    for key, value in flat(to_dict(experiment)).items():
        print(f"{key} = {value}")
    return 0
