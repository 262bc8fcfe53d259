"""How a disturbed run ended, and the table of it."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "paper" / "train"))

import toy

from torchapl.paper.data.files import DataError
from torchapl.runs.atomic import WriteError
from torchapl.runs.records import DamagedError

# What the program may answer to a fault; anything else would be a traceback.
REFUSALS = (DamagedError, DataError, WriteError, ValueError, OSError)
Table = Counter[tuple[str, str]]


def outcome_of(whole: Path, folder: Path, told: list[str]) -> str:
    """Compare two finished runs to the bit."""
    try:
        toy.assert_identical(whole, folder)
    except AssertionError:
        if any("curves" in text and "lost" in text for text in told):
            return "goes on, told"
        return "SILENT DIFFERENCE"
    return "identical, told" if told else "identical"


def answer_of(work: Callable[[], str | None], name: str) -> tuple[str | None, list[str]]:
    """Do work; return its answer, or how it was refused, and the warnings.

    Args:
        work: Returns an outcome.
        name: What a refusal must mention: the folder of the file.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            answer = work()
        except REFUSALS as error:
            answer = "refused" if name in str(error) else f"UNCLEAR: {error!r}"
        except Exception as error:
            answer = f"TRACEBACK: {type(error).__name__}"
    return answer, [str(warning.message) for warning in told]


def print_table(table: Table) -> None:
    outcomes = sorted({outcome for _, outcome in table})
    kinds = sorted({kind for kind, _ in table})
    print("| kind | " + " | ".join(outcomes) + " |")
    print("|---" * (len(outcomes) + 1) + "|")
    for kind in kinds:
        counts = " | ".join(str(table[kind, outcome] or "") for outcome in outcomes)
        print(f"| {kind} | {counts} |")


def is_fault(outcome: str) -> bool:
    return outcome.split(":")[0].isupper()
