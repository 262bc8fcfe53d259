from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchapl import APL, LazyAPL, log_run
from torchapl.curves import AffineAPL, left_slope, sample
from torchapl.paper.report.payload import build_payload
from torchapl.runs import DamagedError, RunLockedError
from torchapl.runs.curves import Layer, RunCurves, layers_of
from torchapl.runs.folder import read_config, read_result

DOCS = Path(__file__).parents[2] / "docs"


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 6), APL(6, init="leaky"), nn.Linear(6, 2))


def trained(folder: Path, epochs: int = 5, **options: Any) -> nn.Sequential:
    """Log a run whose curves change at every epoch."""
    model = network()
    with log_run(folder, model, **options) as run:
        for epoch in range(epochs):
            with torch.no_grad():
                model[1].slope.sub_(0.1)
            run.epoch(train_loss=1.0 / (epoch + 1), accuracy=torch.tensor(50.0 + epoch))
    return model


def test_a_loop_of_ones_own_is_in_the_report(tmp_path: Path) -> None:
    for seed in (0, 1):
        batch = torch.randn(100, 2)
        model = trained(tmp_path / f"mine-{seed}", name="mine", seed=seed, data="ring", batch=batch)
    payload: Any = build_payload(tmp_path)
    assert [(run["name"], run["seed"], run["status"]) for run in payload["runs"]] == [
        ("mine", 0, "finished"),
        ("mine", 1, "finished"),
    ]
    (setting,) = payload["settings"]
    assert (setting["n"], setting["numbers"]["accuracy"]) == (2, "54.00 (0.00)")
    (learning,) = payload["learning"]
    assert learning["data"] == "ring"
    assert [point[:2] for point in learning["metrics"]["accuracy"]] == [
        [1, 50.0], [2, 51.0], [3, 52.0], [4, 53.0], [5, 54.0],
    ]  # fmt: skip
    assert len(payload["curves"]) == 2
    assert payload["curves"][0]["moments"] == ["start", "epoch 1", "epoch 2", "epoch 4", "end"]
    assert payload["curves"][0]["layers"][0]["density"] is not None
    assert payload["tables"] == []
    learned = RunCurves(tmp_path / "mine-1").learned["1"]
    assert torch.equal(learned.slope, model[1].slope)


def test_lines_say_what_the_curves_are(tmp_path: Path) -> None:
    model = network()
    with log_run(tmp_path / "run", model, batch=torch.randn(50, 2)) as run:
        line: Any = run.epoch({"val/acc": 0.5}, step=3)
    assert (line["epoch"], line["val/acc"], line["step"]) == (1, 0.5, 3)
    numbers = line["curves"]["1"]
    assert (numbers["units"], numbers["left_slope_mean"]) == (6, 0.25)
    assert numbers["input_low"] < numbers["input_high"]
    config = read_config(tmp_path / "run")
    assert config is not None
    assert (config.name, config.scale, config.seed) == ("run", "own", 0)
    result = read_result(tmp_path / "run")
    assert result is not None
    assert result.metrics == {"val/acc": 0.5, "step": 3}
    assert result.n_parameters == sum(p.numel() for p in model.parameters())


def test_looking_does_not_change_the_training(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), APL(6), nn.Dropout(0.5))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    before = model[1].running_mean.clone()
    with log_run(tmp_path, model, batch=torch.randn(50, 2, generator=torch.Generator())) as run:
        run.epoch()
    assert torch.equal(torch.rand(2), expected)
    assert model.training
    assert torch.equal(model[1].running_mean, before)


def test_final_numbers_may_be_others(tmp_path: Path) -> None:
    with log_run(tmp_path / "run", network()) as run:
        run.epoch(train_loss=1.0)
        run.finish(test_error=7.5)
        run.scores(torch.tensor([0.2, 0.9]), torch.tensor([0, 1]))
    result = read_result(tmp_path / "run")
    assert result is not None
    assert result.metrics == {"test_error": 7.5}
    payload: Any = build_payload(tmp_path)
    assert payload["classifiers"][0]["auc"] == 1.0


def interrupted(folder: Path, model: nn.Module, *losses: float) -> None:
    def loop() -> None:
        with log_run(folder, model) as run:
            for loss in losses:
                run.epoch(train_loss=loss)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop()


def test_an_exception_leaves_the_run_unfinished_and_it_goes_on(tmp_path: Path) -> None:
    model = network()
    interrupted(tmp_path, model, 3.0, 2.0, 1.0)
    assert read_result(tmp_path) is None
    assert build_payload(tmp_path)["runs"][0]["status"] == "unfinished"
    with pytest.raises(FileExistsError, match=r"has 3 epochs of a run: .* epochs_done"):
        trained(tmp_path)
    with pytest.raises(ValueError, match="epochs_done must be between 0 and 3, got 4"):
        trained(tmp_path, epochs_done=4)
    # From a checkpoint of the second epoch.
    with log_run(tmp_path, model, epochs_done=2) as run:
        assert run.epochs == 2
        run.epoch(train_loss=0.5)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["train_loss"] for line in lines] == [3.0, 2.0, 0.5]
    assert build_payload(tmp_path)["left_out"] == []
    with pytest.raises(FileExistsError, match="has a finished run"):
        trained(tmp_path)


def test_damaged_lines_are_not_gone_on_with(tmp_path: Path) -> None:
    interrupted(tmp_path, network(), 3.5)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text().replace("3.5", "2.5"))
    with pytest.raises(DamagedError, match=r"metrics.jsonl line 1: does not match its checksum"):
        trained(tmp_path, epochs_done=1)
    assert "2.5" in path.read_text()


def test_two_processes_cannot_log_to_one_folder(tmp_path: Path) -> None:
    with log_run(tmp_path, network()), pytest.raises(RunLockedError, match="is in use by process"):
        trained(tmp_path)


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ({"epoch": 3}, ValueError, "cannot be called 'epoch'"),
        ({"loss": torch.ones(2)}, TypeError, "loss must be a number"),
        ({"loss": "low"}, TypeError, "loss must be a number, got 'low'"),
        ({"done": True}, TypeError, "done must be a number"),
    ],
)
def test_what_is_no_number_is_refused(
    tmp_path: Path, numbers: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message), log_run(tmp_path, network()) as run:
        run.epoch(numbers)


def test_a_model_without_units_is_a_baseline(tmp_path: Path) -> None:
    with log_run(tmp_path, nn.Linear(2, 2), name="linear", batch=torch.ones(1, 2)) as run:
        run.epoch(train_loss=1.0)
    assert not (tmp_path / "curves.safetensors").exists()
    assert build_payload(tmp_path)["curves"] == []


def test_lazy_units_are_recorded_once_they_are_there(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 6), LazyAPL())
    with log_run(tmp_path, model) as run:
        model(torch.ones(1, 2))
        run.epoch(train_loss=1.0)
    assert RunCurves(tmp_path).order == ["epoch_0001", "learned"]
    assert len(build_payload(tmp_path)["curves"]) == 1


AFFINE = {"scale": -2.0, "shift": 0.5, "skip": 0.75, "center": 1.25}


def test_affine_units_are_recorded_as_they_are(tmp_path: Path) -> None:
    unit = AffineAPL(3, num_hinges=2, **AFFINE)
    with torch.no_grad():
        unit.unit.slope.copy_(torch.randn(2, 3))
        unit.unit.offset.copy_(torch.randn(2, 3))
    x = torch.linspace(-3, 3, 31)
    layer = layers_of(unit)[""]
    torch.testing.assert_close(layer.values(x), sample(unit, x))
    numbers = layer.statistics(None)
    assert numbers["left_slope_mean"] == pytest.approx(float(left_slope(unit).mean()), abs=1e-6)
    with log_run(tmp_path, nn.Sequential(unit)) as run:
        run.epoch()
    stored = RunCurves(tmp_path).learned["0"]
    assert torch.equal(stored.values(x), layer.values(x))
    payload: Any = build_payload(tmp_path)
    assert payload["curves"][0]["layers"][0]["affine"] == [-2.0, 0.5, 0.75, 1.25]


def test_one_unit_for_a_whole_layer() -> None:
    numbers = Layer.of("act", APL(init="leaky")).statistics(torch.randn(100))
    assert (numbers["units"], numbers["left_slope_mean"]) == (1, 0.25)


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "report.md").read_text(encoding="utf-8")
    code = text.partition("log_run(")[0].rpartition("```python")[2]
    code += "log_run(" + text.partition("log_run(")[2].partition("```")[0]
    assert len(code.strip().splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "report.md", "exec"), {})
    payload: Any = build_payload(tmp_path / "runs")
    assert payload["runs"][0]["status"] == "finished"
    assert payload["curves"]


def test_without_safetensors_the_remedy_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['safetensors'] = None\n"
        "import torchapl, torch\n"
        "with torchapl.log_run(sys.argv[1], torchapl.APL(2)) as run: pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
    )
    assert "pip install safetensors" in done.stderr
