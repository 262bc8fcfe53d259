"""The runs below a folder, finished, failed or still training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torchapl.paper.config import assignments
from torchapl.paper.experiments import EXPERIMENTS
from torchapl.paper.sweep.jobs import read_results
from torchapl.runs.folder import (
    CONFIG,
    METRICS,
    RESULT,
    RunResult,
    read_config,
    read_result,
    warn_left_out,
)
from torchapl.runs.records import DamagedError, Json, read_lines

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One run, with as much of it as there is."""

    experiment: str
    scale: str
    seed: int
    overrides: tuple[str, ...]
    result: RunResult | None
    folder: Path | None
    # Name of the data set it was trained on; empty where nobody knows.
    data: str = ""

    @property
    def setting(self) -> str:
        """What the runs of all seeds share: experiment and changed settings."""
        return " ".join((self.experiment, *self.overrides))

    @property
    def status(self) -> str:
        """``"finished"``, ``"failed"``, or ``"unfinished"`` while there is no result."""
        return "unfinished" if self.result is None else self.result.status

    @property
    def selects(self) -> bool:
        """Whether the run only served to choose a setting on held-out rows."""
        return "data.validation" in assignments(self.overrides)

    def lines(self) -> list[dict[str, Json]]:
        """Return the lines of metrics.jsonl.

        Raises:
            DamagedError: If they are not those that were written, or not all.
        """
        if not self.has(METRICS):
            return []
        path = Path(f"{self.folder}/{METRICS}")
        lines = read_lines(path)
        # A file that was cut ends like that of a run which is being written.
        if self.result is not None and len(lines) < self.result.epochs:
            reason = f"has {len(lines)} of the {self.result.epochs} epochs that were trained"
            raise DamagedError(path, reason)
        return lines

    def has(self, name: str) -> bool:
        """Whether the run has left this file."""
        return self.folder is not None and (self.folder / name).exists()


def read_runs(source: Path) -> tuple[list[Run], list[DamagedError]]:
    """Return the runs below a folder, in order of their names, and why others cannot be read.

    Args:
        source: A folder of runs, a single run's folder, or a file of results as JSON lines.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it holds no run that can be read.
    """
    if not source.exists():
        raise FileNotFoundError(f"no folder of runs at {source}")
    runs: list[Run] = []
    errors: list[DamagedError] = []
    if source.is_file():
        runs = [_of_result(result) for result in read_results(source).values()]
    else:
        files = (*source.glob(f"**/{CONFIG}"), *source.glob(f"**/{RESULT}"))
        for folder in sorted({path.parent for path in files}):
            try:
                run = _read(folder)
            except DamagedError as error:
                errors.append(error)
            else:
                # None: removed since it was found.
                runs += [] if run is None else [run]
    if not runs and errors:
        raise errors[0]
    if not runs:
        raise ValueError(
            f"no runs in {source}: `torchapl train EXPERIMENT --runs {source}` makes one"
        )
    runs.sort(key=lambda run: (run.experiment, run.overrides, run.scale, run.seed))
    return runs, errors


def made_of(source: Path, make: Callable[[list[Run]], T]) -> tuple[T, list[DamagedError]]:
    """Return what can be made of the runs below a folder whose files can all be trusted.

    Those that cannot are left out with a warning, and returned.

    Args:
        source: As in :func:`read_runs`.
        make: Reads the files that it needs.
    """
    runs, errors = read_runs(source)
    while True:
        try:
            made = make(runs)
            break
        except DamagedError as error:
            errors.append(error)
            whole = [run for run in runs if run.folder != error.path.parent]
            if not whole or len(whole) == len(runs):
                raise
            runs = whole
    warn_left_out(errors)
    return made, errors


def _of_result(result: RunResult, data: str = "") -> Run:
    if not data and result.experiment in EXPERIMENTS:
        data = EXPERIMENTS.get(result.experiment).data.name
    overrides = tuple(sorted(result.overrides))
    return Run(result.experiment, result.scale, result.seed, overrides, result, result.folder, data)


def _read(folder: Path) -> Run | None:
    result, config = read_result(folder), read_config(folder)
    data = "" if config is None else config.data
    if result is not None:
        return _of_result(result, data)
    if config is None:
        return None
    overrides = tuple(sorted(config.overrides))
    return Run(config.name, config.scale, config.seed, overrides, None, folder, data)
