from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from torchapl.paper.experiments import TABLES
from torchapl.paper.metrics import asimov_significance
from torchapl.paper.report.classes import curve_classes
from torchapl.paper.report.events import cut_significances, roc
from torchapl.paper.report.explorer import explorer
from torchapl.paper.report.folders import Run, made_of, read_runs
from torchapl.paper.report.html import render
from torchapl.paper.report.payload import _learning_within, build_payload
from torchapl.paper.runs import run_folder
from torchapl.paper.sweep import Sweep
from torchapl.paper.sweep.jobs import read_results
from torchapl.paper.sweep.statistics import summarise
from torchapl.runs import DamagedError, RunResult
from torchapl.runs.folder import read_result, write_result
from torchapl.runs.records import Json, write_tensors


@pytest.fixture(scope="module")
def payload(runs: Path) -> dict[str, Any]:
    return build_payload(runs)


def decoded(stored: dict[str, Any], hinges: int) -> np.ndarray:
    whole = np.frombuffer(base64.b64decode(stored["data"]), "<i2").reshape(hinges, -1)
    return whole * stored["scale"]


def test_tables_are_those_of_the_results(runs: Path, payload: dict[str, Any]) -> None:
    tables = {(table["name"], table["title"]): table for table in payload["tables"]}
    found = summarise(TABLES["table2"], Sweep("smoke", 3, 0), read_results(runs))
    table = tables["table2", "Higgs -> tau tau, AUC"]
    row = next(row for row in table["rows"] if row[0] == "DNN + APL")
    summary = next(s for s in found if (s.row, s.column) == ("DNN + APL", "atlas"))
    assert row[2:4] == ["2", f"{summary.mean:.4f} ({summary.std:.4f})"]
    assert summary.difference is not None
    assert row[4] == f"{summary.difference.mean:+.4f} +- {summary.difference.half_width:.4f}"
    (cell,) = [cell for cell in table["cells"] if cell["experiment"] == "atlas-dnn-apl"]
    assert cell["mean"] == summary.mean


def test_failed_runs_are_counted(payload: dict[str, Any]) -> None:
    table = next(table for table in payload["tables"] if table["name"] == "table3")
    rows = {row[0]: row for row in table["rows"]}
    assert rows["APL, S = 5"][2] == "0 + 1 failed"
    assert rows["ReLU"][2:4] == ["2", "83.88 (0.88)"]
    assert rows["ReLU"][-1] == "12.56 (0.26)"
    setting = next(row for row in payload["settings"] if row["name"] == "cifar10-cnn-apl-s2")
    assert (setting["n"], setting["failed"], setting["unfinished"]) == (2, 0, 1)
    failed = next(run for run in payload["runs"] if run["status"] == "failed")
    assert failed["error"] == "loss at step 3: NaN"


def test_a_significance_stands_beside_the_published_significance(tmp_path: Path) -> None:
    numbers = {"test_auc": 0.8, "test_significance_histogram": 3.2}
    result = {"experiment": "higgs-dnn-apl", "scale": "smoke", "seed": 0, "status": "finished"}
    rest = {"overrides": [], "n_parameters": 1, "seconds": 1, "epochs": 1, "error": None}
    path = tmp_path / "stored.jsonl"
    path.write_text(json.dumps(result | numbers | rest))
    built: Any = build_payload(path)["tables"]
    tables = {table["title"]: table["rows"] for table in built if table["name"] == "table2"}
    published = TABLES["table2"].rows[3].cells["higgs"].published
    assert published is not None
    auc, significance = (
        tables["Higgs -> tau tau, AUC"],
        tables["Higgs -> tau tau, expected significance, sigma"],
    )
    assert auc[0][-1].startswith(f"{published.mean:.3f}")
    assert significance[0][-1].startswith(f"{published.significance:.2f}")


def test_learning_curves_are_means_over_seeds(runs: Path, payload: dict[str, Any]) -> None:
    path = runs / "atlas-dnn-relu" / "smoke" / "0" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    entry = next(item for item in payload["learning"] if item["name"] == "atlas-dnn-relu")
    points = entry["metrics"]["test_auc"]
    assert [point[0] for point in points] == [line["epoch"] for line in lines]
    assert points[-1][1] == pytest.approx(lines[-1]["test_auc"], rel=1e-5)
    # Both seeds of the fixture learned the same.
    assert points[-1][2:] == [0.0, 2]


def test_explorer_holds_the_recorded_curves(runs: Path, payload: dict[str, Any]) -> None:
    names = [run["name"] for run in payload["runs"]]
    entry = next(e for e in payload["curves"] if names[e["run"]] == "cifar10-cnn-apl-s2")
    assert entry["moments"] == ["start", "epoch 1", "epoch 2", "end"]
    stored = safetensors.torch.load_file(
        runs / "cifar10-cnn-apl-s2" / "smoke" / "0" / "curves.safetensors"
    )
    layer = entry["layers"][0]
    for moment, frame in (("initial", 0), ("learned", -1)):
        for kind in ("slope", "offset"):
            whole = stored[f"{moment}/{layer['name']}/{kind}"].flatten(1)
            kept = whole[:, layer["units"]].numpy()
            found = decoded(layer["frames"][frame][kind], 2)
            assert np.abs(found - kept).max() <= np.abs(kept).max() / 65_000
    slope, offset = (stored[f"learned/{layer['name']}/{k}"].flatten(1) for k in ("slope", "offset"))
    classes = curve_classes(slope, offset, tuple(layer["window"]))
    assert layer["frames"][-1]["counts"] == torch.bincount(classes, minlength=6).tolist()
    assert sum(layer["frames"][-1]["counts"]) == slope.shape[1]
    kept = base64.b64decode(layer["frames"][-1]["classes"])
    assert list(kept) == classes[layer["units"]].tolist()


def test_layers_come_in_their_order(payload: dict[str, Any]) -> None:
    for entry in payload["curves"]:
        names = [layer["name"] for layer in entry["layers"]]
        numbers = [int("".join(filter(str.isdigit, name))) for name in names]
        assert numbers == sorted(numbers)


def test_curves_are_thinned_to_the_budget_and_it_is_said(runs: Path) -> None:
    found, _ = read_runs(runs)
    wide, all_kept = explorer(found, 10_000_000)
    narrow, some_kept = explorer(found, 100_000)
    assert len(json.dumps(narrow)) < 110_000 < len(json.dumps(wide))
    assert some_kept.units < all_kept.units
    none, nothing_kept = explorer(found, 1000)
    assert none == []
    assert "5 of 5 runs are left out" in str(nothing_kept)


def test_moments_of_large_layers_are_matched_to_units(tmp_path: Path, runs: Path) -> None:
    # As training stores them: all units at start and end, evenly spaced ones between.
    source = runs / "cifar10-cnn-apl-s2" / "smoke" / "0"
    folder = tmp_path / "cifar10-cnn-apl-s2" / "smoke" / "0"
    shutil.copytree(source, folder)
    count, stored = 12 * 32 * 32, 5000
    mark = torch.arange(count).float().reshape(1, 12, 32, 32)
    some = mark.flatten(1)[:, torch.arange(stored) * count // stored]
    moments = {"initial": mark, "epoch_0001": some, "learned": mark}
    tensors = {
        f"{moment}/act/{kind}": values.clone()
        for moment, values in moments.items()
        for kind in ("slope", "offset")
    }
    write_tensors(folder / "curves.safetensors", tensors)
    (entry,) = build_payload(tmp_path)["curves"]
    layer = entry["layers"][0]
    for frame in layer["frames"]:
        found = decoded(frame["slope"], 1)[0].round()
        assert found.tolist() == layer["units"]


def test_values_that_are_not_finite_survive(tmp_path: Path, runs: Path) -> None:
    folder = tmp_path / "atlas-dnn-apl" / "smoke" / "0"
    shutil.copytree(runs / "atlas-dnn-apl" / "smoke" / "0", folder)
    tensors = safetensors.torch.load_file(folder / "curves.safetensors")
    key = next(key for key in tensors if key.startswith("learned") and key.endswith("slope"))
    tensors[key][0, 0] = torch.nan
    write_tensors(folder / "curves.safetensors", tensors)
    assert "NaN" not in json.dumps(build_payload(tmp_path))


def test_numbers_that_are_none_do_not_break_the_page(tmp_path: Path) -> None:
    result = RunResult("cifar10-cnn-relu", "smoke", 0, "finished", {"test_error": float("nan")})
    write_result(tmp_path, result)
    lines = [{"epoch": 1, "test_error": 50.0}, {"epoch": 2, "test_error": float("inf")}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    payload = build_payload(tmp_path)
    json.dumps(payload, allow_nan=False)
    (entry,) = payload["learning"]
    assert entry["metrics"]["test_error"] == [[1, 50.0, 0.0, 1]]
    assert payload["runs"][0]["numbers"] == {}


def test_roc_and_cuts() -> None:
    scores = torch.tensor([0.9, 0.9, 0.5, 0.1]).repeat(20)
    labels = torch.tensor([1, 0, 1, 0]).repeat(20)
    # Equal scores are accepted together: a straight line between their ends.
    expected = torch.tensor([0.0, 0.25, 0.5, 1.0, 1.0], dtype=torch.float64)
    rates = torch.tensor([0.0, 0.25, 0.4999999, 0.51, 1.0])
    assert torch.allclose(roc(scores, labels, rates), expected, atol=1e-6)
    found = cut_significances(scores, labels, torch.tensor([0.0, 0.6, 0.95]))
    assert found[0] == asimov_significance(100.0, 5000.0, 250.0)
    assert found[1] == pytest.approx(asimov_significance(50.0, 2500.0, 125.0))
    assert np.isnan(found[2])
    # Eight background rows are too few to say anything.
    assert np.isnan(cut_significances(scores[:16], labels[:16], torch.tensor([0.0]))[0])


def test_classifiers_show_the_auc_of_the_results(runs: Path, payload: dict[str, Any]) -> None:
    result = json.loads((runs / "atlas-dnn-apl" / "smoke" / "0" / "result.json").read_text())
    entry = next(item for item in payload["classifiers"] if item["name"] == "atlas-dnn-apl")
    assert entry["auc"] == pytest.approx(result["test_auc"], rel=1e-5)
    area = np.trapezoid(entry["roc"], entry["rates"])
    assert area == pytest.approx(result["test_auc"], abs=2e-3)


def test_names_cannot_leave_their_place(payload: dict[str, Any]) -> None:
    evil = "</script><script>alert(1)</script>{{plotly}}"
    page = render(payload | {"title": evil})
    assert evil not in page
    # Its own scripts: data, library, modules, start.
    assert page.count("<script") == 4
    assert len(page.encode()) < 5_000_000


FILES = (
    "config.json",
    "result.json",
    "metrics.jsonl",
    "curves.safetensors",
    "inputs.safetensors",
    "scores.safetensors",
)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # Past the middle: among the digits of a JSON file, the data of tensors.
    place = next(i for i in range(len(content) // 2, len(content)) if content[i : i + 1].isdigit())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "damage", [flip, cut, become_folder, lambda path: path.write_bytes(b"{\n")]
)
def test_one_damaged_file_leaves_one_run_out(
    tmp_path: Path, runs: Path, name: str, damage: Callable[[Path], object]
) -> None:
    root = shutil.copytree(runs / "atlas-dnn-apl", tmp_path / "atlas-dnn-apl")
    path = root / "smoke" / "1" / name
    damage(path)
    with pytest.warns(UserWarning, match=f"left out: {path} ") as caught:
        built: Any = build_payload(tmp_path)
    assert len(caught) == 1
    assert [run["seed"] for run in built["runs"]] == [0]
    (reason,) = built["left_out"]
    assert reason.startswith(f"{path} ")


def test_a_run_that_is_alone_and_damaged_is_named(tmp_path: Path, runs: Path) -> None:
    folder = shutil.copytree(runs / "atlas-dnn-apl" / "smoke" / "0", tmp_path / "0")
    flip(folder / "metrics.jsonl")
    with pytest.raises(DamagedError, match=r"metrics.jsonl line \d: does not match its checksum"):
        build_payload(tmp_path)


def test_seeds_may_be_dates(tmp_path: Path) -> None:
    for seed in (20240601, 20240602):
        result = RunResult("cifar10-cnn-relu", "smoke", seed, "finished", {"test_error": 20.0})
        folder = run_folder(tmp_path, result.experiment, "smoke", seed)
        folder.mkdir(parents=True)
        write_result(folder, result)
    tables: Any = build_payload(tmp_path)["tables"]
    assert {table["rows"][0][2] for table in tables} == {"2"}


def test_tables_that_fill_the_budget_leave_curves_and_epochs_out(runs: Path) -> None:
    assert build_payload(runs, budget=1000)["curves"] == []
    lines = [{"epoch": epoch, "test_error": 20.0} for epoch in range(1, 101)]

    class Recorded(Run):
        def lines(self) -> list[dict[str, Json]]:
            return lines

    groups = {name: [Recorded(name, "lab", 0, (), None, None)] for name in ("a", "b")}
    learned: Any = _learning_within(groups, 500)
    kept = learned[0]["metrics"]["test_error"]
    assert (len(kept), kept[-1][0]) == (10, 100)


def test_one_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, runs: Path) -> None:
    shutil.copytree(runs / "atlas-dnn-relu", tmp_path / "atlas-dnn-relu")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.warns(UserWarning, match=r"left out: .*other/config.json has no 'experiment'"):
        assert made_of(tmp_path, len)[0] == 2


def test_runs_of_other_settings_are_shown_but_fill_no_table(tmp_path: Path, runs: Path) -> None:
    shutil.copytree(runs / "atlas-dnn-relu", tmp_path / "atlas-dnn-relu")
    for path in tmp_path.rglob("result.json"):
        result = read_result(path.parent)
        assert result is not None
        write_result(path.parent, replace(result, environment={"settings": "0" * 12}))
    with pytest.warns(UserWarning, match="2 of 2 results do not count"):
        built: Any = build_payload(tmp_path)
    assert built["tables"] == []
    assert len(built["runs"]) == 2
