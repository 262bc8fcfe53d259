"""Run as a program: the kernel tests with address and undefined-behaviour sanitizers.

    python tests/long/sanitizers.py

Builds the package in a temporary folder with GCC's sanitizers and runs every test that calls a
kernel there, then random calls of every capability. Anything that a sanitizer finds stops the
process at hand, exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = (
    "test_kernels.py",
    "test_ops.py",
    "test_autograd.py",
    "test_functional.py",
    "test_fusion.py",
    "test_geometry.py",
    "test_segments.py",
)
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


def library(name: str) -> str:
    """Return the path of one of the compiler's libraries."""
    answer = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
    return answer.stdout.strip()


def build(copy: Path) -> None:
    """Build the package with sanitizers in a folder; what has not changed is not built again."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored, dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=ignored, dirs_exist_ok=True)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=copy,
        env=os.environ | {"CFLAGS": SANITIZE, "CXXFLAGS": SANITIZE, "LDFLAGS": SANITIZE},
        check=True,
    )
    built = sorted(path.name for path in (copy / "src/torchapl/ops").glob("*.so"))
    print(f"built with sanitizers: {', '.join(built)}", flush=True)


def check(copy: Path, tests: Sequence[str], cases: int) -> int:
    """Run tests and random calls with what was built; return an exit code."""
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "OMP_NUM_THREADS": "1",
        # The sanitizer must come before all other libraries, and C++'s own before torch's use.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so')}",
        # Python itself does not free everything at its end.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    # The sanitizer cannot be preloaded into the compilers that torch.compile starts.
    options = ["-q", "-p", "no:cacheprovider", "-k", "not compile"]
    commands = [
        ["-m", "pytest", *options, *(str(copy / "tests" / test) for test in tests)],
        [str(copy / "tests/long/kernels.py"), "--cases", str(cases)],
    ]
    codes = [
        subprocess.run([sys.executable, *command], cwd=copy, env=environment).returncode
        for command in commands
    ]
    return 1 if any(codes) else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="random calls of each capability")
    parser.add_argument("--test", action="append", choices=TESTS, help="only this; repeatable")
    parser.add_argument("--folder", type=Path, help="keep what is built here, for the next time")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        copy = args.folder or Path(name)
        build(copy)
        return check(copy, args.test or TESTS, args.cases)


if __name__ == "__main__":
    sys.exit(main())
