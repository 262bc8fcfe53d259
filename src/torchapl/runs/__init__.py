"""The folder that a run writes and ``torchapl report`` reads, whoever trains."""

from torchapl.runs.folder import RunLockedError, RunResult, load_runs
from torchapl.runs.log import OwnRun, log_run
from torchapl.runs.records import DamagedError

__all__ = ["DamagedError", "OwnRun", "RunLockedError", "RunResult", "load_runs", "log_run"]
