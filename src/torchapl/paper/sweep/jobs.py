"""A job: one run of a sweep, and the results that jobs have come to."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torchapl.paper.config import (
    VALIDATION_SHARE,
    Experiment,
    assignments,
    fingerprint,
    override_all,
)
from torchapl.paper.experiments import EXPERIMENTS, SCALES, get, scaled
from torchapl.paper.runs import experiment_of, run_folder
from torchapl.runs import RunResult, load_runs
from torchapl.runs.atomic import write_atomic
from torchapl.runs.folder import read_config, result_from_dict, warn_left_out
from torchapl.runs.records import DamagedError, naming

_HELD_OUT = "data.validation"
# Keys of a result beside its numbers: its fingerprint, and how many runs it averages.
_SETTINGS, _MEMBERS = "settings", "members"


@dataclass(frozen=True)
class Job:
    """One run: an experiment at a scale with its changed settings, and a seed.

    Attributes:
        selects: Whether training rows are held out, to choose something by them.
        members: Of an ensemble of the runs with seeds 0 to members - 1; 1 is a run itself.
    """

    experiment: str
    scale: str
    seed: int
    overrides: tuple[str, ...] = ()
    selects: bool = False
    members: int = 1

    @property
    def assignments(self) -> tuple[str, ...]:
        """All changed settings, in order."""
        held_out = (f"{_HELD_OUT}={VALIDATION_SHARE}",) if self.selects else ()
        return tuple(sorted((*self.overrides, *held_out)))

    def settings(self) -> Experiment:
        """Return the experiment that the run trains."""
        return override_all(scaled(get(self.experiment), self.scale), self.assignments)

    def folder(self, root: Path) -> Path:
        """Return the run's folder below ``root``."""
        return run_folder(root, self.experiment, self.scale, self.seed, self.assignments)

    def __str__(self) -> str:
        return " ".join((self.experiment, *self.assignments, f"seed {self.seed}"))


Results = Mapping[Job, RunResult]


def job_of(run: RunResult) -> Job:
    """Return the job that a result is of."""
    changed = assignments(run.overrides)
    held_out = changed.pop(_HELD_OUT, None)
    return Job(
        run.experiment,
        run.scale,
        run.seed,
        tuple(sorted(f"{key}={value}" for key, value in changed.items())),
        selects=held_out is not None,
        members=int(str(run.environment.get(_MEMBERS, 1))),
    )


def of_members(run: RunResult, members: int) -> RunResult:
    """Return the result of an ensemble, marked as such."""
    return replace(run, environment={**run.environment, _MEMBERS: members})


def read_results(source: Path) -> dict[Job, RunResult]:
    """Return the results below a folder of runs, or in a file of stored ones, by job.

    See :func:`by_job` for those that do not count.
    """
    if not source.is_file():
        return by_job(load_runs(source))
    results, errors = _stored(source)
    if errors and not results:
        raise DamagedError(source, f"is not a file of stored results: {errors[0].reason}")
    warn_left_out(errors)
    return by_job(results)


def read_store(path: Path) -> dict[Job, RunResult]:
    """Return the results of a file that will be written again, by job; none if there is no file.

    A damaged line is an error: what is left out here would be gone.
    """
    if not path.exists():
        return {}
    results, errors = _stored(path)
    if errors:
        raise errors[0]
    return by_job(results)


def by_job(runs: Iterable[RunResult]) -> dict[Job, RunResult]:
    """Return results by job.

    Runs that were trained with other settings than their experiment has today do not count, nor
    those that do not say with which.
    """
    known: list[RunResult] = []
    for run in runs:
        try:
            known.append(_with_fingerprint(run))
        except DamagedError as error:
            warn_left_out([error])
    stale = [run for run in known if _is_stale(run)]
    if stale:
        warnings.warn(
            f"{len(stale)} of {len(known)} results do not count: they were made with other "
            f"settings than {stale[0].experiment} and others have now",
            stacklevel=2,
        )
    return {job_of(run): run for run in known if run not in stale}


def _stored(source: Path) -> tuple[list[RunResult], list[DamagedError]]:
    results: list[RunResult] = []
    errors: list[DamagedError] = []
    with naming(source):
        lines = source.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            with naming(source):
                results.append(result_from_dict(json.loads(line)))
        except DamagedError as error:
            errors.append(DamagedError(source, f"line {number}: {error.reason}"))
    return results, errors


def _with_fingerprint(run: RunResult) -> RunResult:
    # Results of older versions have none of their own.
    if run.folder is None or _SETTINGS in run.environment or run.scale not in SCALES:
        return run
    config = read_config(run.folder)
    if config is None:
        return run
    settings = fingerprint(experiment_of(run.folder, config))
    return replace(run, environment={**run.environment, _SETTINGS: settings})


def _is_stale(run: RunResult) -> bool:
    # A run of somebody's own experiment has no settings here to compare with, and fills no table.
    known = run.environment.get(_SETTINGS)
    if known is None or run.experiment not in EXPERIMENTS or run.scale not in SCALES:
        return False
    try:
        now = override_all(scaled(get(run.experiment), run.scale), run.overrides)
    except ValueError:
        # A setting that there was once.
        return True
    return known != fingerprint(now)


def write_results(results: Results, path: Path) -> None:
    """Store the results as JSON lines: small, and enough to make every table again."""
    lines = [json.dumps(run.to_dict(), sort_keys=True) for run in results.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Atomic: the file may hold what no folder has any more.
    write_atomic(path, ("\n".join(sorted(lines)) + "\n").encode())
