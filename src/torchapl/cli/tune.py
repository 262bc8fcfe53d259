"""``torchapl tune``: Bayesian search for the settings of an experiment."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from torchapl.cli.train import add_experiment_arguments, chosen_experiment

EXAMPLES = """examples:
  torchapl tune atlas-dnn-apl --scale lab --trials 30
  torchapl tune higgs-dnn-relu --trials 100 --storage postgresql+psycopg://user@host/db
  torchapl tune atlas-dnn-relu --scale smoke --trials 5 --json

Repeat the command to go on with a search, run it several times at once to share the work. The
best settings are printed as --set arguments for `torchapl train`. Trials are judged by held-out
training rows, never by the test set.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "tune",
        help="search for good settings",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_experiment_arguments(parser)
    parser.add_argument("--trials", type=int, default=20, help="trials in all (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="of every trial's run")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    parser.add_argument("--storage", help="URL of an Optuna storage (default: SQLite in --runs)")
    parser.add_argument("--data", type=Path, help="folder with the data sets' files")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")
    parser.add_argument("--json", action="store_true", help="the best settings as JSON on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search, then print the best settings."""
    from torchapl.paper.train import InterruptedRunError
    from torchapl.paper.tune import best_settings, open_study, sqlite_url, tune
    from torchapl.runs.atomic import write_atomic

    if args.trials < 1:
        raise ValueError(f"--trials must be at least 1, got {args.trials}")
    experiment = chosen_experiment(args)
    changes = "".join(f"+{text}" for text in sorted(args.overrides))
    name = f"{experiment.name}{changes}/{args.scale}"
    folder = args.runs / "tune" / name
    folder.mkdir(parents=True, exist_ok=True)
    study = open_study(name, args.storage or sqlite_url(folder / "study.db"))
    study_size = len(study.trials)
    print(f"{name}: {study_size} trials so far, {args.trials} wanted", file=sys.stderr)
    try:
        tune(
            experiment,
            study,
            args.trials,
            folder,
            device=args.device,
            data_root=args.data,
            seed=args.seed,
        )
    except InterruptedRunError as error:
        print(error, file=sys.stderr)
        return 128 + error.signum
    settings = best_settings(study)
    write_atomic(folder / "best.json", (json.dumps(settings, indent=2) + "\n").encode())
    if args.json:
        print(json.dumps({"value": study.best_value, "settings": settings}, indent=2))
    else:
        print(f"best of {len(study.trials)} trials: {study.best_value:.4f}")
        print(" ".join(f"--set {text}" for text in settings))
    return 0
