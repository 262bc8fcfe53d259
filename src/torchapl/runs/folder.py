"""The run folder: where a run is, who works in it, what it was made with, what came out."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import torch

from torchapl.runs.atomic import WriteError, remove_partials
from torchapl.runs.records import (
    DamagedError,
    Json,
    naming,
    numbers_of,
    read_json,
    sealed,
    unsealed,
    write_json,
)

CONFIG, RESULT, METRICS = "config.json", "result.json", "metrics.jsonl"
CURVES, INPUTS, SCORES = "curves.safetensors", "inputs.safetensors", "scores.safetensors"

_PACKAGES = ("torchapl", "torch", "numpy", "safetensors", "scikit-learn")
_FACTS = ("experiment", "scale", "seed", "status", "n_parameters", "seconds", "epochs", "error")
# result.json keeps the numbers beside the facts, and lists their names; in those of older versions
# these prefixes tell them apart.
_NUMBERS = "numbers"
_PREFIXES = ("train_", "valid_", "test_", "replaced_")


_ADVICE = "; without result.json beside it, the command that made the run mends it"


class RunLockedError(OSError):
    """Another live process works in this run folder."""


@dataclass(frozen=True)
class RunResult:
    """What one run came to, as result.json holds it.

    Example:
        >>> result = RunResult("cifar10-cnn-apl", "lab", 0, "finished", {"test_error": 24.5})
        >>> result.metrics["test_error"]
        24.5
    """

    experiment: str
    scale: str
    seed: int
    status: Literal["finished", "failed"]
    # Errors in percent; see docs/runs.md for the names.
    metrics: Mapping[str, float]
    overrides: tuple[str, ...] = ()
    n_parameters: int = 0
    seconds: float = 0.0
    epochs: int = 0
    error: str | None = None
    environment: Mapping[str, Json] = field(default_factory=dict)
    folder: Path | None = None
    # Whether a checksum vouches for it; results of older versions have none.
    is_sealed: bool = True

    def to_dict(self) -> dict[str, Json]:
        """Return the content of result.json."""
        values: dict[str, Json] = {
            "experiment": self.experiment,
            "scale": self.scale,
            "seed": self.seed,
            "status": self.status,
            "overrides": list(self.overrides),
            **self.metrics,
            _NUMBERS: list(self.metrics),
            "n_parameters": self.n_parameters,
            "seconds": self.seconds,
            "epochs": self.epochs,
            "error": self.error,
            **self.environment,
        }
        # One that came without a checksum gets none: nobody knows what happened to it before.
        return sealed(values) if self.is_sealed else values


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run folder; the lock ends with the process, however it ends.

    Raises:
        RunLockedError: If a live process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise WriteError(folder / "lock", error) from error
    with file:
        try:
            _hold(file)
        except BlockingIOError:
            file.seek(0)
            raise RunLockedError(
                f"{folder} is in use by {file.read().strip() or 'another process'}: "
                "wait for it, or stop it; its run is resumed by the same command"
            ) from None
        remove_partials(folder)
        try:
            file.truncate(0)
            # Not through Python's buffer, which would meet a full disk once more at the end.
            os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except OSError as error:
            raise WriteError(folder / "lock", error) from error
        yield


def _hold(file: IO[str]) -> None:
    try:
        import fcntl
    except ImportError:
        # Windows: there, two processes in one folder are not noticed.
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def environment(device: torch.device) -> dict[str, Json]:
    """Return what a number depends on beside the settings: versions, commit, device, threads."""
    versions: dict[str, Json] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    hardware = platform.processor() or platform.machine()
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    return {
        "versions": versions,
        "commit": _commit(),
        "device": device.type,
        "hardware": hardware,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }


def _commit() -> str | None:
    """Return the commit of this source tree, marked if changed; None outside a checkout."""
    # Installed into an environment inside somebody's own repository, it is not of their commit.
    if not _git("ls-files", "--", Path(__file__).name):
        return None
    commit = _git("rev-parse", "--short=12", "HEAD")
    # Results change no number: a command that stores its runs there may go on.
    changed = _git("status", "--porcelain", "-uno", "--", ":/", ":(exclude,top)results")
    return f"{commit}-dirty" if changed else commit or None


def _git(*arguments: str) -> str:
    """Return what git says about the folder of this file; nothing where it cannot."""
    try:
        answer = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip()


@dataclass(frozen=True)
class RunConfig:
    """What a run was begun with, as config.json holds it."""

    # Its name is among them.
    settings: Mapping[str, Json]
    scale: str
    seed: int
    overrides: tuple[str, ...] = ()
    # Versions, device and so on.
    environment: Mapping[str, Json] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the experiment."""
        return str(self.settings["name"])

    @property
    def data(self) -> str:
        """Of the data set; empty where nobody said."""
        data = self.settings.get("data", "")
        return str(data.get("name", "") if isinstance(data, dict) else data)


def write_config(folder: Path, config: RunConfig) -> None:
    """Write what a run is begun with."""
    values: dict[str, Json] = {
        "experiment": dict(config.settings),
        "scale": config.scale,
        "seed": config.seed,
        "overrides": list(config.overrides),
    }
    write_json(folder / CONFIG, values | dict(config.environment))


def read_config(folder: Path) -> RunConfig | None:
    """Return what the run was begun with, or None where there is no config.json.

    Raises:
        DamagedError: If config.json is not what was written.
    """
    path = folder / CONFIG
    if not path.exists():
        return None
    with naming(path):
        values = read_json(path).values
        settings = values.pop("experiment")
        if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
            raise TypeError("names no experiment")
        return RunConfig(
            settings,
            _typed(values, "scale", str),
            _typed(values, "seed", int),
            _strings(values.pop("overrides")),
            {key: value for key, value in values.items() if key not in ("scale", "seed")},
        )


def write_result(folder: Path, result: RunResult) -> None:
    """Write what a run came to."""
    write_json(folder / RESULT, unsealed(result.to_dict()).values)


def read_result(folder: Path) -> RunResult | None:
    """Return the run's result, or None while it has none.

    Raises:
        DamagedError: If result.json is not what was written.
    """
    path = folder / RESULT
    if not path.exists():
        return None
    with naming(path):
        record = read_json(path)
        return _result(record.values, is_sealed=record.is_sealed, folder=folder)


def result_from_dict(content: Mapping[str, Any]) -> RunResult:
    """Read a result back from what :meth:`RunResult.to_dict` returned.

    Raises:
        ValueError: If it is none, or does not match its checksum.
    """
    try:
        record = unsealed(content)
        return _result(record.values, is_sealed=record.is_sealed, folder=None)
    except KeyError as error:
        raise ValueError(f"has no {error}") from error
    except TypeError as error:
        raise ValueError(str(error)) from error


def _result(content: Mapping[str, Json], *, is_sealed: bool, folder: Path | None) -> RunResult:
    values = dict(content)
    for name, kind in (("experiment", str), ("scale", str), ("seed", int), ("epochs", int)):
        _typed(values, name, kind)
    numbers_of(values, ("seconds", "n_parameters"))
    if values["status"] not in ("finished", "failed"):
        raise ValueError(f"has status {values['status']!r}, which is neither finished nor failed")
    facts: dict[str, Any] = {name: values.pop(name) for name in _FACTS}
    overrides = _strings(values.pop("overrides"))
    by_prefix: Json = [name for name in values if name.startswith(_PREFIXES)]
    metrics = numbers_of(values, _strings(values.pop(_NUMBERS, by_prefix)))
    rest = {name: value for name, value in values.items() if name not in metrics}
    return RunResult(
        **facts,
        overrides=overrides,
        metrics=metrics,
        environment=rest,
        folder=folder,
        is_sealed=is_sealed,
    )


def _typed(values: Mapping[str, Json], name: str, kind: type) -> Any:
    value = values[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value


def _strings(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"must have a list of strings where it has {value!r}")
    return tuple(str(item) for item in value)


def load_runs(folder: Path) -> list[RunResult]:
    """Return the results of all runs below ``folder``, failed ones too, ordered by path.

    Those that cannot be trusted are left out, with a warning that names the file.

    Example:
        >>> load_runs(Path("no such folder"))
        []
    """
    results = []
    for path in sorted(folder.glob(f"**/{RESULT}")):
        try:
            result = read_result(path.parent)
        except DamagedError as error:
            warn_left_out([error])
        else:
            if result is not None:
                results.append(result)
    return results


def warn_left_out(errors: Iterable[DamagedError]) -> None:
    """Say which runs are left out, and why."""
    for error in errors:
        warnings.warn(f"left out: {error}{_ADVICE}", stacklevel=3)
