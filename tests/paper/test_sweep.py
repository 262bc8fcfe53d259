from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from torchapl.cli import main
from torchapl.paper.config import Experiment, fingerprint, override, to_dict
from torchapl.paper.experiments import TABLES, Cell, Table, get
from torchapl.paper.sweep import Job, Listener, Sweep, reproduce
from torchapl.paper.sweep.jobs import by_job, read_results, write_results
from torchapl.paper.sweep.local import LocalPool
from torchapl.paper.sweep.plan import Choice
from torchapl.paper.sweep.pool import Outcome, Pool, Workspace
from torchapl.paper.sweep.render import as_json, rows_of
from torchapl.paper.sweep.selection import selected_tables
from torchapl.paper.sweep.statistics import Summary, paired_difference, summarise
from torchapl.runs.folder import RunConfig, RunResult, locked, write_config, write_result

ROOT = Path(__file__).parents[2]


def cell_of(experiment: str, table: str = "table1") -> Cell:
    return next(cell for cell in TABLES[table].cells if cell.experiment == experiment)


def cells_of(tables: Sequence[Table]) -> list[Cell]:
    return [cell for table in tables for cell in table.cells]


def summary_of(found: Sequence[Summary], row: str, column: str = "cifar10") -> Summary:
    return next(summary for summary in found if (summary.row, summary.column) == (row, column))


# Learning rates among which lab runs choose, ascending; the first one is the recipe's own.
DEFAULT, SLOW, FAST = Sweep("lab", seeds=1).stages(cell_of("cifar10-cnn-relu"))[0].candidates


class FakePool(Pool):
    """Writes invented results: the validation error says which candidate is best."""

    def __init__(self, root: Path, best: Sequence[str] = (), broken: Sequence[Job] = ()) -> None:
        super().__init__(Workspace(root))
        self.root, self.best, self.broken = root, best, broken
        self.ran: list[Job] = []

    def run(self, jobs: Sequence[Job], listener: Listener) -> None:
        for job in jobs:
            self.ran.append(job)
            if job in self.broken:
                listener.done(job, "killed")
                continue
            bonus = sum(text in job.overrides for text in self.best)
            # The recipe's own rate changes nothing, so no override names it.
            if DEFAULT in self.best and not any("optim.lr" in text for text in job.overrides):
                bonus += 1
            numbers = {"test_error": 20.0 - bonus + 0.1 * job.seed, "valid_error": 30.0 - bonus}
            status = "failed" if FAST in job.overrides else "finished"
            result = RunResult(
                job.experiment, job.scale, job.seed, status, numbers, job.assignments
            )
            job.folder(self.root).mkdir(parents=True)
            write_result(job.folder(self.root), result)
            listener.done(job, None)


class Told:
    """Keeps what it is told."""

    def __init__(self, jobs: Sequence[Job] = ()) -> None:
        self.errors: dict[Job, str | None] = {}
        self.shares: list[float] = []

    def step(self, job: Job, share: float) -> None:
        self.shares.append(share)

    def done(self, job: Job, error: str | None) -> None:
        self.errors[job] = error

    def end(self) -> None: ...


def run_all(tmp_path: Path, pool: FakePool, only: str, scale: str = "lab") -> dict[Job, str]:
    return reproduce(
        cells_of(selected_tables(["table1"], [only])),
        Sweep(scale, seeds=3, selection_seeds=2),
        tmp_path,
        pool,
        stored={},
        progress=Told,
    )


def test_choices_come_first_and_only_from_validation_rows(tmp_path: Path) -> None:
    pool = FakePool(tmp_path, best=(SLOW, "activation=leaky:0.2"))
    assert run_all(tmp_path, pool, "cifar10-cnn-leaky") == {}
    # Three learning rates, then eight slopes, one of which is the default and known by then, two
    # seeds each, then three runs on all rows.
    assert len(pool.ran) == 3 * 2 + 7 * 2 + 3
    for job in pool.ran[:-3]:
        assert "data.validation=0.1" in job.assignments
    for job in pool.ran[6:]:
        assert SLOW in job.overrides
    assert [job.seed for job in pool.ran[-3:]] == [0, 1, 2]
    for job in pool.ran[-3:]:
        assert job.overrides == ("activation=leaky:0.2", SLOW)
        assert job.settings().data.validation == 0


def test_cifar10_decides_the_rates_of_other_columns_and_hinges(tmp_path: Path) -> None:
    sweep = Sweep("lab", seeds=1)
    for table, name, chooser in (
        ("table1", "cifar100-aug-maxout", "cifar10-maxout"),
        ("table1", "cifar100-cnn-leaky", "cifar10-cnn-leaky"),
        ("table3", "cifar10-cnn-apl-s10", "cifar10-cnn-apl"),
        ("table3", "cifar10-cnn-apl-s1-frozen", "cifar10-cnn-apl-s1-frozen"),
        ("table2", "atlas-dnn-relu", "atlas-dnn-relu"),
    ):
        jobs = sweep.next_jobs(cell_of(name, table), {})
        assert {job.experiment for job in jobs} == {chooser}
        assert all(job.selects for job in jobs)
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
    found = summarise(TABLES["table1"], sweep, read_results(tmp_path))
    summary = summary_of(found, "CNN + Leaky ReLU")
    rate, slope = summary.choices
    assert rate.winner == SLOW
    # A candidate that diverged can not win.
    assert math.isinf(rate.scores[rate.candidates.index(FAST)])
    assert slope.winner == "activation=leaky:0.2"
    assert summary.n == 3
    assert summary.mean == pytest.approx(18.1)
    assert summary.std == pytest.approx(0.1)
    assert summary.published == (11.86, 0.04)


def test_without_selection_seeds_nothing_is_chosen() -> None:
    assert Sweep("lab", 1, selection_seeds=0).stages(cell_of("cifar10-cnn-leaky")) == []


def test_settings_of_all_runs_are_theirs_and_no_others() -> None:
    cell = cell_of("cifar10-aug-fast-silu", "modern")
    changed = Sweep("lab", 1, overrides=("precision=float32", "epochs=10"))
    assert Sweep("lab", 1).next_jobs(cell, {})[0].settings().precision == "bfloat16"
    (job,) = changed.next_jobs(cell, {})
    # Ten epochs are what the recipe has.
    assert job.overrides == ("precision=float32",)
    assert job.settings().precision == "float32"


def test_the_command_changes_settings_of_all_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "modern", "--scale", "lab", "--runs", str(tmp_path), "--dry-run"]
    only = ["--only", "cifar10-aug-fast-silu", "--seeds", "1"]
    printed = []
    for change in ([], ["--set", "epochs=1"]):
        assert main([*command, *only, *change]) == 0
        printed.append(capsys.readouterr().out)
    assert "cifar10-aug-fast-silu" in printed[0]
    # A tenth of the epochs: minutes became a minute.
    assert printed[0] != printed[1]
    assert main([*command, *only, "--set", "precison=float32"]) == 2
    assert "did you mean 'precision'" in capsys.readouterr().err


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
        cells_of(selected_tables(["table1"], ["cifar10-cnn-relu"])),
        Sweep("lab", seeds=5, selection_seeds=2),
        tmp_path,
        more,
        stored={},
        progress=Told,
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
        # Also one that had got as far as numbers.
        numbers = {"test_error": 10.0 + seed}
        result = RunResult("cifar10-cnn-relu", "smoke", seed, status, numbers, error="NaN")
        folder = Job("cifar10-cnn-relu", "smoke", seed).folder(tmp_path)
        folder.mkdir(parents=True)
        write_result(folder, result)
    table = summarise(TABLES["table3"], Sweep("smoke", 3), read_results(tmp_path))
    relu = summary_of(table, "ReLU")
    assert (relu.n, relu.failed, relu.mean, relu.std) == (2, 1, 11.0, 2**0.5)


def test_one_run_has_no_spread_and_none_no_mean() -> None:
    (cell, *_) = TABLES["table3"].cells
    one, none = (
        Summary("row", "column", "name", cell.metrics[0], values, 0) for values in ({4: 7.5}, {})
    )
    assert (one.n, one.mean, math.isnan(one.std)) == (1, 7.5, True)
    assert (none.n, math.isnan(none.mean), math.isnan(none.std)) == (0, True, True)


def test_runs_with_relu_in_place_of_their_curves_have_numbers_of_their_own() -> None:
    row = TABLES["ablation"].rows[0]
    name = row.cells["apl"].experiment
    numbers = {"test_error": 10.0, "replaced_test_error": 40.0}
    runs = [RunResult(name, "smoke", seed, "finished", numbers) for seed in range(2)]
    found = summarise(TABLES["ablation"], Sweep("smoke", 2), by_job(runs))
    means = [summary_of(found, row.title, column).mean for column in ("apl", "replaced")]
    assert means == [10.0, 40.0]


def test_table3_chooses_no_number_of_hinges() -> None:
    # Both tables have the experiment, and each its own runs of it where the chosen number differs.
    sweep = Sweep("paper", 5)
    assert sweep.stages(cell_of("cifar10-cnn-apl", "table3")) == []
    (stage,) = sweep.stages(cell_of("cifar10-cnn-apl", "table1"))
    assert stage.candidates == tuple(f"activation.num_hinges={size}" for size in (1, 2, 5, 10))
    # On events as everywhere else.
    assert sweep.stages(cell_of("higgs-dnn-apl", "table2"))[0].candidates == stage.candidates
    assert sweep.stages(cell_of("higgs-dnn-leaky", "table2")) == []


def test_what_is_not_decided_yet_is_as_the_experiment_has_it(tmp_path: Path) -> None:
    run_all(tmp_path, FakePool(tmp_path), "cifar10-cnn-leaky", scale="smoke")
    stored = [replace(run, scale="paper") for run in read_results(tmp_path).values()]
    table = summarise(TABLES["table1"], Sweep("paper"), by_job(stored))
    summary = summary_of(table, "CNN + Leaky ReLU")
    assert (summary.n, summary.choices) == (3, ())


def test_an_unmatched_pattern_is_an_error() -> None:
    with pytest.raises(ValueError, match="--only nothing matches no experiment of these tables"):
        selected_tables(["table3"], ["nothing"])


def test_cells_that_a_scale_has_no_recipe_for_are_left_out() -> None:
    tables = selected_tables(["all"], scale="study")
    assert [table.name for table in tables] == ["table1", "table3", "ablation", "activations"]
    experiments = {name for table in tables for name in table.experiments}
    assert all(name.startswith(("cifar10-", "cifar100-")) for name in experiments)
    assert "cifar10-maxout" not in experiments
    with pytest.raises(ValueError, match="study scale has no recipe for networks of the family"):
        selected_tables(["table1"], ["cifar10-maxout"], scale="study")


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
    auc = paired_difference({0: 0.81, 1: 0.81}, {0: 0.8, 1: 0.8}, best=1.0)
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
    found = summarise(TABLES["table2"], Sweep("smoke", 2), read_results(tmp_path))
    significances = [s for s in found if s.metric.name == "test_significance_histogram"]
    summary = summary_of(significances, "DNN + APL", "higgs")
    assert (summary.mean, summary.published) == (3.5, (3.41, 0.006))
    assert summary.difference is not None
    assert summary.difference.mean == 0.5
    assert summary.difference.relative_reduction is None
    (cell,) = as_json([summary])
    assert isinstance(cell, dict)
    assert (cell["published"], cell["published_std"]) == (3.41, 0.006)


def test_published_numbers_are_as_the_paper_writes_them() -> None:
    summaries = summarise(TABLES["ablation"], Sweep("smoke", 1), {})
    chosen = [
        replace(summary, values={0: 1.0})
        for summary in summaries
        if (summary.row, summary.metric.name) == ("Higgs DNN", "test_significance_histogram")
    ]
    assert [row[-1] for row in rows_of(TABLES["ablation"], chosen)] == ["3.40", "0.514"]


def test_every_cell_is_compared_with_relu_on_the_same_data() -> None:
    for cell in cells_of(list(TABLES.values())):
        own, baseline = get(cell.experiment), get(cell.peers["relu"].experiment)
        assert baseline.activation.kind == "relu"
        assert baseline.data.name == own.data.name
        assert baseline.data.augment == own.data.augment


@pytest.mark.parametrize("rates", [None, (0.5, 1.0)])
def test_rates_are_multiples_of_the_one_that_was_set(rates: tuple[float, ...] | None) -> None:
    sweep = Sweep("lab", 1, rates=rates, overrides=("optim.lr=0.006", "epochs=1"))
    cell = TABLES["table2"].rows[2].cells["atlas"]
    chosen = [job.overrides for job in sweep.next_jobs(cell, {})]
    values = [0.006 * factor for factor in rates or (1, 2, 4, 8)]
    assert [sorted(job)[-1] for job in chosen] == [f"optim.lr={value:g}" for value in values]
    assert all(sum("optim.lr" in text for text in job) == 1 for job in chosen)


def test_the_modern_table_has_one_rate_for_all_rows_and_a_wider_control() -> None:
    cells = {cell.experiment: cell for cell in TABLES["modern"].cells}
    sweep = Sweep("lab", seeds=2)
    for name, cell in cells.items():
        assert sweep.stages(cell) == []
        settings = sweep.next_jobs(cell, {})[0].settings()
        assert settings.data.augment
        assert settings.width == (0.53125 if name.endswith("relu-wide") else 0.5)
        learned = name.endswith(("apl-default", "apl-leak"))
        assert ("segments" in str(settings.activation)) == learned


def test_the_modern_table_is_run_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("relu", "silu", "apl-default")
    only = [text for name in names for text in ("--only", f"cifar10-aug-fast-{name}")]
    command = ["reproduce", "modern", "--scale", "smoke", "--seeds", "1", "--runs", str(tmp_path)]
    assert main([*command, *only, "--markdown"]) == 0
    printed = capsys.readouterr().out
    for title in ("ReLU", "SiLU", "APL per channel, the library's default after batch norm"):
        assert f"| Fast ResNet + {title} | CIFAR-10 augmented | 1 |" in printed
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "report.html")]) == 0
    assert "Fast ResNet + SiLU" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_equal_settings_are_one_run() -> None:
    sweep = Sweep("lab", 1)
    rows = {row.title: row.cells for row in TABLES["table1"].rows}
    goodfellow = rows["CNN + Maxout (Goodfellow et al. 2013)"]["cifar10-aug"]
    stollenga = rows["CNN + Maxout (Stollenga et al. 2014)"]["cifar10-aug"]
    assert sweep.next_jobs(goodfellow, {}) == sweep.next_jobs(stollenga, {})
    assert (goodfellow.published, stollenga.published) != (None, None)
    assert goodfellow.published != stollenga.published
    # Its name is still known.
    assert get("cifar10-aug-maxout-stollenga").name == "cifar10-aug-maxout"


def test_tables_want_as_many_runs_as_the_paper_made() -> None:
    sweep = Sweep("smoke")
    assert len(sweep.next_jobs(cell_of("cifar10-cnn-relu"), {})) == 5
    assert len(sweep.next_jobs(cell_of("higgs-dnn-apl", "table2"), {})) == 4
    ensemble = next(cell for cell in TABLES["table2"].cells if cell.kind == "ensemble")
    assert len(sweep.next_jobs(ensemble, {})) == 5


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and "runs)" in line
    ],
)
def test_the_page_on_scaling_says_what_tables_cost(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, *cells = line.strip("| ").split(" | ")
    name = table.split("`")[1]
    for cell, options in zip(
        cells, (["--device", "cuda"], ["--scale", "lab", "--device", "cpu"]), strict=True
    ):
        assert main(["reproduce", name, "--dry-run", "--runs", str(tmp_path), *options]) == 0
        total = capsys.readouterr().out.splitlines()[-1]
        time, runs = cell.removesuffix(" runs)").split(" (")
        assert total.startswith(f"in all {runs} runs, about {time} on ")


def test_an_unknown_baseline_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "table3", "--scale", "smoke", "--runs", str(tmp_path / "runs")]
    assert main([*command, "--baseline", "nope"]) == 2
    assert "unknown baseline 'nope'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_unknown_baseline_names_the_rows() -> None:
    with pytest.raises(ValueError, match="unknown baseline 'sillu', did you mean 'silu'"):
        summarise(TABLES["table1"], Sweep("smoke"), {}, "sillu")


def test_winner_is_the_first_of_equals() -> None:
    assert Choice(("a", "b"), (1.0, 1.0)).winner == "a"


SMALL = ("data.limit=100", "epochs=1")


def test_a_worker_does_many_runs_and_names_what_went_wrong(tmp_path: Path) -> None:
    told = Told()
    good = Job("atlas-dnn-relu", "smoke", 0, SMALL)
    bad = Job("cifar10-cnn-relu", "smoke", 0, ("epochs=none",))
    # Neither a mistake of the user's nor a result: a network that an image does not fit.
    broken = Job("atlas-dnn-relu", "smoke", 1, (*SMALL, "net=nin"))
    after = Job("atlas-dnn-relu", "smoke", 2, SMALL)
    with LocalPool(Workspace(tmp_path, None, "cpu"), workers=1) as pool:
        pool.run([bad, good, broken], told)
        worker = pool.workers[0]
        pool.run([after], told)
        assert pool.workers[0] is worker
    assert told.errors[good] is told.errors[after] is None
    assert "epochs must be a whole number" in str(told.errors[bad])
    assert "conv11 needs a map" in str(told.errors[broken])
    assert set(read_results(tmp_path)) == {good, after}
    # What a run says is in its own folder.
    assert "epoch 1/1, loss " in (good.folder(tmp_path) / "log.txt").read_text()
    assert "Traceback" in (broken.folder(tmp_path) / "log.txt").read_text()


def test_runs_of_one_worker_do_not_depend_on_each_other(tmp_path: Path) -> None:
    job, other = (Job("atlas-dnn-apl", "smoke", seed, SMALL) for seed in (0, 1))
    with LocalPool(Workspace(tmp_path / "first", None, "cpu"), workers=1) as pool:
        pool.run([job], Told())
    with LocalPool(Workspace(tmp_path / "second", None, "cpu"), workers=1) as pool:
        pool.run([other, job], Told())
    first, second = (read_results(tmp_path / name)[job] for name in ("first", "second"))
    assert first.metrics == second.metrics


def test_a_worker_that_dies_fails_its_run_alone(tmp_path: Path) -> None:
    class Killing(Told):
        def step(self, job: Job, share: float) -> None:
            super().step(job, share)
            worker = pool.workers[0]
            if worker is not None and job == doomed:
                worker.process.kill()

    doomed = Job("atlas-dnn-relu", "smoke", 0, ("epochs=500",))
    after = Job("atlas-dnn-relu", "smoke", 1, SMALL)
    told = Killing()
    with LocalPool(Workspace(tmp_path, None, "cpu"), workers=1) as pool:
        pool.run([doomed, after], told)
    assert "its process was ended by SIGKILL" in str(told.errors[doomed])
    assert told.errors[after] is None


def test_a_run_that_leaves_no_result_is_not_repeated_for_ever(tmp_path: Path) -> None:
    class Forgetful(FakePool):
        def run(self, jobs: Sequence[Job], listener: Listener) -> None:
            self.ran += jobs
            for job in jobs:
                listener.done(job, None)

    pool = Forgetful(tmp_path)
    broken = run_all(tmp_path, pool, "cifar10-cnn-relu", scale="smoke")
    assert len(pool.ran) == len(broken) == 3
    assert set(broken.values()) == {"it ended without an error, but there is no result that counts"}


def test_a_run_of_another_process_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchapl.paper.sweep.pool._RETRY_SECONDS", 0.0)
    job = Job("atlas-dnn-relu", "smoke", 0, SMALL)
    told = Told()
    with ExitStack() as held:
        held.enter_context(locked(job.folder(tmp_path)))

        class Patient(LocalPool):
            def ended(self, listener: Listener) -> Iterator[tuple[Job, Outcome]]:
                for job, outcome in super().ended(listener):
                    if outcome.is_locked:
                        held.close()
                    yield job, outcome

        waiting = pytest.warns(UserWarning, match="is in use by another process: waiting for it")
        with Patient(Workspace(tmp_path, None, "cpu"), workers=1) as pool, waiting:
            pool.run([job], told)
    assert told.errors == {job: None}
    assert list(read_results(tmp_path)) == [job]


def test_an_ensemble_averages_scores_and_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, store = tmp_path / "runs", tmp_path / "smoke.jsonl"
    arguments = ["reproduce", "table2", "--scale", "smoke", "--only", "higgs-dnn-baldi", "--json"]
    where = ["--runs", str(runs), "--workers", "2", "--device", "cpu", "--store", str(store)]
    assert main([*arguments, "--seeds", "1", *where]) == 0
    cells = json.loads(capsys.readouterr().out)["table2"]
    numbers = {(cell["row"], cell["metric"]): cell for cell in cells}
    assert [cell["n"] for cell in cells] == [1] * 4
    ensemble = numbers["DNN + ReLU, ensemble of 5 (Baldi et al. 2014)", "test_auc"]
    members = [run.metrics["test_auc"] for run in read_results(runs).values()]
    assert len(members) == 5
    assert ensemble["mean"] > sum(members) / 5
    assert ensemble["published"] == 0.803
    # From the stored results, which have no scores, the same; and again from the folder.
    for source in (store, runs):
        assert main([*arguments, "--seeds", "1", "--runs", str(source), "--device", "cpu"]) == 0
        assert json.loads(capsys.readouterr().out)["table2"] == cells
    assert main(["report", str(runs), "-o", str(tmp_path / "report.html")]) == 0


def test_what_a_store_has_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "smoke.jsonl"
    arguments = ["reproduce", "table2", "--scale", "smoke", "--only", "atlas-dnn-relu", "--json"]
    where = ["--device", "cpu", "--store", str(store)]
    assert main([*arguments, *where, "--seeds", "1", "--runs", str(tmp_path / "here")]) == 0
    first = read_results(store)
    # Another machine, or this one after its runs are gone.
    elsewhere = ["--runs", str(tmp_path / "there")]
    assert main([*arguments, *where, *elsewhere, "--seeds", "2", "--dry-run"]) == 0
    assert "in all 1 runs" in capsys.readouterr().out
    assert main([*arguments, *where, *elsewhere, "--seeds", "2"]) == 0
    assert {cell["n"] for cell in json.loads(capsys.readouterr().out)["table2"]} == {2}
    assert [job.seed for job in read_results(tmp_path / "there")] == [1]
    both = read_results(store)
    assert {job.seed for job in both} == {0, 1}
    assert first.items() <= both.items()


def test_a_store_with_a_damaged_line_is_not_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "smoke.jsonl"
    job = Job("atlas-dnn-relu", "smoke", 0)
    write_results(
        {job: RunResult(job.experiment, "smoke", 0, "finished", {"test_auc": 0.8})}, store
    )
    damaged = store.read_text() + '{"half": '
    store.write_text(damaged)
    arguments = ["reproduce", "table2", "--scale", "smoke", "--only", "atlas-dnn-relu"]
    assert main([*arguments, "--runs", str(tmp_path / "runs"), "--store", str(store)]) == 2
    assert f"{store}" in (printed := capsys.readouterr().err)
    assert "line 2" in printed
    assert store.read_text() == damaged
    assert not (tmp_path / "runs").exists()


def test_results_of_settings_that_are_gone_do_not_count(tmp_path: Path) -> None:
    job = Job("higgs-dnn-baldi", "smoke", 0)
    result = RunResult(
        job.experiment,
        "smoke",
        0,
        "finished",
        {"test_auc": 0.8},
        ("ensemble=5",),
        environment={"settings": fingerprint(job.settings())},
    )
    stored = tmp_path / "old.jsonl"
    write_results({job: result}, stored)
    with pytest.warns(UserWarning, match="1 of 1 results do not count"):
        assert read_results(stored) == {}


@pytest.mark.slow
def test_a_stopped_sweep_stops_its_runs(tmp_path: Path) -> None:
    arguments = ["reproduce", "table2", "--scale", "lab", "--only", "atlas-dnn-relu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "torchapl.cli", *arguments, "--runs", tmp_path, "--device", "cpu"],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (begun := list(tmp_path.rglob("config.json"))):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate()
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
def test_all_tables_from_an_empty_folder_to_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, store, page = (tmp_path / name for name in ("runs", "smoke.jsonl", "report.html"))
    arguments = ["reproduce", "all", "--scale", "smoke", "--seeds", "1", "--device", "cpu"]
    where = ["--runs", str(runs), "--workers", "2", "--store", str(store)]
    assert main([*arguments, *where, "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert set(tables) == set(TABLES)
    for name, table in TABLES.items():
        wanted = sum(len(cell.metrics) for cell in table.cells)
        assert len(tables[name]) == wanted
        empty = [(cell["row"], cell["column"]) for cell in tables[name] if cell["mean"] is None]
        assert empty == []
    # The same tables from the stored results, and nothing left to run.
    assert main([*arguments, "--runs", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tables
    assert main([*arguments, "--runs", str(runs), "--dry-run"]) == 0
    assert "in all 0 runs, about 0 s" in capsys.readouterr().out
    assert main(["report", str(runs), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    for row in ("DNN + ReLU, ensemble of 5 (Baldi et al. 2014)", "ResNet-20 + SiLU", "Higgs DNN"):
        assert row in text


@pytest.mark.parametrize(("threads", "workers", "each"), [(8, 2, "4"), (2, 1, "2"), (1, 3, "1")])
def test_workers_share_the_threads_that_torch_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, workers: int, each: str
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    pool = LocalPool(Workspace(tmp_path, None, "cpu"), workers)
    assert pool._settings(0) == {"OMP_NUM_THREADS": each}


def test_workers_spread_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    pool = LocalPool(Workspace(tmp_path, None, "cuda"), workers=3)
    given = [pool._settings(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)]
    assert given == ["0", "1", "0"]


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
    perfect = paired_difference({0: 0.5, 1: 0.5}, {0: 1.0, 1: 1.0}, best=1.0)
    assert perfect is not None
    assert perfect.relative_reduction is None
