"""Programs that make what the pages show run to their last line."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

from torchapl.ops.extension import has_kernels

ROOT = Path(__file__).parents[1]


def run(*command: str) -> str:
    program = [sys.executable, *command]
    return subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True).stdout


# Once: what a file registers has a name of its own.
@cache
def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
def test_times_of_writing_past_the_caches() -> None:
    output = run("benchmarks/past.py", "--rounds", "2", "--batch", "2", "--threads", "1")
    lines = [
        line for line in output.splitlines() if line.startswith(("| (128", "| CNN", "| point"))
    ]
    assert len(lines) == 6
    assert all(len(re.findall(r"\d\.\d\d", line)) == 3 for line in lines)


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
    output = run("benchmarks/studies/step.py", "--threads", "1", "--rounds", "2")
    assert output.splitlines()[-1].startswith("| 1 | ")


@pytest.mark.parametrize("more", [(), ("--affine",)])
def test_times_of_fused_curves(more: tuple[str, ...]) -> None:
    shape = ("--only", "6", "--hinges", "2", "--threads", "1", "--rounds", "1", "--best")
    output = run("benchmarks/fused.py", *shape, *more)
    assert output.splitlines()[-1].count("|") == 9


def test_more_learned_activations_are_compared(tmp_path: Path) -> None:
    # Not xIELU: seven layers that grow with the square of their inputs, without a normalisation.
    names = "mish,pwlu"
    command = ("-m", "torchapl.cli", "compare", "atlas-dnn-relu", "--scale", "smoke", "--markdown")
    more = ("--load", "benchmarks/learned_rivals.py", "--activations", names, "--seeds", "1")
    output = run(*command, *more, "--rates", "1", "--set", "epochs=4", "--runs", str(tmp_path))
    for title in ("Mish", "In the manner of PWLU"):
        assert re.search(rf"{title} +\|[^=]*0\.\d+", output), output


def test_a_parabola_meets_an_exponential() -> None:
    rivals = load(ROOT / "benchmarks" / "learned_rivals.py")
    inputs = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    outputs = rivals.XIELUnit()(inputs)
    left = 0.8 * (math.expm1(-2.0) + 2.0) + 0.5 * -2.0
    torch.testing.assert_close(outputs, torch.tensor([left, 0.0, 0.8 * 9.0 + 0.5 * 3.0]))
    outputs.sum().backward()
    assert inputs.grad[1] == pytest.approx(0.5)


def test_heights_take_over_where_relu_was() -> None:
    rivals = load(ROOT / "benchmarks" / "learned_rivals.py")
    unit = rivals.HeightsUnit(4, intervals=6, collect=2)
    inputs = 2 * torch.randn(64, 4, 5, generator=torch.manual_seed(0)) + 1
    assert torch.equal(unit(inputs), inputs.relu())
    unit(inputs)
    knots = (unit.low[:, None] + torch.arange(7) * unit.width[:, None]).T
    torch.testing.assert_close(unit(knots), knots.relu())
    # Three deviations on both sides of the mean.
    torch.testing.assert_close(knots[3], inputs.mean((0, 2)))
    torch.testing.assert_close(knots[6] - knots[3], 3 * inputs.std((0, 2), correction=0))
    # Beyond the last knot it goes on as between the last two: as x.
    torch.testing.assert_close(unit(knots[6:] + 1), knots[6:] + 1)


def test_ways_to_train_curves_are_compared(tmp_path: Path) -> None:
    program = ("benchmarks/curve_training.py", "--results", str(tmp_path / "runs.jsonl"))
    command = ("run", "atlas-dnn-apl-default", "--scale", "smoke", "--rates", "0.004,1e30")
    ways = ("--ways", "usual,pull,bends,placed-late", "--seeds", "2")
    # The larger rate diverges, and is not chosen.
    assert run(*program, *command, *ways).count("nan") == 8
    assert run(*program, *command, *ways) == ""
    table = run(*program, "table").splitlines()
    assert len(table) == 7
    assert all(re.search(r"\| 0\.\d{4} \(.*, 2 \|.* 0.004 \|", line) for line in table[2:6])
