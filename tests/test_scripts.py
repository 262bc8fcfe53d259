"""Programs that make what the pages show run to their last line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchapl.ops.extension import has_kernels

ROOT = Path(__file__).parents[1]


def run(*command: str) -> str:
    program = [sys.executable, *command]
    return subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_the_picture_of_gains(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = run("docs/make_gains_figure.py", "--output", str(tmp_path / "gains.png"))
    assert (tmp_path / "gains.png").stat().st_size > 10_000
    lines = [line for line in output.splitlines() if line.startswith("CIFAR-100, CNN")]
    assert {line.split()[2] for line in lines} >= {"ReLU", "PReLU", "SiLU"}


@pytest.mark.skipif(not has_kernels(), reason="times the compiled kernels")
def test_times_of_the_kernels_alone() -> None:
    output = run("benchmarks/op_kernels.py", "2,3,8,8", "unit", "--hinges", "2", "--rounds", "2")
    assert "apl/silu" in output


@pytest.mark.skipif(not has_kernels(), reason="times the compiled kernels")
def test_tables_of_performance(tmp_path: Path) -> None:
    files = ("--csv", str(tmp_path / "op.csv"), "--plot", str(tmp_path / "op.png"))
    output = run("benchmarks/performance.py", "--shape", "4,6", "--rounds", "2", *files)
    tables = [line for line in output.splitlines() if line.endswith("S = 1 / 2 / 5 / 8 / 16:")]
    assert len(tables) >= 10
    # Five sizes, three of torch's own, and the eighth over SiLU.
    line = next(line for line in output.splitlines() if line.startswith("| (4, 6) | channel"))
    assert len(re.findall(r"\d\.\d\d", line)) == 9
    assert (tmp_path / "op.png").stat().st_size > 1000
    assert run("benchmarks/performance.py", "--tables", *files) == output


def test_times_of_a_step_of_the_gpt() -> None:
    output = run("benchmarks/text/step.py", "--threads", "1", "--rounds", "2")
    assert output.splitlines()[-1].startswith("| 1 | ")


@pytest.mark.parametrize("more", [(), ("--affine",)])
def test_times_of_fused_curves(more: tuple[str, ...]) -> None:
    shape = ("--only", "6", "--hinges", "2", "--threads", "1", "--rounds", "1", "--best")
    output = run("benchmarks/fused.py", *shape, *more)
    assert output.splitlines()[-1].count("|") == 9
