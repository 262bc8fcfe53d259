from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchapl.cli import main
from torchapl.paper.config import override
from torchapl.paper.experiments import get, scaled

pytest.importorskip("optuna")
import optuna

from torchapl.paper.tune import best_settings, open_study, suggest, tune

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def storage(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def test_suggestions_are_settings_around_the_experiments_own() -> None:
    experiment = scaled(get("atlas-dnn-apl"), "lab")
    settings = suggest(optuna.create_study().ask(), experiment)
    assert {text.partition("=")[0] for text in settings} >= {"optim.lr", "optim.curve_decay"}
    for text in settings:
        experiment = override(experiment, text)
    own = scaled(get("atlas-dnn-apl"), "lab").optim.lr
    assert 0.1 * own <= experiment.optim.lr <= 10 * own
    plain = suggest(optuna.create_study().ask(), scaled(get("atlas-dnn-relu"), "lab"))
    assert not any("curve" in text for text in plain)


def test_search_resumes_and_never_sees_the_test_rows(tmp_path: Path) -> None:
    experiment = scaled(get("atlas-dnn-relu"), "smoke")
    study = open_study("smoke", storage(tmp_path))
    tune(experiment, study, 2, tmp_path, device="cpu")
    assert len(study.trials) == 2
    again = open_study("smoke", storage(tmp_path))
    tune(experiment, again, 3, tmp_path, device="cpu")
    assert len(again.trials) == 3
    assert len(list(tmp_path.glob("trial-*"))) == 3
    config = json.loads((tmp_path / "trial-0000" / "config.json").read_text())
    assert config["experiment"]["data"]["validation"] == 100
    values = [trial.value for trial in again.trials if trial.value is not None]
    assert again.best_value == min(values)
    best = best_settings(again)
    assert any(text.startswith("optim.lr=") for text in best)


def test_no_finished_trial_is_an_error(tmp_path: Path) -> None:
    study = open_study("empty", storage(tmp_path))
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED))
    with pytest.raises(ValueError, match="no trial has finished"):
        best_settings(study)


@pytest.mark.slow
def test_two_workers_share_one_study(tmp_path: Path) -> None:
    arguments = ["tune", "atlas-dnn-relu", "--scale", "smoke", "--trials", "6", "--device", "cpu"]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "torchapl.cli", *arguments, "--runs", str(tmp_path)]
        )
        for _ in range(2)
    ]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    folder = tmp_path / "tune" / "atlas-dnn-relu" / "smoke"
    study = open_study("atlas-dnn-relu/smoke", storage(folder))
    # A worker finishes the trial it has begun, so there may be one more than asked for.
    assert 6 <= len(study.trials) <= 7
    assert len({trial.number for trial in study.trials}) == len(study.trials)
    assert json.loads((folder / "best.json").read_text())


def test_command_prints_settings_for_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", "atlas-dnn-relu", "--scale", "smoke", "--trials", "1", "--device", "cpu"]
    assert main([*arguments, "--runs", str(tmp_path)]) == 0
    assert "--set optim.lr=" in capsys.readouterr().out
    assert main(["tune", "atlas-dnn-relu", "--trials", "0"]) == 2
    assert "--trials must be at least 1" in capsys.readouterr().err
