"""Run as a program: coverage-guided fuzzing of everything that parses, with atheris.

    python tests/long/fuzz.py --inputs 1000000
    python tests/long/fuzz.py --inputs 50000 --target settings

Each target is given bytes and reads them as what its name says; it may refuse them only by the
errors that the program explains. What is accepted must also survive being written and read again,
where there is a way to. Prints a line for each target; anything else that is raised is kept in
``--findings``, one input for each place, and is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import atheris
from targets import TARGETS, written

# What is followed branch by branch; torch and others would only be slow.
FOLLOWED = ["torchapl.paper", "torchapl.runs", "torchapl.surgery.report"]
# It names every module that it instruments.
with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=FOLLOWED):
    for part in ("texts", "runs", "data"):
        importlib.import_module(f"targets.{part}")

# A file system in memory, where there is one.
MEMORY = Path("/dev/shm")


def fuzz(name: str, runs: int, findings: Path, kept: Path | None) -> None:
    """Fuzz one target; ends the process."""
    chosen = TARGETS[name]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.exists() else None) as place:
        folder, corpus, made = (Path(place, part) for part in ("work", "corpus", "seeds"))
        if kept:
            corpus = kept / name
        for part in (folder, corpus, made):
            part.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(chosen.seeds(made)):
            written(corpus, str(number), seed)
        known: set[str] = set()

        def read(content: bytes) -> None:
            try:
                chosen.read(content, folder)
            except chosen.refusals:
                pass
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                found = f"{name}-{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"
                if found not in known:
                    known.add(found)
                    written(findings, found, content)

        options = [f"-runs={runs}", "-max_len=4096", "-timeout=60", "-rss_limit_mb=4000"]
        options += [f"-artifact_prefix={findings}/{name}-", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], read)
        atheris.Fuzz()


def forked(name: str, runs: int, findings: Path, kept: Path | None) -> tuple[int, str]:
    """Fuzz one target in a child process, which the fuzzer ends; return its code and report."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 2)
            try:
                fuzz(name, runs, findings, kept)
            finally:
                traceback.print_exc()
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        return code, file.read().decode(errors="replace")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="over all targets")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument(
        "--corpus", type=Path, help="go on from inputs that are kept here, and keep new ones"
    )
    args = parser.parse_args(arguments)
    args.findings.mkdir(parents=True, exist_ok=True)
    names = [args.target] if args.target else list(TARGETS)
    whole = sum(TARGETS[name].share for name in names)
    faults = 0
    print("| target | inputs | branches reached | found |\n|---|---|---|---|", flush=True)
    for name in names:
        runs = max(1, args.inputs * TARGETS[name].share // whole)
        code, report = forked(name, runs, args.findings, args.corpus)
        executed = re.search(r"number_of_executed_units: (\d+)", report)
        covered = re.findall(r"cov: (\d+)", report)
        found = sorted(args.findings.glob(f"{name}-*"))
        if executed is None or (code and not found):
            print(report[-2000:], file=sys.stderr)
        counts = f"{executed[1] if executed else 0} | {covered[-1] if covered else '?'}"
        print(f"| {name} | {counts} | {len(found)} |", flush=True)
        for path in found:
            print(f"  {path}", file=sys.stderr)
        faults += len(found) + (executed is None)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
