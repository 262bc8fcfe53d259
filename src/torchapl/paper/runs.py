"""Where the run of an experiment is, and which experiment the run in a folder is of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchapl.paper.config import Experiment, from_dict
from torchapl.runs.folder import CONFIG, RunConfig
from torchapl.runs.records import naming


def run_folder(
    root: Path, experiment: str, scale: str, seed: int, overrides: Sequence[str] = ()
) -> Path:
    """Return ``root/experiment/scale/seed``; overrides become part of the experiment's name.

    Example:
        >>> run_folder(Path("runs"), "higgs-dnn-apl", "lab", 3, ["optim.lr=0.02"]).as_posix()
        'runs/higgs-dnn-apl+optim.lr=0.02/lab/3'
    """
    changes = "".join(f"+{text.replace('/', '_').replace(' ', '')}" for text in sorted(overrides))
    return root / f"{experiment}{changes}" / scale / str(seed)


def experiment_of(folder: Path, config: RunConfig) -> Experiment:
    """Return the experiment that a run was begun with.

    Raises:
        DamagedError: If it is none, or of a version with other settings.
    """
    with naming(folder / CONFIG):
        return from_dict(config.settings)
