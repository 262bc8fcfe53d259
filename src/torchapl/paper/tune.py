"""Bayesian search for settings, as the physics baseline was found (there with Spearmint).

Gaussian-process sampling and pruning by Optuna. A trial trains on the training rows less a
validation split; the test rows decide nothing. Trials live in an Optuna storage, so a search is
resumed by repeating it, and many workers may share one. A trial whose worker was stopped or died is
taken up again by whoever comes next, from its last checkpoint.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchapl.paper.config import VALIDATION_SHARE, Experiment, override
from torchapl.paper.space import Choice, own_settings, search_space
from torchapl.paper.train import InterruptedRunError, train
from torchapl.paper.train.progress import Silent
from torchapl.runs.atomic import WriteError
from torchapl.runs.records import Json

if TYPE_CHECKING:
    import optuna

_ATTEMPTS = 10
# A worker signs on this often; after two such times without a sign its trial goes to others.
_HEARTBEAT_SECONDS = 60
# What kills its worker every time (too little memory) is not tried for ever.
_LIVES = 3
# Attributes of a trial that goes on with another one's run: whose, and how often that was tried.
_CONTINUES, _LIFE = "continues", "life"


def suggest(trial: optuna.Trial, experiment: Experiment) -> list[str]:
    """Return the settings of a trial as assignments: a point of the experiment's search space."""
    settings = []
    for dimension in search_space(experiment):
        name = dimension.setting
        if isinstance(dimension, Choice):
            value = str(trial.suggest_categorical(name, dimension.values))
        else:
            drawn = trial.suggest_float(name, dimension.low, dimension.high, log=dimension.log)
            # Twelve digits read back as the same trial; repr would make unwieldy folder names.
            value = f"{drawn:.12g}"
        settings.append(f"{name}={value}")
    return settings


class _Pruning(Silent):
    """Tells Optuna the validation score after every epoch and ends a trial without prospects."""

    def __init__(self, trial: optuna.Trial) -> None:
        self._trial = trial

    def epoch(self, line: dict[str, Json]) -> None:
        import optuna

        value = score(line)
        self._trial.report(value, int(str(line["epoch"])))
        if self._trial.should_prune():
            raise optuna.TrialPruned


def score(numbers: dict[str, Json]) -> float:
    """Return what is minimised: the validation error in percent, or 1 - AUC.

    Example:
        >>> score({"valid_error": 12.5}), score({"valid_auc": 0.75, "valid_error": 30.0})
        (12.5, 0.25)
    """
    if "valid_auc" in numbers:
        return 1 - float(str(numbers["valid_auc"]))
    return float(str(numbers["valid_error"]))


def open_study(
    name: str, storage: str, *, heartbeat_seconds: int = _HEARTBEAT_SECONDS
) -> optuna.Study:
    """Return the study of this name, a new one where there is none.

    Args:
        name: Of the study; workers that share it share its trials.
        storage: A URL such as ``sqlite:///tune.db`` or ``postgresql+psycopg://user@host/database``.
        heartbeat_seconds: How often a worker signs on.

    Raises:
        OSError: If the storage does not answer.
        ImportError: If the URL needs a driver that is not installed.
    """
    import optuna

    # What fails is raised, and told in a line: no traceback beside it.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        # The Gaussian-process sampler and heartbeats are called experimental by Optuna.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.create_study(
            study_name=name,
            storage=_ready_storage(storage, heartbeat_seconds),
            load_if_exists=True,
            sampler=optuna.samplers.GPSampler(n_startup_trials=8, deterministic_objective=False),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
        )


def sqlite_url(path: Path) -> str:
    """Return the URL of a storage in a file, whatever characters its path has."""
    import sqlalchemy

    return sqlalchemy.URL.create("sqlite", database=str(path.resolve())).render_as_string()


def _ready_storage(url: str, heartbeat_seconds: int) -> optuna.storages.RDBStorage:
    """Return the storage, its tables made; two workers may come to an empty one at once."""
    import optuna
    import sqlalchemy

    try:
        shown = sqlalchemy.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError as error:
        raise ValueError(f"storage must be a URL such as sqlite:///tune.db, got {url!r}") from error
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return optuna.storages.RDBStorage(
                url,
                heartbeat_interval=heartbeat_seconds,
                heartbeat_stale_trial_callback=_take_up,
            )
        except sqlalchemy.exc.DBAPIError as error:
            if attempt == _ATTEMPTS:
                raise OSError(f"the storage {shown} does not answer: {error.orig}") from error
            # The other worker is making the tables, or the server is about to start.
            time.sleep(1.0)
        except ImportError as error:
            raise ImportError(
                f"the storage {shown} needs a driver that is not installed ({error}); for "
                "PostgreSQL: pip install 'torchapl[postgres]', postgresql+psycopg://user@host/name"
            ) from error
    raise AssertionError("unreachable")


def _take_up(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """Queue a trial that did not end, to go on with its run."""
    life = trial.user_attrs.get(_LIFE, 1)
    if life < _LIVES and trial.params:
        origin = trial.user_attrs.get(_CONTINUES, trial.number)
        study.enqueue_trial(trial.params, user_attrs={_CONTINUES: origin, _LIFE: life + 1})


def tune(
    experiment: Experiment,
    study: optuna.Study,
    trials: int,
    folder: Path,
    *,
    device: str = "auto",
    data_root: Path | None = None,
    seed: int = 0,
) -> None:
    """Do trials until the study has ``trials`` finished ones, pruned and diverged included.

    Args:
        experiment: What to tune; its own settings are the first trial.
        study: From :func:`open_study`.
        trials: How many the study is to have, those of other workers and earlier calls included.
        folder: The trials' runs are kept below it.
        device: As in :func:`train`.
        data_root: Folder with the data sets' files.
        seed: Of every trial's run.
    """
    import optuna

    # As many as were asked for by --set data.validation=N, else a tenth.
    validation = experiment.data.validation or VALIDATION_SHARE
    held_out = replace(experiment.data, validation=validation)
    base = replace(experiment, data=held_out)

    def objective(trial: optuna.Trial) -> float:
        settings = suggest(trial, base)
        changed = base
        for assignment in settings:
            changed = override(changed, assignment)
        number = trial.user_attrs.get(_CONTINUES, trial.number)
        try:
            result = train(
                changed,
                seed,
                folder / f"trial-{number:04d}",
                device=device,
                data_root=data_root,
                overrides=settings,
                reporter=_Pruning(trial),
            )
        except (InterruptedRunError, WriteError):
            # Saved, and not the settings' fault.
            _take_up(study, study.trials[trial.number])
            raise
        if result.status == "failed":
            # A diverged run is a result: the worst there is.
            raise optuna.TrialPruned(result.error)
        trial.set_user_attr("settings", settings)
        return score(dict(result.metrics))

    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(own_settings(base), skip_if_exists=True)
    finished = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    enough = optuna.study.MaxTrialsCallback(trials, states=finished)
    if len(study.get_trials(states=finished)) < trials:
        study.optimize(objective, callbacks=[enough])


def best_settings(study: optuna.Study) -> Sequence[str]:
    """Return the best trial's settings as assignments for ``--set``."""
    import optuna

    complete = study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    if not complete:
        raise ValueError("no trial has finished: all were pruned or diverged")
    return list(min(complete, key=lambda trial: trial.value or 0.0).user_attrs["settings"])
