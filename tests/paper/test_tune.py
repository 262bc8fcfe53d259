from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import postgres
import pytest

from torchapl.cli import main
from torchapl.paper.config import override
from torchapl.paper.experiments import get, scaled
from torchapl.paper.space import own_settings, search_space
from torchapl.paper.train import InterruptedRunError
from torchapl.paper.train.progress import Silent

pytest.importorskip("optuna")
import optuna

from torchapl.paper.tune import _take_up, best_settings, open_study, sqlite_url, suggest, tune

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def storage(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def test_suggestions_are_settings_around_the_experiments_own() -> None:
    experiment = scaled(get("atlas-dnn-apl"), "lab")
    settings = suggest(optuna.create_study().ask(), experiment)
    assert {text.partition("=")[0] for text in settings} == {
        dimension.setting for dimension in search_space(experiment)
    }
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
    assert config["experiment"]["data"]["validation"] == 0.1
    values = [trial.value for trial in again.trials if trial.value is not None]
    assert again.best_value == min(values)
    best = best_settings(again)
    assert any(text.startswith("optim.lr=") for text in best)


def test_the_experiments_own_settings_come_first(tmp_path: Path) -> None:
    experiment = scaled(get("atlas-dnn-relu"), "smoke")
    study = open_study("own", storage(tmp_path))
    tune(experiment, study, 1, tmp_path, device="cpu")
    assert study.trials[0].params == own_settings(experiment)
    config = json.loads((tmp_path / "trial-0000" / "config.json").read_text())
    assert config["experiment"]["depth"] == 7


def test_a_stopped_trial_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever comes next, in its folder, with its settings; it counts once."""
    experiment = scaled(get("atlas-dnn-relu"), "smoke")
    study = open_study("stopped", storage(tmp_path))
    # Ctrl-C within the first epoch.
    monkeypatch.setattr(Silent, "step", lambda self, step: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(InterruptedRunError):
        tune(experiment, study, 1, tmp_path, device="cpu")
    monkeypatch.undo()
    again = open_study("stopped", storage(tmp_path))
    tune(experiment, again, 1, tmp_path, device="cpu")
    states = [trial.state.name for trial in again.trials]
    assert states == ["FAIL", "COMPLETE"]
    assert again.trials[0].params == again.trials[1].params
    assert [path.name for path in tmp_path.glob("trial-*")] == ["trial-0000"]


def test_a_trial_that_always_kills_its_worker_is_given_up(tmp_path: Path) -> None:
    study = open_study("deadly", storage(tmp_path))
    queued = []
    trial = optuna.trial.create_trial(
        state=optuna.trial.TrialState.FAIL,
        params={"x": 1.0},
        distributions={"x": optuna.distributions.FloatDistribution(0, 2)},
    )
    for _ in range(5):
        before = len(study.trials)
        _take_up(study, trial)
        if len(study.trials) == before:
            break
        queued.append(study.trials[-1].user_attrs)
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.FAIL,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=queued[-1],
        )
    assert [attributes["life"] for attributes in queued] == [2, 3]


def test_a_storage_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="PostgreSQL: needs psycopg (torchapl[postgres])")
    monkeypatch.setattr("torchapl.paper.tune._ATTEMPTS", 1)
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/none"
    with pytest.raises(OSError, match=r"storage postgresql\+psycopg://me:\*\*\*@127") as told:
        open_study("s", url)
    assert "secret" not in str(told.value)


def test_a_missing_driver_is_told() -> None:
    with pytest.raises(ImportError, match=r"needs a driver that is not installed .*\[postgres\]"):
        open_study("s", "postgresql+pg8000://me@127.0.0.1/none")


def worker(
    folder: Path, url: str, trials: int, *, heartbeat_seconds: int, dies: bool = False
) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("tune_worker.py")
    arguments = [folder, url, *map(str, (trials, heartbeat_seconds, int(dies)))]
    return subprocess.Popen(
        [sys.executable, program, *arguments], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
def test_workers_share_a_postgresql_server_and_one_may_die(tmp_path: Path) -> None:
    with postgres.server() as url:
        # Both find an empty database. However slow the machine, neither takes the other for dead.
        workers = [
            worker(tmp_path, url, 3, heartbeat_seconds=10_000, dies=dies) for dies in (True, False)
        ]
        assert [process.wait() for process in workers] == [-signal.SIGKILL, 0]
        # The heartbeat of the dead worker's trial has been missed by now: its run goes on.
        time.sleep(2)
        assert worker(tmp_path, url, 4, heartbeat_seconds=1).wait() == 0
        study = open_study("s", url, heartbeat_seconds=1)
        trials = study.trials
        [failed] = [trial for trial in trials if trial.state.name == "FAIL"]
        [heir] = [t for t in trials if t.user_attrs.get("continues") == failed.number]
        assert heir.params == failed.params
        done = [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]
        assert heir in done
        assert len(done) == len(list(tmp_path.glob("trial-*"))) == 4
        assert best_settings(study)
        study._storage._backend.engine.dispose()


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
    assert [worker.wait() for worker in workers] == [0, 0]
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


def test_what_cannot_be_trained_is_told_in_a_line(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "torchapl.cli", "tune", "cifar10-maxout", "--scale", "smoke")
    done = subprocess.run(
        [*command, "--set", "depth=4", "--runs", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "maxout has a depth that cannot be changed, got depth=4" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_search_is_kept_where_it_belongs(tmp_path: Path) -> None:
    folder = tmp_path / "what?! 100% #1 ä"
    folder.mkdir()
    open_study("a", sqlite_url(folder / "study.db"))
    assert [path.name for path in folder.iterdir()] == ["study.db"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_storage_that_is_no_url_is_told() -> None:
    with pytest.raises(ValueError, match=r"storage must be a URL such as .* got 'study.db'"):
        open_study("a", "study.db")
