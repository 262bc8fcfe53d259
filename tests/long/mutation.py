"""Run as a program: change the code in small ways, and see that its own tests notice.

    python tests/long/mutation.py
    python tests/long/mutation.py --file paper/metrics.py --sample 50

The changes are mutmut's: an operator, a number, an argument at a time. The tests of a file are
collected and run once, which tells the lines that each of them reaches; then each change is made
in a fork, where the tests that reach it run, the fastest first, until one fails. Prints a line for
each file with the share noticed and its 95 % interval, and each change that no test noticed; less
than nine of ten in any file is an error, exit code 1.

What was noticed is kept in ``--record`` and not tried again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import io
import json
import math
import os
import pickle
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest
import torch
from mutants import Mutant, functions_in, sample

ROOT = Path(__file__).parents[2]
LEAST = 0.9
# The tests of every file.
TESTS = {
    # Not those that start workers.
    "paper/sweep/statistics.py": [
        f"paper/test_sweep.py::test_{name}"
        for name in (
            "any_row_can_be_the_baseline",
            "paired_difference_by_hand",
            "a_significance_stands_beside_the_published_one",
            "every_cell_is_compared_with_relu_on_the_same_data",
            "failed_runs_are_counted_not_dropped",
            "one_run_has_no_spread_and_none_no_mean",
            "runs_with_relu_in_place_of_their_curves_have_numbers_of_their_own",
            "stored_results_make_the_same_table",
            "the_chosen_value_and_its_scores_are_part_of_the_result",
            "an_unknown_baseline_names_the_rows",
            "a_baseline_without_error_leaves_nothing_to_reduce",
        )
    ],
    "paper/metrics.py": ["paper/test_metrics.py"],
    "segments.py": ["test_segments.py"],
    "functional.py": ["test_functional.py", "test_modules.py", "test_ops.py"],
    "form.py": ["test_form.py", "test_init.py"],
    "init.py": ["test_init.py"],
    "modules.py": ["test_modules.py", "test_form.py", "curves/test_build.py"],
    "reference.py": ["test_ops.py", "test_functional.py"],
    "ops/arguments.py": ["test_ops.py", "test_functional.py"],
    "ops/geometry.py": ["test_geometry.py"],
    "ops/layout.py": ["test_geometry.py"],
    "ops/autograd.py": ["test_autograd.py", "test_ops.py"],
    "ops/vmap.py": ["test_autograd.py", "test_ops.py"],
    "curves/kinks.py": ["curves/test_kinks.py", "curves/test_build.py"],
    "curves/read.py": ["curves/test_read.py"],
    "curves/build.py": ["curves/test_build.py"],
    "curves/squares.py": ["curves/test_fit.py"],
    "curves/tube.py": ["curves/test_fit.py"],
    "curves/fit.py": ["curves/test_fit.py"],
    "curves/reduce.py": ["curves/test_simplify.py"],
    "curves/simplify.py": [
        "curves/test_simplify.py",
        "test_docs.py::test_docstrings[torchapl.curves.simplify]",
    ],
    "curves/counting.py": [
        "curves/test_counting.py",
        "test_docs.py::test_docstrings[torchapl.curves.counting]",
    ],
    "curves/layers.py": ["curves/test_conversions.py"],
    "curves/maxout.py": ["curves/test_conversions.py"],
    "curves/splines.py": ["curves/test_conversions.py"],
    "curves/networks.py": ["curves/test_conversions.py"],
}
# What is compiled hides these, so it is left out for them, as in test_without_kernels.py.
HIDDEN = {
    "ops/autograd.py": "torchapl.ops._autograd",
    "ops/vmap.py": "torchapl.ops._autograd",
}
# Compilers take minutes and fork.
SELECTED = ("-m", "not slow and not exhaustive", "-k", "not compile and not opcheck")
# Processor time of a fork, as a multiple of what its tests took unchanged, and more; a change that
# takes longer never ends.
PATIENCE, GRACE = 10, 30
# How a change may end; the other ways are "unnoticed" and "not reached" by any test.
NOTICED = ("noticed", "never ends")
# It was no change after all.
SAME = "same code"
# The lines that each test reaches, by its number, and how long it takes.
Reached = dict[int, tuple[set[int], float]]


class Session:
    """A plugin of pytest that runs its own rounds of the tests that pytest has collected.

    Args:
        path: Of the file that is changed.
        changes: To try.
        seconds: Of tests at most for each change.
        keep: Told how each change ended.
    """

    def __init__(
        self,
        path: Path,
        changes: list[Mutant],
        seconds: float,
        keep: Callable[[Mutant, str], None],
    ) -> None:
        self.path, self.changes, self.seconds, self.keep = path, changes, seconds, keep
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise RuntimeError("the tests could not be collected")
        functions = functions_in([self.path])
        # Forks share memory that the collector leaves alone.
        gc.collect()
        gc.freeze()
        reached: Reached = in_fork(lambda: self._reach(session.items))
        fastest = self._choose(reached, None)
        if not in_fork(lambda: self._pass(session.items, fastest), self._limit(reached, fastest)):
            raise RuntimeError("tests fail without any change")
        for change in self.changes:
            chosen = self._choose(reached, change.lines)

            def tried(change: Mutant = change, chosen: list[int] = chosen) -> str:
                if not change.apply(functions):
                    return SAME
                return "unnoticed" if self._pass(session.items, chosen) else "noticed"

            limit = self._limit(reached, chosen)
            outcome = in_fork(tried, limit) if chosen else "not reached"
            self.keep(change, outcome or "never ends")
        return True

    def _choose(self, reached: Reached, lines: range | None) -> list[int]:
        """Return the tests that reach some lines, the fastest first, as far as time allows."""
        chosen, left = [], self.seconds
        for item in sorted(reached, key=lambda item: reached[item][1]):
            reaches, took = reached[item]
            if (lines is None or not reaches.isdisjoint(lines)) and took <= left:
                chosen.append(item)
                left -= took
        return chosen

    def _limit(self, reached: Reached, chosen: list[int]) -> int:
        return int(GRACE + PATIENCE * sum(reached[item][1] for item in chosen))

    def _pass(self, items: list[pytest.Item], chosen: Iterable[int]) -> bool:
        for item in (items[number] for number in chosen):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if self._failed:
                return False
        return True

    def _reach(self, items: list[pytest.Item]) -> Reached:
        found: Reached = {}
        name = str(self.path)
        for number, item in enumerate(items):
            lines: set[int] = set()

            def follow(frame: FrameType, event: str, argument: Any) -> Any:
                if frame.f_code.co_filename != name:
                    return None
                lines.add(frame.f_lineno)  # noqa: B023
                return follow

            begun = time.process_time()
            sys.settrace(follow)
            passed = self._pass(items, [number])
            sys.settrace(None)
            if passed:
                found[number] = (lines, time.process_time() - begun)
            else:
                print(f"fails without any change: {item.nodeid}", file=sys.stderr)
                self._failed = False
        return found


def in_fork(work: Callable[[], Any], limit: int | None = None) -> Any:
    """Return what work returns in a child process, or None where a signal ends it.

    Args:
        work: Returns something else than None.
        limit: Of its processor time, in seconds; for work that is not to write anything.
    """
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            code = 1
            try:
                if limit is not None:
                    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                    nothing = os.open(os.devnull, os.O_RDWR)
                    for descriptor in (0, 1, 2):
                        os.dup2(nothing, descriptor)
                pickle.dump(work(), file)
                file.flush()
                code = 0
            except BaseException:
                file.write(traceback.format_exc().encode())
                file.flush()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        if code > 0:
            raise RuntimeError(file.read().decode())
        return None if code else pickle.load(file)


def try_changes(
    path: Path,
    tests: list[str],
    changes: list[Mutant],
    seconds: float,
    keep: Callable[[Mutant, str], None],
) -> None:
    options = ["-p", "no:cacheprovider", "--capture=no", "--assert=plain", *SELECTED]
    paths = [str(ROOT / "tests" / test) for test in tests]
    with contextlib.redirect_stdout(io.StringIO()) as told:
        code = pytest.main([*options, *paths], [Session(path, changes, seconds, keep)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest ended with {code!r}:\n{told.getvalue()}")


def interval(noticed: int, tried: int, everything: bool) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, which is known where everything was tried."""
    share = noticed / tried
    if everything:
        return share, share
    z = 1.96
    centre = (share + z**2 / (2 * tried)) / (1 + z**2 / tried)
    spread = math.sqrt(share * (1 - share) / tried + z**2 / (4 * tried**2)) * z / (1 + z**2 / tried)
    return centre - spread, centre + spread


def measure(file: str, args: argparse.Namespace) -> bool:
    """Print the line of a file and what nobody noticed; say whether enough was."""
    path = ROOT / "src" / "torchapl" / file
    changes, whole = sample(path, args.sample, args.seed)
    keys = {
        change: hashlib.sha256(f"{file} {change.source}".encode()).hexdigest() for change in changes
    }
    record: dict[str, str] = {}
    if args.record.exists():
        record = dict(json.loads(line) for line in args.record.read_text().splitlines())
    outcomes = {change: record.get(keys[change], "") for change in changes}

    def keep(change: Mutant, outcome: str) -> None:
        outcomes[change] = outcome
        with args.record.open("a") as lines:
            lines.write(json.dumps([keys[change], outcome]) + "\n")

    untried = [change for change in changes if outcomes[change] not in (*NOTICED, SAME)]
    if file in HIDDEN:
        sys.modules[HIDDEN[file]] = None  # type: ignore[assignment]
    if untried:
        try_changes(path, TESTS[file], untried, args.seconds, keep)
    counts = Counter(outcomes.values())
    tried = counts.total() - counts[SAME]
    noticed = sum(counts[outcome] for outcome in NOTICED)
    low, high = interval(noticed, tried, len(changes) == whole)
    share = f"{noticed / tried:.1%} ({low:.1%} to {high:.1%})"
    print(f"| {file} | {whole} | {tried} | {noticed} | {share} |", flush=True)
    for change, outcome in outcomes.items():
        if outcome not in (*NOTICED, SAME):
            print(f"{file}, change {change.number}, {outcome}:\n{change}\n", file=sys.stderr)
    return noticed >= LEAST * tried


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", action="append", choices=TESTS, help="only this one; repeatable")
    parser.add_argument("--sample", type=int, default=10**6, help="so many changes of each file")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each change")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--record", type=Path, default=Path("mutation.jsonl"))
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # A failure need not become simple first.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation", derandomize=True, database=None, deadline=None, phases=phases
    )
    hypothesis.settings.load_profile("mutation")
    print("| file | changes | tried | noticed | share |\n|---|---|---|---|---|", flush=True)
    # A fork for each, since pytest keeps what it has imported.
    enough = [in_fork(partial(measure, file, args)) for file in args.file or TESTS]
    return 0 if all(enough) else 1


if __name__ == "__main__":
    sys.exit(main())
