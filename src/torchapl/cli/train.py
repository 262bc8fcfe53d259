"""``torchapl train``: one run, resumed by repeating the command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchapl.cli.progress import duration

if TYPE_CHECKING:
    from torchapl.paper.config import Experiment
    from torchapl.runs import RunResult

# Seconds after which a run is warned of.
_LONG = 86_400.0
SCALES_HELP = (
    "paper (as published, the default), study (the authors' recipe, narrower and shorter), "
    "lab (minutes) or smoke (seconds)"
)
EXAMPLES = """examples:
  torchapl train cifar10-cnn-apl --scale lab --data DIR
  torchapl train atlas-dnn-apl --scale lab --seed 3
  torchapl train cifar10-cnn-apl --scale smoke --set activation=apl:2:channel --set epochs=3
  torchrun --nproc-per-node 2 -m torchapl.cli train cifar10-cnn-apl

Interrupted in any way, a run goes on where it was when the command is repeated.
Exit codes: 0 finished, 1 failed (diverged), 2 wrong use or a file that
cannot be written, 75 another process is at this run, 130 Ctrl-C, 143 SIGTERM.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "train",
        help="train one network",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_experiment_arguments(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    parser.add_argument("--folder", type=Path, help="this run's own folder, instead of --runs")
    parser.add_argument("--data", type=Path, help="folder with the data sets' files")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default auto)")
    parser.add_argument(
        "--compile",
        choices=("none", "default", "graphs"),
        default="none",
        help="compile the network; graphs: with CUDA graphs",
    )
    parser.add_argument(
        "--checkpoint-seconds", type=float, default=60.0, help="time between checkpoints"
    )
    parser.add_argument("--tensorboard", action="store_true", help="also write TensorBoard files")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names an experiment: its name, its scale, changed settings."""
    parser.add_argument("experiment", metavar="EXPERIMENT", help="see `torchapl list`")
    add_load_argument(parser)
    parser.add_argument("--scale", default="paper", help=SCALES_HELP)
    add_set_argument(parser, "change a setting; see `torchapl show EXPERIMENT` for the keys")


def add_set_argument(parser: argparse.ArgumentParser, help: str) -> None:
    """Add what changes settings."""
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help=help
    )


def add_load_argument(parser: argparse.ArgumentParser) -> None:
    """Add what names files with registrations; they are loaded before the command runs."""
    parser.add_argument(
        "--load",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file that registers activations, networks, data sets or experiments",
    )


def chosen_experiment(args: argparse.Namespace) -> Experiment:
    """Return the experiment that the arguments name, with what it costs so."""
    from dataclasses import replace

    from torchapl.paper.config import override_all
    from torchapl.paper.experiments import estimate, get, scaled

    experiment = override_all(scaled(get(args.experiment), args.scale), args.overrides)
    return replace(experiment, cost=estimate(experiment))


def run(args: argparse.Namespace) -> int:
    """Train, print the result, and return the exit code."""
    from torchapl.paper.runs import run_folder
    from torchapl.paper.train import InterruptedRunError, RunLockedError, train
    from torchapl.paper.train.distributed import is_first_process
    from torchapl.paper.train.progress import Silent, on_stderr

    experiment = chosen_experiment(args)
    folder = args.folder or run_folder(
        args.runs, experiment.name, args.scale, args.seed, args.overrides
    )
    if not args.quiet and is_first_process() and not (folder / "result.json").exists():
        _announce(experiment, args.device)
    try:
        result = train(
            experiment,
            args.seed,
            folder,
            device=args.device,
            data_root=args.data,
            overrides=args.overrides,
            compile=args.compile,
            checkpoint_seconds=args.checkpoint_seconds,
            tensorboard=args.tensorboard,
            reporter=Silent() if args.quiet else on_stderr(),
        )
    except InterruptedRunError as error:
        print(error, file=sys.stderr)
        return 128 + error.signum
    except RunLockedError as error:
        print(f"error: {error}", file=sys.stderr)
        return os.EX_TEMPFAIL
    _print(result, folder, as_json=args.json)
    return 0 if result.status == "finished" else 1


def _announce(experiment: Experiment, device: str) -> None:
    """Say what is about to run, and warn of days."""
    import torch

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    where = "a GPU" if on_gpu else "one CPU core"
    what = f"{experiment.name} at {experiment.scale} scale, {experiment.epochs} epochs"
    if experiment.cost is None:
        print(what, file=sys.stderr)
        return
    seconds = experiment.cost.gpu if on_gpu else experiment.cost.cpu
    print(f"{what}, about {duration(seconds)} on {where}", file=sys.stderr)
    if seconds > _LONG:
        print(
            f"warning: this takes about {duration(seconds)}; --scale lab takes minutes. Stopped by "
            "Ctrl-C, the same command goes on where it was",
            file=sys.stderr,
        )


def _print(result: RunResult, folder: Path, *, as_json: bool) -> None:
    # Under torchrun all processes come here; the first one speaks.
    from torchapl.paper.train.distributed import is_first_process

    if not is_first_process():
        return
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    elif result.status == "failed":
        print(f"{result.experiment} seed {result.seed}: failed: {result.error}")
    else:
        numbers = ", ".join(
            f"{name.removeprefix('test_').replace('_', ' ')} {value:.4f}"
            for name, value in result.metrics.items()
            if name.startswith("test_")
        )
        print(
            f"{result.experiment} seed {result.seed}: {numbers} ({result.seconds:.0f} s) {folder}"
        )
