"""The run folder: where a run is, who works in it, what it was made with, what came out."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from torchapl.paper.atomic import WriteError, remove_partials, write_atomic
from torchapl.paper.config import Experiment, Json, from_dict

_PACKAGES = ("torchapl", "torch", "numpy", "safetensors", "scikit-learn")
# result.json keeps the numbers beside the facts; these prefixes tell them apart.
_NUMBERS = ("train_", "valid_", "test_", "replaced_")


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

    def to_dict(self) -> dict[str, Json]:
        """Return the content of result.json."""
        return {
            "experiment": self.experiment,
            "scale": self.scale,
            "seed": self.seed,
            "status": self.status,
            "overrides": list(self.overrides),
            **self.metrics,
            "n_parameters": self.n_parameters,
            "seconds": self.seconds,
            "epochs": self.epochs,
            "error": self.error,
            **self.environment,
        }


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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run folder; the lock ends with the process, however it ends.

    Raises:
        RunLockedError: If a live process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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


def write_json(path: Path, values: Mapping[str, Json]) -> None:
    """Write readable JSON, atomically."""
    write_atomic(path, (json.dumps(values, indent=2) + "\n").encode())


def append_line(path: Path, values: Mapping[str, Json]) -> None:
    """Append one line of JSON and see it to the disk."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(path, error) from error


def read_lines(path: Path) -> list[dict[str, Json]]:
    """Read JSON lines; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def keep_epochs(path: Path, epochs: int) -> None:
    """Drop the lines of epochs after ``epochs``: a resumed run writes them again."""
    kept = [line for line in read_lines(path) if int(str(line["epoch"])) <= epochs]
    write_atomic(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def environment(device: torch.device, compile: str) -> dict[str, Json]:
    """Return what a number depends on beside the experiment: versions, commit, device, threads."""
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
        "compile": compile,
        "platform": platform.platform(),
    }


def _commit() -> str | None:
    """Return the commit of this source tree, marked if changed; None outside a checkout."""
    # Installed into an environment inside somebody's own repository, it is not of their commit.
    if not _git("ls-files", "--", Path(__file__).name):
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None


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

    experiment: Experiment
    seed: int
    overrides: tuple[str, ...]
    # Versions, device and so on.
    environment: Mapping[str, Json]


def read_config(folder: Path) -> RunConfig | None:
    """Return what the run was begun with, or None where there is no config.json.

    Raises:
        ValueError: If config.json is damaged, or of a version with other settings.
    """
    path = folder / "config.json"
    if not path.exists():
        return None
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        return RunConfig(
            from_dict(content.pop("experiment")),
            int(content.pop("seed")),
            tuple(content.pop("overrides")),
            content,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the configuration of a run: {error!r}") from error


def read_result(folder: Path) -> RunResult | None:
    """Return the run's result, or None while it has none.

    Raises:
        ValueError: If result.json is not one.
    """
    path = folder / "result.json"
    if not path.exists():
        return None
    try:
        return result_from_dict(json.loads(path.read_text(encoding="utf-8")), folder)
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the result of a run: {error!r}") from error


def result_from_dict(content: Mapping[str, Any], folder: Path | None = None) -> RunResult:
    """Read a result back from what :meth:`RunResult.to_dict` returned."""
    values = dict(content)
    facts = ("experiment", "scale", "seed", "status", "n_parameters", "seconds", "epochs", "error")
    return RunResult(
        **{name: values.pop(name) for name in facts},
        overrides=tuple(values.pop("overrides")),
        metrics={key: values.pop(key) for key in list(values) if key.startswith(_NUMBERS)},
        environment=values,
        folder=folder,
    )


def load_runs(folder: Path) -> list[RunResult]:
    """Return the results of all runs below ``folder``, failed ones too, ordered by path.

    Example:
        >>> load_runs(Path("no such folder"))
        []
    """
    results = (read_result(path.parent) for path in sorted(folder.glob("**/result.json")))
    return [result for result in results if result is not None]
