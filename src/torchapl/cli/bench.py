"""``torchapl bench``: speed as a ratio to torch's own activations."""

from __future__ import annotations

import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    subparsers.add_parser("bench", help="time the operator against torch's own activations")
