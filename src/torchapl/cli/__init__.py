"""The command ``torchapl``: one file per sub-command."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence

# Each names a module of this package with add_parser(subparsers); heavy imports belong in run().
COMMANDS = ("bench", "data", "list", "report", "reproduce", "show", "train", "tune")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="torchapl",
        description="Learned activation functions, and the paper that proposed them.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"torchapl.cli.{name}").add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit code."""
    args = build_parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            # A user reads warnings as lines, not as source positions.
            warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
            code = int(args.run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    # What the user can mend says so in one line; anything else shows where it happened.
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
