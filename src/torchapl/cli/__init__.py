"""The command ``torchapl``: one file per sub-command."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from torchapl import __version__

# Each names a module of this package with add_parser(subparsers); heavy imports belong in run().
COMMANDS = ("bench", "compare", "data", "list", "report", "reproduce", "show", "train", "tune")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="torchapl",
        description="Learned activation functions, and the paper that proposed them.",
    )
    parser.add_argument("--version", action="version", version=f"torchapl {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"torchapl.cli.{name}").add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit code."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        with _unwinding_on_signals(), warnings.catch_warnings():
            # A user reads warnings as lines, not as source positions.
            warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
            if getattr(args, "load", None):
                from torchapl.paper.loading import load

                load(args.load)
            code = int(args.run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
        return 128 + signal.SIGINT
    # What the user can mend says so in one line; anything else shows where it happened.
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"error: {_described(error, args.command)}", file=sys.stderr)
        return 2


def _described(error: Exception, command: str) -> str:
    """Return the message of an error; of the file system's, also what was tried."""
    filename, reason = getattr(error, "filename", None), getattr(error, "strerror", None)
    if filename is None or reason is None:
        return str(error)
    return f"{command} needs {filename}, but the system says: {reason}"


@contextmanager
def _unwinding_on_signals() -> Iterator[None]:
    """Let SIGTERM and a closed terminal unwind as Ctrl-C does: children are told, partials removed.

    A handler that is there already (nohup ignores SIGHUP) stays; threads may not set any.
    """
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    if threading.current_thread() is not threading.main_thread():
        numbers = []

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
