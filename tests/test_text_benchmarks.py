"""The benchmarks on text: the split, equal parameters, the search for rates, stored runs."""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import torchapl

FOLDER = Path(__file__).parents[1] / "benchmarks" / "text"


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    loaded = importlib.import_module(name)
    # Short names: they must not hide those of other tests.
    for own in ("verses", "study", "gpt", "finetune"):
        if own in sys.modules:
            monkeypatch.delitem(sys.modules, own)
    return loaded


@pytest.fixture
def verses(monkeypatch):
    return module("verses", monkeypatch)


@pytest.fixture
def study(monkeypatch):
    return module("study", monkeypatch)


@pytest.fixture
def gpt(monkeypatch):
    return module("gpt", monkeypatch)


def test_chapters_are_held_out_whole(verses):
    lines = "\n".join(f"Psa{chapter}:{n} Praise {n}" for chapter in range(1, 41) for n in (1, 2))
    parsed = verses.parse(lines)
    held_out = {part: {v.chapter for v in parsed if v.part == part} for part in ("valid", "test")}
    assert held_out == {"valid": {10, 30}, "test": {20, 40}}
    assert bytes(verses.text_of(parsed[:2], "train").tolist()) == b"Praise 1\nPraise 2\n"


def test_a_line_that_is_no_verse_is_named(verses):
    with pytest.raises(ValueError, match="line 2 is no verse: 'Psalms'"):
        verses.parse("1Sm1:1 Now\nPsalms\n")


@pytest.mark.filterwarnings("ignore:the outputs differ")
def test_all_rows_have_equally_many_parameters(gpt):
    tokens = torch.randint(128, (1, gpt.CONTEXT))
    counts = {
        row: sum(p.numel() for p in gpt.build(row, tokens).parameters())
        for row in gpt.STUDY.rows | gpt.STUDY.trials
    }
    assert max(counts.values()) < 1.01 * min(counts.values())
    # Never the rivals fewer.
    assert min(counts.values()) == counts["apl"]


def test_the_model_does_not_see_the_byte_that_it_predicts(gpt):
    model = gpt.build("silu", None).eval()
    tokens = torch.randint(128, (1, 16))
    changed = tokens.clone()
    changed[0, 9] += 1
    with torch.no_grad():
        same = (model(tokens) == model(changed)).all(-1)[0]
    assert same[:9].all()
    assert not same[9:].any()


@pytest.mark.parametrize("row", ["apl", "frozen"])
def test_a_short_run_learns_curves_unless_they_are_frozen(gpt, monkeypatch, row):
    text = torch.randint(97, 123, (2000,), dtype=torch.uint8)
    monkeypatch.setattr(gpt, "corpus", lambda: dict.fromkeys(("train", "valid", "test"), text))
    monkeypatch.setattr(gpt, "WINDOWS", 4)
    models = []
    build = gpt.build
    monkeypatch.setattr(gpt, "build", lambda *a: models.append(build(*a)) or models[0])
    outcome = gpt.train(gpt.Run(row, rate=1e-2, seed=0, steps=2, is_final=False))
    assert list(outcome.metrics) == ["valid_bits_per_byte"]
    assert math.isfinite(outcome.metrics["valid_bits_per_byte"])
    start = torchapl.APL(gpt.CURVED, unit_dim=-1)
    moved = [
        not torch.equal(block.feed_forward[1].slope, start.slope) for block in models[0].blocks
    ]
    assert moved == [row == "apl"] * gpt.LAYERS


def parabola(study, best: float, calls: list):
    """Training whose loss is least at a rate."""

    def train(run):
        calls.append(run)
        loss = math.log2(run.rate / best) ** 2 + 1 + 0.01 * run.seed
        part = "test" if run.is_final else "valid"
        return study.Outcome({f"{part}_loss": loss if run.rate < 1 else math.inf}, n_parameters=7)

    return train


@pytest.fixture
def small(study):
    return study.Study(
        "toy",
        rows={"old": "Old", "new": "New", "follower": "Follower"},
        trials={},
        middle=0.25,
        metrics=["loss"],
        settings=("batch=1",),
        steps=3,
        followers={"follower": "new"},
    )


@pytest.mark.parametrize("best", [0.03125, 0.25, 0.5])
def test_the_search_ends_between_two_worse_rates(study, small, tmp_path, best):
    calls: list = []
    path = tmp_path / "results.jsonl"
    assert small.tune("old", path, parabola(study, best, calls)) == best
    tried = {run.rate for run in calls}
    assert {best / 2, best, best * 2} <= tried
    assert len(calls) == len(tried)
    assert not any(run.is_final for run in calls)


def test_finished_runs_are_not_repeated(study, small, tmp_path):
    path = tmp_path / "results.jsonl"
    calls: list = []
    for _ in range(2):
        small.measure("new", 1, path, parabola(study, 0.25, calls))
    assert sum(run.is_final for run in calls) == 1
    count = len(calls)
    small.measure("follower", 1, path, parabola(study, 0.25, calls))
    assert [run.row for run in calls[count:]] == ["follower"]
    # Other steps are other runs.
    replace(small, steps=4).measure("new", 1, path, parabola(study, 0.25, calls))
    assert len(calls) > count + 2


def test_the_table_pairs_seeds(study, small, tmp_path):
    path = tmp_path / "results.jsonl"
    for seed in (1, 2, 3):
        small.measure("old", seed, path, parabola(study, 0.25, []))
        small.measure("new", seed, path, parabola(study, 0.25, []))
    last = small.table(path, "old").splitlines()[-1]
    assert last == "| New | 7 | 0.25 | 3 | 1.0200 (0.0100) | +0.0000 +- 0.0000 |"
    assert "| New | 2.0000 | 1.0000 | 2.0000 |" in small.tuning_table(path)


def test_sections_follow_their_first_books(monkeypatch):
    finetune = module("finetune", monkeypatch)
    assert finetune.sections(["Ge", "Deu", "Josh", "Rom", "Jude", "Rev"]) == [0, 0, 1, 6, 6, 7]


@pytest.mark.parametrize("name", ["gpt", "finetune"])
def test_the_page_has_the_tables_of_the_stored_results(name, monkeypatch):
    benchmark = module(name, monkeypatch)
    page = (FOLDER.parents[1] / "docs" / "text.md").read_text()
    study = benchmark.STUDY
    assert study.table(benchmark.RESULTS, "gelu") in page
    assert study.tuning_table(benchmark.RESULTS) in page
