"""Which runs a table needs, and which of them come next: a pure function of the results so far."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchapl.paper.config import Experiment, fingerprint, override
from torchapl.paper.experiments import EXPERIMENTS, GRID, SCALES, Table, get, scaled
from torchapl.paper.experiments.costs import ROWS
from torchapl.paper.runs import experiment_of, run_folder
from torchapl.runs import RunResult, load_runs
from torchapl.runs.atomic import write_atomic
from torchapl.runs.folder import read_config, result_from_dict, warn_left_out
from torchapl.runs.records import DamagedError, naming

# Part of the training rows that is held out while something is chosen.
_VALIDATION_SHARE = 0.1
_RATE = "optim.lr="
# Key of a result's fingerprint.
_SETTINGS = "settings"


@dataclass(frozen=True)
class Job:
    """One run: an experiment at a scale with its changed settings, and a seed."""

    experiment: str
    scale: str
    seed: int
    overrides: tuple[str, ...] = ()

    def settings(self) -> Experiment:
        """Return the experiment that the run trains."""
        experiment = scaled(get(self.experiment), self.scale)
        for assignment in self.overrides:
            experiment = override(experiment, assignment)
        return experiment

    def folder(self, root: Path) -> Path:
        """Return the run's folder below ``root``."""
        return run_folder(root, self.experiment, self.scale, self.seed, self.overrides)


Results = Mapping[Job, RunResult]


def read_results(source: Path) -> dict[Job, RunResult]:
    """Return the results below a folder of runs, or in a file of stored ones, by job.

    See :func:`by_job` for those that do not count.
    """
    return by_job(_stored(source) if source.is_file() else load_runs(source))


def by_job(runs: Iterable[RunResult]) -> dict[Job, RunResult]:
    """Return results by job.

    Runs that were trained with other settings than their experiment has today do not count.
    """
    found = {
        Job(run.experiment, run.scale, run.seed, tuple(sorted(run.overrides))): run
        for run in map(_with_fingerprint, runs)
    }
    stale = [job for job, run in found.items() if _is_stale(job, run)]
    if stale:
        warnings.warn(
            f"{len(stale)} of {len(found)} results do not count: they were made with other "
            f"settings than {stale[0].experiment} and others have now",
            stacklevel=2,
        )
    return {job: run for job, run in found.items() if job not in stale}


def _stored(source: Path) -> list[RunResult]:
    results, errors = [], []
    with naming(source):
        lines = source.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            with naming(source):
                results.append(result_from_dict(json.loads(line)))
        except DamagedError as error:
            errors.append(DamagedError(source, f"line {number}: {error.reason}"))
    if errors and not results:
        raise DamagedError(source, f"is not a file of stored results: {errors[0].reason}")
    warn_left_out(errors)
    return results


def _with_fingerprint(run: RunResult) -> RunResult:
    # Results of older versions have none of their own.
    if run.folder is None or _SETTINGS in run.environment or run.scale not in SCALES:
        return run
    config = read_config(run.folder)
    if config is None:
        return run
    settings = fingerprint(experiment_of(run.folder, config))
    return replace(run, environment={**run.environment, _SETTINGS: settings})


def _is_stale(job: Job, run: RunResult) -> bool:
    # An ensemble has none: it is made of runs that do. A run of somebody's own experiment has no
    # settings here to compare with, and fills no table.
    known = run.environment.get(_SETTINGS)
    if known is None or job.experiment not in EXPERIMENTS or job.scale not in SCALES:
        return False
    return known != fingerprint(job.settings())


def write_results(results: Results, path: Path) -> None:
    """Store the results as JSON lines: small, and enough to make every table again."""
    lines = [json.dumps(run.to_dict(), sort_keys=True) for run in results.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Atomic: the file may hold what no folder has any more.
    write_atomic(path, ("\n".join(sorted(lines)) + "\n").encode())


@dataclass(frozen=True)
class Choice:
    """One decision of the validation rows: the candidates, their scores, the winner."""

    candidates: tuple[str, ...]
    # Mean validation error in percent, or 1 - AUC; infinite where every run failed.
    scores: tuple[float, ...]

    @property
    def winner(self) -> str:
        """The candidate with the lowest score; the first of equal ones."""
        return self.candidates[self.scores.index(min(self.scores))]


@dataclass(frozen=True)
class Sweep:
    """The runs of some tables at one scale.

    Args:
        scale: ``"paper"``, ``"lab"`` or ``"smoke"``.
        seeds: Runs of every cell.
        selection_seeds: Runs of every candidate while something is chosen; with 0 nothing is, and
            the experiments' own settings count.

    Example:
        >>> sweep = Sweep("smoke", seeds=2)
        >>> [job.seed for job in sweep.next_jobs("cifar10-cnn-relu", {})]
        [0, 1]
    """

    scale: str
    seeds: int
    selection_seeds: int = 1

    def stages(self, experiment: str, *, choose: bool = True) -> list[tuple[str, ...]]:
        """Return what the validation rows decide, one list of candidates after the other.

        At lab scale the learning rate comes first, from the same grid for every row: the best one
        differs by activation, and a common one would favour some. CIFAR-10 decides it for the other
        columns, and one number of hinges for all. At smoke scale nothing is chosen.
        """
        if self.selection_seeds == 0:
            return []
        settings = scaled(get(experiment), self.scale)
        stages = []
        if self.scale == "lab":
            stages.append(tuple(f"{_RATE}{settings.optim.lr * factor:g}" for factor in GRID))
        if choose and settings.choices and self.scale != "smoke":
            stages.append(settings.choices)
        return stages

    def choices(
        self, experiment: str, results: Results, *, choose: bool = True
    ) -> tuple[list[Choice], list[Job]]:
        """Return the decisions made so far and the runs that the next one waits for."""
        made: list[Choice] = []
        for candidates in self.stages(experiment, choose=choose):
            jobs = {
                candidate: self._selection_jobs(experiment, [*made], candidate)
                for candidate in candidates
            }
            missing = [job for group in jobs.values() for job in group if job not in results]
            if missing:
                return made, missing
            scores = tuple(_mean_score([results[job] for job in jobs[c]]) for c in candidates)
            made.append(Choice(candidates, scores))
        return made, []

    def _selection_jobs(self, experiment: str, made: Sequence[Choice], candidate: str) -> list[Job]:
        if candidate.startswith(_RATE):
            experiment = _rate_experiment(experiment)
        settings = scaled(get(experiment), self.scale)
        rows = ROWS[settings.data.name]
        if settings.data.limit is not None:
            rows = min(rows, settings.data.limit)
        held_out = f"data.validation={int(rows * _VALIDATION_SHARE)}"
        overrides = (*self._effective(experiment, [*_winners(made), candidate]), held_out)
        return [
            Job(experiment, self.scale, seed, tuple(sorted(overrides)))
            for seed in range(self.selection_seeds)
        ]

    def _effective(self, experiment: str, overrides: Sequence[str]) -> list[str]:
        # What changes nothing is left out, so that the run is found under its plain name.
        settings = scaled(get(experiment), self.scale)
        return [text for text in overrides if override(settings, text) != settings]

    def final_jobs(self, experiment: str, made: Sequence[Choice], seeds: int) -> list[Job]:
        """Return the runs that count, on all training rows, with what was chosen."""
        overrides = tuple(sorted(self._effective(experiment, _winners(made))))
        return [Job(experiment, self.scale, seed, overrides) for seed in range(seeds)]

    def final_runs(
        self, experiment: str, made: Sequence[Choice], results: Results
    ) -> dict[int, RunResult]:
        """Return those of the runs that count which have a result, by seed, in order."""
        overrides = self.final_jobs(experiment, made, 1)[0].overrides
        # Not by way of all jobs: seeds may be large, such as dates.
        found = {
            job.seed: run
            for job, run in results.items()
            if job.experiment == experiment
            and (job.scale, job.overrides) == (self.scale, overrides)
            and 0 <= job.seed < self.seeds
        }
        return dict(sorted(found.items()))

    def next_jobs(
        self, experiment: str, results: Results, *, choose: bool = True, members: int = 1
    ) -> list[Job]:
        """Return the runs to do now for one experiment; none when it is complete."""
        made, missing = self.choices(experiment, results, choose=choose)
        if missing:
            return missing
        finals = self.final_jobs(experiment, made, max(self.seeds, members))
        return [job for job in finals if job not in results]


def ensemble_job(first: Job, members: int) -> Job:
    """Return the name under which the ensemble of the runs with seeds 0 to members - 1 is kept."""
    overrides = tuple(sorted((*first.overrides, f"ensemble={members}")))
    return replace(first, seed=0, overrides=overrides)


def _rate_experiment(experiment: str) -> str:
    """Return the experiment whose runs choose the learning rate of this one."""
    on_cifar10 = re.sub("^cifar100?-(aug-)?", "cifar10-", experiment)
    return re.sub("-apl-s[0-9]+$", "-apl", on_cifar10)


def _winners(made: Sequence[Choice]) -> list[str]:
    return [choice.winner for choice in made]


def _mean_score(runs: Sequence[RunResult]) -> float:
    """Return the mean validation error, or 1 - AUC; a failed run makes it infinite."""
    if any(run.status == "failed" for run in runs):
        return float("inf")
    values = [
        1 - run.metrics["valid_auc"] if "valid_auc" in run.metrics else run.metrics["valid_error"]
        for run in runs
    ]
    return sum(values) / len(values)


def chooses_settings(table: Table) -> bool:
    """Return whether slopes and numbers of hinges are chosen: Table 3 compares the latter."""
    return table.name != "table3"


def wanted_experiments(tables: Sequence[Table]) -> dict[tuple[str, bool], int]:
    """Return the members of the largest ensemble by experiment and whether settings are chosen.

    Two tables may want the same experiment, one with chosen settings and one with its own.
    """
    wanted: dict[tuple[str, bool], int] = {}
    for table in tables:
        for row in table.rows:
            for cell in row.cells.values():
                key = (cell.experiment, chooses_settings(table))
                wanted[key] = max(wanted.get(key, 1), cell.members)
    return wanted
