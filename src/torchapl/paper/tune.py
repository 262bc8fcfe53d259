"""Bayesian search for settings, as the physics baseline was found (there with Spearmint).

Gaussian-process sampling and pruning by Optuna. A trial trains on the training rows less a
validation split; the test rows decide nothing. Trials live in an Optuna storage, so a search is
resumed by repeating it, and many workers may share one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchapl.paper.config import Experiment, Json, override
from torchapl.paper.experiments.costs import ROWS
from torchapl.paper.train import train
from torchapl.paper.train.progress import Silent

if TYPE_CHECKING:
    import optuna

# Setting, lowest and highest factor of the experiment's own value.
_LOG_RANGES = {"optim.lr": (0.1, 10.0), "optim.weight_decay": (0.01, 100.0)}
_CURVE_RANGES = {"optim.curve_lr": (0.03, 3.0), "optim.curve_decay": (1e-5, 1e-2)}
_VALIDATION_SHARE = 0.1
_ATTEMPTS = 10


def suggest(trial: optuna.Trial, experiment: Experiment) -> list[str]:
    """Return the settings of a trial as assignments.

    Learning rate and decay around the experiment's own, momentum for SGD, and for learned curves
    their learning rate and decay.
    """
    chosen: dict[str, float] = {}
    own = {"optim.lr": experiment.optim.lr, "optim.weight_decay": experiment.optim.weight_decay}
    for name, (low, high) in _LOG_RANGES.items():
        if own[name] > 0:
            chosen[name] = trial.suggest_float(name, own[name] * low, own[name] * high, log=True)
    if experiment.optim.kind != "adamw":
        chosen["optim.momentum"] = trial.suggest_float("optim.momentum", 0.5, 0.98)
    if experiment.activation.kind == "apl" and not experiment.activation.frozen:
        for name, (low, high) in _CURVE_RANGES.items():
            chosen[name] = trial.suggest_float(name, low, high, log=True)
    # Twelve digits read back as the same trial; repr would make unwieldy folder names.
    return [f"{name}={value:.12g}" for name, value in chosen.items()]


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


def open_study(name: str, storage: str) -> optuna.Study:
    """Return the study of this name, a new one where there is none.

    Args:
        name: Of the study; workers that share it share its trials.
        storage: A URL such as ``sqlite:///tune.db`` or ``postgresql://...``.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        # The Gaussian-process sampler is called experimental by Optuna.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.create_study(
            study_name=name,
            storage=_ready_storage(storage),
            load_if_exists=True,
            sampler=optuna.samplers.GPSampler(n_startup_trials=8, deterministic_objective=False),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
        )


def _ready_storage(url: str) -> optuna.storages.RDBStorage:
    """Return the storage, its tables made; two workers may come to an empty one at once."""
    import optuna
    import sqlalchemy.exc

    for _ in range(_ATTEMPTS):
        try:
            return optuna.storages.RDBStorage(url)
        except sqlalchemy.exc.DBAPIError:
            # The other worker is making the tables.
            time.sleep(1.0)
    return optuna.storages.RDBStorage(url)


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
    """Do trials until the study has ``trials`` finished ones, pruned and failed included.

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

    rows = ROWS[experiment.data.name]
    if experiment.data.limit is not None:
        rows = min(rows, experiment.data.limit)
    held_out = replace(experiment.data, validation=int(rows * _VALIDATION_SHARE))
    base = replace(experiment, data=held_out)

    def objective(trial: optuna.Trial) -> float:
        settings = suggest(trial, base)
        changed = base
        for assignment in settings:
            changed = override(changed, assignment)
        result = train(
            changed,
            seed,
            folder / f"trial-{trial.number:04d}",
            device=device,
            data_root=data_root,
            overrides=settings,
            reporter=_Pruning(trial),
        )
        if result.status == "failed":
            # A diverged run is a result: the worst there is.
            raise optuna.TrialPruned(result.error)
        trial.set_user_attr("settings", settings)
        return score(dict(result.metrics))

    finished = (
        optuna.trial.TrialState.COMPLETE,
        optuna.trial.TrialState.PRUNED,
        optuna.trial.TrialState.FAIL,
    )
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
