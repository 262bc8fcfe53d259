"""Run as a program: change the code in small ways, and see that its own tests notice.

    python tests/long/mutation.py
    python tests/long/mutation.py --file paper/metrics.py

mutmut changes one operator, number or call at a time, in a copy of the tree, and runs the tests
that reach it. Prints a line for each file, and each change that no test noticed; less than nine of
ten noticed in any file is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAST = 0.9
# The tests of every file, the fast files first.
TESTS = {
    "paper/sweep/statistics.py": ["paper/test_sweep.py", "paper/test_results.py"],
    "paper/metrics.py": ["paper/test_metrics.py"],
    "segments.py": ["test_segments.py"],
    "functional.py": ["test_functional.py"],
    "form.py": ["test_init.py", "curves/test_build.py"],
    "init.py": ["test_init.py"],
    "modules.py": ["test_modules.py"],
    "reference.py": ["test_functional.py", "test_without_kernels.py", "test_autograd.py"],
    "ops/arguments.py": ["test_ops.py"],
    "ops/geometry.py": ["test_geometry.py"],
    "ops/layout.py": ["test_ops.py"],
    "ops/autograd.py": ["test_autograd.py"],
    "curves/kinks.py": ["curves/test_build.py", "curves/test_read.py"],
    "curves/read.py": ["curves/test_read.py"],
    "curves/build.py": ["curves/test_build.py"],
    "curves/squares.py": ["curves/test_fit.py"],
    "curves/tube.py": ["curves/test_fit.py"],
    "curves/fit.py": ["curves/test_fit.py"],
    "curves/reduce.py": ["curves/test_simplify.py"],
    "curves/simplify.py": ["curves/test_simplify.py"],
    "curves/counting.py": ["curves/test_counting.py"],
    "curves/maxout.py": ["curves/test_conversions.py"],
    "curves/splines.py": ["curves/test_conversions.py"],
    "curves/networks.py": ["curves/test_conversions.py"],
}
SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/torchapl/{file}"]
pytest_add_cli_args = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not exhaustive"]
pytest_add_cli_args_test_selection = [{tests}]
timeout_constant = 300.0
use_git_change_detection = false
"""
# What mutmut says of a change that did not pass; a run that never ends was noticed too.
NOTICED = ("killed", "timeout", "caught by type check")


def mutate(file: str, tests: list[str]) -> tuple[Counter[str], list[str]]:
    """Return how the changes of a file ended, and those that nobody noticed."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for folder in ("src", "tests"):
            shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
        selected = ", ".join(f'"tests/{test}"' for test in tests)
        settings = (ROOT / "pyproject.toml").read_text()
        settings += SETTINGS.format(file=file, tests=selected)
        (copy / "pyproject.toml").write_text(settings)
        environment = os.environ | {"PYTHONPATH": f"{copy}/mutants/src", "OMP_NUM_THREADS": "1"}
        mutmut = [sys.executable, "-m", "mutmut"]
        done = subprocess.run(
            [*mutmut, "run", "--max-children", "1"],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
        )
        listed = subprocess.run(
            [*mutmut, "results", "--all", "true"],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
        ).stdout
        found = re.findall(r"^\s+(\S+): (.+)$", listed, flags=re.MULTILINE)
        if not found:
            print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
        unnoticed = [key for key, outcome in found if outcome not in NOTICED]
        shown = [
            subprocess.run(
                [*mutmut, "show", key], cwd=copy, env=environment, capture_output=True, text=True
            ).stdout
            for key in unnoticed
        ]
        return Counter(outcome for _, outcome in found), shown


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", action="append", choices=TESTS, help="only this one; repeatable")
    args = parser.parse_args(arguments)
    short = False
    print("| file | changes | noticed | share |\n|---|---|---|---|", flush=True)
    for file in args.file or TESTS:
        counts, unnoticed = mutate(file, TESTS[file])
        noticed = sum(counts[outcome] for outcome in NOTICED)
        share = noticed / counts.total() if counts else 0.0
        print(f"| {file} | {counts.total()} | {noticed} | {share:.0%} |", flush=True)
        for change in unnoticed:
            print(change, file=sys.stderr)
        short |= share < LEAST
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
