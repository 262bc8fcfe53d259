"""The long tests, short: see the programs of this folder."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(program), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_broken_runs_end_as_whole_ones_or_say_why_not() -> None:
    table = run("faults.py", "--kills", "10", "--damages", "40", "--disks", "4")
    assert "| kill, 2 processes |" in table
    assert "of a sweep |" in table
    assert "| full disk |" in table


def test_what_parses_refuses_in_words(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("fuzzing needs 'pip install atheris'")
    table = run("fuzz.py", "--inputs", "2000", "--findings", str(tmp_path / "findings"))
    assert "| settings |" in table


def test_random_calls_of_every_capability_obey_the_law() -> None:
    pytest.importorskip("torchapl.ops._C", reason="the package was built without its kernels")
    assert "| baseline |" in run("kernels.py", "--cases", "400")


def test_changes_of_a_function_are_put_in_place(tmp_path: Path) -> None:
    pytest.importorskip("mutmut", reason="mutation needs 'pip install mutmut'")
    path = tmp_path / "changed.py"
    path.write_text(
        "import functools\n\n"
        "@functools.cache\n"
        "def area(width, height=3):\n"
        "    return width * height + 1\n"
    )
    spec = importlib.util.spec_from_file_location("changed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mutants = importlib.import_module("mutants")
    functions = mutants.functions_in([path])
    changes, whole = mutants.sample(path, 100, seed=0)
    # Neither the default value nor the decorator.
    assert whole == len(changes) == 3
    areas = []
    for change in changes:
        assert change.apply(functions)
        assert change.lines == range(5, 6)
        module.area.cache_clear()
        areas.append(module.area(6))
    assert sorted(areas) == [6 / 3 + 1, 6 * 3 - 1, 6 * 3 + 2]
