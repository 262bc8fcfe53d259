"""The runs below a folder, finished, failed or still training."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchapl.paper.config import Json, assignments
from torchapl.paper.experiments import EXPERIMENTS
from torchapl.paper.runs import RunResult, read_config, read_lines, read_result
from torchapl.paper.sweep.jobs import read_results


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
        """Return the lines of metrics.jsonl."""
        return [] if self.folder is None else read_lines(self.folder / "metrics.jsonl")

    def has(self, name: str) -> bool:
        """Whether the run has left this file."""
        return self.folder is not None and (self.folder / name).exists()


def find_runs(source: Path) -> list[Run]:
    """Return the runs below a folder, or of a file of stored results, in order of their names.

    Args:
        source: A folder of runs, a single run's folder, or a file of results as JSON lines.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it holds no run that can be read; of several, one that cannot is warned of.
    """
    if not source.exists():
        raise FileNotFoundError(f"no folder of runs at {source}")
    if source.is_file():
        runs = [_of_result(result) for result in read_results(source).values()]
    else:
        files = (*source.glob("**/config.json"), *source.glob("**/result.json"))
        runs = _read_all({path.parent for path in files})
    if not runs:
        raise ValueError(
            f"no runs in {source}: `torchapl train EXPERIMENT --runs {source}` makes one"
        )
    return sorted(runs, key=lambda run: (run.experiment, run.overrides, run.scale, run.seed))


def _read_all(folders: Iterable[Path]) -> list[Run]:
    runs, errors = [], []
    for folder in sorted(folders):
        try:
            run = _read(folder)
        except ValueError as error:
            errors.append(error)
            continue
        # None: removed since it was found.
        if run is not None:
            runs.append(run)
    if errors and not runs:
        raise errors[0]
    for reason in errors:
        warnings.warn(f"left out: {reason}", stacklevel=3)
    return runs


def _of_result(result: RunResult, data: str = "") -> Run:
    if not data and result.experiment in EXPERIMENTS:
        data = EXPERIMENTS.get(result.experiment).data.name
    overrides = tuple(sorted(result.overrides))
    return Run(result.experiment, result.scale, result.seed, overrides, result, result.folder, data)


def _read(folder: Path) -> Run | None:
    result, config = read_result(folder), read_config(folder)
    data = "" if config is None else config.experiment.data.name
    if result is not None:
        return _of_result(result, data)
    if config is None:
        return None
    overrides = tuple(sorted(config.overrides))
    name, scale = config.experiment.name, config.experiment.scale
    return Run(name, scale, config.seed, overrides, None, folder, data)
