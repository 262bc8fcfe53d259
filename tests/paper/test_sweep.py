from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from torchapl.cli import main
from torchapl.paper.config import Experiment, override, to_dict
from torchapl.paper.experiments import TABLES, get
from torchapl.paper.sweep import Job, Sweep, reproduce
from torchapl.paper.sweep.jobs import (
    Choice,
    read_results,
    wanted_experiments,
    write_results,
)
from torchapl.paper.sweep.local import Done, LocalPool, command
from torchapl.paper.sweep.selection import selected_tables
from torchapl.paper.sweep.statistics import baseline_of, paired_difference, summarise
from torchapl.runs.folder import RunConfig, RunResult, locked, write_config, write_result

# Learning rates among which lab runs choose, ascending; the first one is the recipe's own.
DEFAULT, SLOW, FAST = Sweep("lab", seeds=1).stages("cifar10-cnn-relu")[0]


class FakePool:
    """Writes invented results: the validation error says which candidate is best."""

    def __init__(self, root: Path, best: Sequence[str] = (), broken: Sequence[Job] = ()) -> None:
        self.root, self.best, self.broken = root, best, broken
        self.ran: list[Job] = []

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        for job in jobs:
            self.ran.append(job)
            if job in self.broken:
                done(job, "killed")
                continue
            bonus = sum(text in job.overrides for text in self.best)
            # The recipe's own rate changes nothing, so no override names it.
            if DEFAULT in self.best and not any("optim.lr" in text for text in job.overrides):
                bonus += 1
            numbers = {"test_error": 20.0 - bonus + 0.1 * job.seed, "valid_error": 30.0 - bonus}
            status = "failed" if FAST in job.overrides else "finished"
            result = RunResult(job.experiment, job.scale, job.seed, status, numbers, job.overrides)
            job.folder(self.root).mkdir(parents=True)
            write_result(job.folder(self.root), result)
            done(job, None)


def quietly(jobs: Sequence[Job]) -> Done:
    return lambda job, error: None


def run_all(tmp_path: Path, pool: FakePool, only: str, scale: str = "lab") -> dict[Job, str]:
    return reproduce(
        selected_tables(["table1"], [only]),
        Sweep(scale, seeds=3, selection_seeds=2),
        tmp_path,
        pool,
        progress=quietly,
    )


def test_choices_come_first_and_only_from_validation_rows(tmp_path: Path) -> None:
    pool = FakePool(tmp_path, best=(SLOW, "activation=leaky:0.2"))
    assert run_all(tmp_path, pool, "cifar10-cnn-leaky") == {}
    # Three learning rates, then eight slopes, one of which is the default and known by then, two
    # seeds each, then three runs on all rows.
    assert len(pool.ran) == 3 * 2 + 7 * 2 + 3
    for job in pool.ran[:-3]:
        assert "data.validation=5000" in job.overrides
    for job in pool.ran[6:]:
        assert SLOW in job.overrides
    assert [job.seed for job in pool.ran[-3:]] == [0, 1, 2]
    for job in pool.ran[-3:]:
        assert job.overrides == ("activation=leaky:0.2", SLOW)
        assert job.settings().data.validation == 0


def test_cifar10_decides_the_rates_of_other_columns_and_hinges(tmp_path: Path) -> None:
    sweep = Sweep("lab", seeds=1)
    for name, chooser in {
        "cifar100-aug-maxout": "cifar10-maxout",
        "cifar100-cnn-leaky": "cifar10-cnn-leaky",
        "cifar10-cnn-apl-s10": "cifar10-cnn-apl",
        "cifar10-cnn-apl-s1-frozen": "cifar10-cnn-apl-s1-frozen",
        "atlas-dnn-relu": "atlas-dnn-relu",
    }.items():
        assert {job.experiment for job in sweep.next_jobs(name, {})} == {chooser}
    # What else there is to choose is a matter of the column itself.
    pool = FakePool(tmp_path, best=(SLOW, "activation=leaky:0.2"))
    run_all(tmp_path, pool, "cifar100-cnn-leaky")
    assert {job.experiment for job in pool.ran[:6]} == {"cifar10-cnn-leaky"}
    assert {job.experiment for job in pool.ran[6:]} == {"cifar100-cnn-leaky"}
    assert pool.ran[-1].overrides == ("activation=leaky:0.2", SLOW)


def test_the_chosen_value_and_its_scores_are_part_of_the_result(tmp_path: Path) -> None:
    pool = FakePool(tmp_path, best=(SLOW, "activation=leaky:0.2"))
    run_all(tmp_path, pool, "cifar10-cnn-leaky")
    sweep = Sweep("lab", seeds=3, selection_seeds=2)
    summary = summarise(TABLES["table1"], sweep, read_results(tmp_path))["CNN + Leaky ReLU"][
        "cifar10"
    ]
    rate, slope = summary.choices
    assert rate.winner == SLOW
    # A candidate that diverged can not win.
    assert math.isinf(rate.scores[rate.candidates.index(FAST)])
    assert slope.winner == "activation=leaky:0.2"
    assert summary.n == 3
    assert summary.mean == pytest.approx(18.1)
    assert summary.std == pytest.approx(0.1)
    assert summary.published is not None
    assert summary.published.mean == 11.86


def test_without_selection_seeds_nothing_is_chosen() -> None:
    assert Sweep("lab", 1, selection_seeds=0).stages("cifar10-cnn-leaky") == []


def test_the_default_keeps_its_plain_name(tmp_path: Path) -> None:
    pool = FakePool(tmp_path, best=(DEFAULT,))
    run_all(tmp_path, pool, "cifar10-cnn-relu")
    assert pool.ran[-1] == Job("cifar10-cnn-relu", "lab", 2)


def test_what_is_done_is_not_repeated_and_more_seeds_add_to_it(tmp_path: Path) -> None:
    run_all(tmp_path, FakePool(tmp_path), "cifar10-cnn-relu")
    again = FakePool(tmp_path)
    run_all(tmp_path, again, "cifar10-cnn-relu")
    assert again.ran == []
    more = FakePool(tmp_path)
    reproduce(
        selected_tables(["table1"], ["cifar10-cnn-relu"]),
        Sweep("lab", seeds=5, selection_seeds=2),
        tmp_path,
        more,
        progress=quietly,
    )
    assert [job.seed for job in more.ran] == [3, 4]


def test_results_of_other_settings_do_not_count(tmp_path: Path) -> None:
    job = Job("cifar10-cnn-relu", "smoke", 0)
    run_all(tmp_path, FakePool(tmp_path), job.experiment, scale="smoke")
    folder = job.folder(tmp_path)
    write_config(folder, RunConfig(to_dict(job.settings()), "smoke", 0))
    stored = tmp_path / "smoke.jsonl"
    write_results(read_results(tmp_path), stored)
    assert job in read_results(stored)
    # As if the recipe had been another one when the run was made.
    other = to_dict(override(job.settings(), "epochs=7"))
    write_config(folder, RunConfig(other, "smoke", 0))
    with pytest.warns(UserWarning, match="1 of 3 results .* made with other settings"):
        assert job not in read_results(tmp_path)
    kept = read_results(stored)
    kept[job] = replace(kept[job], environment={"settings": "0" * 12})
    write_results(kept, stored)
    with pytest.warns(UserWarning, match="do not count"):
        assert job not in read_results(stored)


def test_a_broken_run_is_named_and_does_not_stop_the_others(tmp_path: Path) -> None:
    broken = Job("cifar10-cnn-relu", "smoke", 1)
    pool = FakePool(tmp_path, broken=[broken])
    assert run_all(tmp_path, pool, "cifar10-cnn-relu", scale="smoke") == {broken: "killed"}
    assert [job.seed for job in pool.ran] == [0, 1, 2]
    # The next call tries it again.
    assert run_all(tmp_path, FakePool(tmp_path), "cifar10-cnn-relu", scale="smoke") == {}


def test_failed_runs_are_counted_not_dropped(tmp_path: Path) -> None:
    for seed, status in enumerate(("finished", "failed", "finished")):
        numbers = {"test_error": 10.0 + seed} if status == "finished" else {}
        result = RunResult("cifar10-cnn-relu", "smoke", seed, status, numbers, error="NaN")  # type: ignore[arg-type]
        folder = Job("cifar10-cnn-relu", "smoke", seed).folder(tmp_path)
        folder.mkdir(parents=True)
        write_result(folder, result)
    table = summarise(TABLES["table3"], Sweep("smoke", 3), read_results(tmp_path))
    assert (table["ReLU"]["cifar10"].n, table["ReLU"]["cifar10"].failed) == (2, 1)


def test_table3_chooses_no_number_of_hinges() -> None:
    # Both tables have the experiment, and each its own runs of it where the chosen number differs.
    wanted = wanted_experiments(selected_tables(["table1", "table3"], ["cifar10-cnn-apl"]))
    assert list(wanted) == [("cifar10-cnn-apl", True), ("cifar10-cnn-apl", False)]
    sweep = Sweep("paper", 5)
    assert sweep.stages("cifar10-cnn-apl", choose=False) == []
    assert sweep.stages("cifar10-cnn-apl") == [get("cifar10-cnn-apl").choices]


def test_an_unmatched_pattern_is_an_error() -> None:
    with pytest.raises(ValueError, match="--only nothing matches no experiment of these tables"):
        selected_tables(["table3"], ["nothing"])


def test_stored_results_make_the_same_table(tmp_path: Path) -> None:
    run_all(tmp_path / "runs", FakePool(tmp_path / "runs"), "cifar10-cnn-*", scale="smoke")
    results = read_results(tmp_path / "runs")
    write_results(results, tmp_path / "stored" / "smoke.jsonl")
    sweep = Sweep("smoke", 3)
    stored = read_results(tmp_path / "stored" / "smoke.jsonl")
    assert summarise(TABLES["table1"], sweep, stored) == summarise(TABLES["table1"], sweep, results)


def test_any_row_can_be_the_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_all(tmp_path, FakePool(tmp_path), "cifar10-cnn-*", scale="smoke")
    stored = tmp_path / "smoke.jsonl"
    write_results(read_results(tmp_path), stored)
    command = ["reproduce", "table1", "--scale", "smoke", "--runs", str(stored), "--seeds", "3"]
    assert main([*command, "--baseline", "silu", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["table1"]
    cells = {cell["row"]: cell for cell in printed if cell["column"] == "cifar10"}
    assert cells["CNN + SiLU"]["difference"] is None
    assert cells["CNN + ReLU"]["difference"]["n"] == 3
    assert main([*command, "--baseline", "silu"]) == 0
    assert "to SiLU, 95 %" in capsys.readouterr().out


def test_paired_difference_by_hand() -> None:
    found = paired_difference({0: 8.0, 1: 9.0, 2: 7.0, 9: 1.0}, {0: 10.0, 1: 10.0, 2: 10.0})
    assert found is not None
    assert (found.n, found.mean) == (3, -2.0)
    # t(0.975, 2) = 4.30265; standard error 1 / sqrt(3).
    assert found.half_width == pytest.approx(4.30265 / 3**0.5, rel=1e-5)
    assert found.relative_reduction == pytest.approx(0.2)
    assert paired_difference({0: 1.0}, {0: 2.0}) is None
    auc = paired_difference({0: 0.81, 1: 0.81}, {0: 0.8, 1: 0.8}, higher_is_better=True)
    assert auc is not None
    assert auc.relative_reduction == pytest.approx(0.05)


def test_a_significance_stands_beside_the_published_one(tmp_path: Path) -> None:
    for name, value in (("higgs-dnn-relu", 3.0), ("higgs-dnn-apl", 3.5)):
        for seed in range(2):
            numbers = {"test_auc": 0.8, "test_significance_histogram": value}
            job = Job(name, "smoke", seed)
            job.folder(tmp_path).mkdir(parents=True)
            result = RunResult(name, "smoke", seed, "finished", numbers)
            write_result(job.folder(tmp_path), result)
    metric = "test_significance_histogram"
    table = summarise(TABLES["table2"], Sweep("smoke", 2), read_results(tmp_path), metric)
    summary = table["DNN + APL"]["higgs"]
    assert summary.published is not None
    assert (summary.mean, summary.published.mean) == (3.5, 3.41)
    assert summary.difference is not None
    assert summary.difference.mean == 0.5
    assert summary.difference.relative_reduction is None


def test_every_cell_has_a_baseline_that_exists() -> None:
    for table in TABLES.values():
        for experiment in table.experiments:
            assert get(baseline_of(experiment)).activation.kind == "relu"


def test_winner_is_the_first_of_equals() -> None:
    assert Choice(("a", "b"), (1.0, 1.0)).winner == "a"


def test_local_pool_names_what_went_wrong(tmp_path: Path) -> None:
    pool = LocalPool(tmp_path, None, "cpu", workers=2)
    told: dict[Job, str | None] = {}
    good = Job("atlas-dnn-relu", "smoke", 0)
    bad = Job("cifar10-cnn-relu", "smoke", 0, ("epochs=none",))
    pool.run([bad, good], lambda job, error: told.update({job: error}))
    assert told[good] is None
    assert "epochs must be a whole number" in str(told[bad])
    assert list(read_results(tmp_path)) == [good]
    assert command(good, tmp_path, Path("data"), "cpu")[-2:] == ["--data", "data"]


def test_local_pool_waits_for_a_run_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchapl.paper.sweep.local._RETRY_SECONDS", 0.0)
    job = Job("atlas-dnn-relu", "smoke", 0)
    told: list[str | None] = []
    with ExitStack() as held:
        held.enter_context(locked(job.folder(tmp_path)))

        class Pool(LocalPool):
            def _put_off(self, job: Job) -> None:
                super()._put_off(job)
                held.close()

        with pytest.warns(UserWarning, match="is in use by another process: waiting for it"):
            Pool(tmp_path, None, "cpu", workers=1).run([job], lambda _, error: told.append(error))
    assert told == [None]
    assert list(read_results(tmp_path)) == [job]


@pytest.mark.slow
def test_a_stopped_sweep_stops_its_runs(tmp_path: Path) -> None:
    arguments = ["reproduce", "table2", "--scale", "lab", "--only", "atlas-dnn-relu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "torchapl.cli", *arguments, "--runs", tmp_path, "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (begun := list(tmp_path.rglob("config.json"))) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "the same command goes on where the runs were" in errors
    assert "Traceback" not in errors
    # Nobody is at the run any more, and the next command may go on with it.
    with locked(begun[0].parent):
        pass


def test_dry_run_says_what_and_how_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "table3", "--runs", str(tmp_path), "--dry-run", "--device", "cpu"]
    assert main([*arguments, "--scale", "paper", "--seeds", "5"]) == 0
    printed = capsys.readouterr().out
    assert "cifar10-cnn-apl-s1-frozen" in printed
    assert "in all 30 runs, about" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_smoke_table_from_start_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, store = tmp_path / "runs", tmp_path / "smoke.jsonl"
    arguments = ["reproduce", "table3", "--scale", "smoke", "--seeds", "1", "--workers", "2"]
    assert main([*arguments, "--runs", str(runs), "--device", "cpu", "--store", str(store)]) == 0
    printed = capsys.readouterr().out
    assert "12.56 (0.26)" in printed
    assert main([*arguments, "--runs", str(store), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["table3"]
    assert [cell["n"] for cell in cells] == [1] * 6


def test_workers_spread_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    pool = LocalPool(tmp_path, None, "cuda", workers=3)
    jobs = [Job("atlas-dnn-relu", "smoke", seed) for seed in range(3)]
    given = []
    for job in jobs:
        given.append(pool._idle_gpu(job))
        pool.running[job] = None  # type: ignore[assignment]
    assert given == [0, 1, 0]


def test_a_run_of_ones_own_experiment_is_no_obstacle(tmp_path: Path) -> None:
    own = Job("mine", "paper", 0)
    own.folder(tmp_path).mkdir(parents=True)
    settings = to_dict(Experiment("mine", net="nin"))
    write_config(own.folder(tmp_path), RunConfig(settings, "paper", 0))
    result = RunResult("mine", "paper", 0, "finished", {"test_error": 3.0})
    write_result(own.folder(tmp_path), result)
    assert list(read_results(tmp_path)) == [own]
    write_results(read_results(tmp_path), tmp_path / "stored.jsonl")
    assert list(read_results(tmp_path / "stored.jsonl")) == [own]


@pytest.mark.parametrize("text", ["hello", '{"a": 1}', "[1]"])
def test_a_file_of_something_else_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "notes").write_text(text)
    assert main(["reproduce", "table3", "--runs", str(tmp_path / "notes")]) == 2
    assert "notes is not a file of stored results" in capsys.readouterr().err


def test_a_baseline_without_error_leaves_nothing_to_reduce() -> None:
    found = paired_difference({0: 1.0, 1: 3.0}, {0: 0.0, 1: 0.0})
    assert found is not None
    assert (found.mean, found.relative_reduction) == (2.0, None)
    perfect = paired_difference({0: 0.5, 1: 0.5}, {0: 1.0, 1: 1.0}, higher_is_better=True)
    assert perfect is not None
    assert perfect.relative_reduction is None
