from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from torchapl.bench import op, peers, record
from torchapl.bench.memory import peak_bytes, saved_bytes
from torchapl.cli import main
from torchapl.ops import extension
from torchapl.ops.extension import has_kernels

TINY = ["--shape", "4,6,5,5", "--threads", "1", "--rounds", "2", "--hinges", "1", "2", "--quick"]


@pytest.fixture(autouse=True)
def _threads() -> object:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_stderr_has_no_noise_of_the_profiler() -> None:
    command = [sys.executable, "-m", "torchapl.cli", "bench", "op", "--mode", "inference", *TINY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [
        "values and gradients checked for 2 settings",
        "[1/2]",
        "[2/2]",
    ]


def test_prints_ratios_and_writes_csv_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, picture = tmp_path / "op.csv", tmp_path / "op.png"
    assert main(["bench", "op", *TINY, "--csv", str(table), "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "(4, 6, 5, 5) per channel, forward + backward, 1 thread" in printed
    assert "(4, 6, 5, 5) per unit, forward, 1 thread" in printed
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row.ratio.low <= row.ratio.high for row in record.read_csv(table)] == [True] * len(rows)
    assert record.read_csv(table)[0].setting == op.Setting((4, 6, 5, 5), "channel", True, 1)
    assert record.read_csv(table, allocator="default") == []
    assert record.read_csv(table, dtype="float32", layout="contiguous") == record.read_csv(table)
    # Two sharings, with and without backward; relu, silu, gelu, prelu and two APL each, and two
    # fused ones without backward.
    assert len(rows) == 4 * 6 + 2 * 2
    assert [row["mode"] for row in rows if row["candidate"] == "apl fused"] == ["inference"] * 4
    assert {float(row["ratio_median"]) for row in rows if row["candidate"] == "relu"} == {1.0}
    assert all(row["torch"] == torch.__version__ for row in rows)
    assert picture.stat().st_size > 1000


@pytest.mark.skipif(not has_kernels(), reason="holds the compiled kernels to instructions")
def test_other_dtypes_layouts_and_instructions(tmp_path: Path) -> None:
    table = tmp_path / "op.csv"
    options = ("--dtype", "bfloat16", "--channels-last", "--capability", "baseline")
    command = [sys.executable, "-m", "torchapl.cli", "bench", "op", "--csv", str(table)]
    done = subprocess.run([*command, *TINY, *options], capture_output=True, text=True, check=True)
    assert "per unit, forward, 1 thread, bfloat16, channels last" in done.stdout
    rows = record.read_csv(table, implementation="C++ (baseline)")
    assert rows[0].setting == op.Setting(
        (4, 6, 5, 5), "channel", True, 1, "bfloat16", channels_last=True
    )


def test_instructions_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # So that it is as before afterwards, whatever it is set to.
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "")
    # Torch has chosen its own in this process.
    other = "baseline" if torch.backends.cpu.get_cpu_capability() != "DEFAULT" else "AVX2"
    before = extension.backends()["cpu"]
    assert main(["bench", "op", *TINY, "--capability", other]) == 2
    assert other in capsys.readouterr().err
    assert extension.backends()["cpu"] == before


def test_wrong_values_are_not_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = op.apl
    monkeypatch.setattr(op, "apl", lambda *args, **kwargs: right(*args, **kwargs) * 1.001)
    assert main(["bench", "op", *TINY]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing was timed: output is wrong by" in captured.err


def test_wrong_values_of_fused_curves_are_not_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = op.fuse
    monkeypatch.setattr(op, "fuse", lambda unit: lambda x: right(unit)(x) * 1.001)
    assert main(["bench", "op", "--mode", "inference", *TINY]) == 1
    assert "output of fused curves is wrong by" in capsys.readouterr().err


def test_refuses_a_bad_shape(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "op", "--shape", "12,x"])
    assert "a shape looks like 128,96,32,32, got '12,x'" in capsys.readouterr().err


def test_backward_keeps_the_input_and_holds_two_maps() -> None:
    setting = op.Setting((64, 16, 32, 32), "channel", training=True, threads=1)
    rows = {row.candidate: row for row in op.measure(setting, [5], slow=False, rounds=2)}
    bytes_of_map = 4 * 64 * 16 * 32 * 32
    small = 10_000
    assert rows["apl"].saved_bytes < bytes_of_map + small
    assert rows["apl"].peak_bytes < 2 * bytes_of_map + small
    assert rows["relu"].peak_bytes >= 2 * bytes_of_map


def test_parts_of_a_run_add_up_in_one_file(tmp_path: Path) -> None:
    table = tmp_path / "op.csv"
    for mode in ("training", "inference"):
        assert main(["bench", "op", *TINY, "--mode", mode, "--csv", str(table)]) == 0
    assert {row.setting.training for row in record.read_csv(table)} == {True, False}


def test_peers_are_timed_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class APLU(torch.nn.Module):
        def __init__(self, n_hinges: int) -> None:
            super().__init__()
            self.a = torch.nn.Parameter(torch.zeros(n_hinges))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() * self.a.sum()

    for absent in ("deepsplines.ds_modules", "rational.torch"):
        monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.setitem(sys.modules, "torch_activation", SimpleNamespace(APLU=APLU))
    with pytest.warns(UserWarning, match="is left out") as warned:
        found = list(peers.peer_modules((4, 6, 5, 5), [1, 5]))
    assert [(name, size) for name, size, _ in found] == [
        ("torch-activation APLU", 1),
        ("torch-activation APLU", 5),
    ]
    assert len(warned) == 2


def test_saved_bytes_counts_each_storage_once() -> None:
    x = torch.randn(10, requires_grad=True)
    assert saved_bytes(lambda: x * x) == 40
    assert peak_bytes(lambda: x.detach().exp()) == 40


@pytest.mark.slow
def test_steps_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchapl.bench import step

    row = step.measure_step("Higgs DNN", 1, rounds=2)
    assert row.apl_to_silu.median == pytest.approx(row.apl.median / row.silu.median, rel=0.5)
    assert row.relu_loop.median > 0
    assert all(map(math.isfinite, row.curves))


def test_what_curves_add_is_compared_round_by_round() -> None:
    from torchapl.bench.step import Parts, _more

    # The machine takes twice as long in the second round and three times in the third.
    apl = [(0.0, Parts(3e-6 * slow, 5e-6 * slow, 9e-6 * slow)) for slow in (1, 2, 3)]
    silu = [(0.0, Parts(1e-6 * slow, 2e-6 * slow, 3e-6 * slow)) for slow in (1, 2, 3)]
    assert _more(apl, silu) == pytest.approx((4.0, 6.0, 12.0))


@pytest.mark.parametrize("name", ["--hinges", "--threads", "--rounds"])
def test_refuses_numbers_that_measure_nothing(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "op", "--shape", "2,3", name, "0"]) == 2
    assert f"{name} must be at least" in capsys.readouterr().err
