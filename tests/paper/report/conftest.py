from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from torchapl.paper.experiments import get, scaled
from torchapl.paper.runs import run_folder
from torchapl.paper.train import train
from torchapl.runs import RunResult
from torchapl.runs.folder import read_config, read_result, write_config, write_result


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs of every kind: images and events, finished, failed, unfinished."""
    root = tmp_path_factory.mktemp("runs")
    for experiment in ("atlas-dnn-apl", "atlas-dnn-relu", "cifar10-cnn-apl-s2"):
        first = run_folder(root, experiment, "smoke", 0)
        train(scaled(get(experiment), "smoke"), seed=0, folder=first, device="cpu")
        second = run_folder(root, experiment, "smoke", 1)
        shutil.copytree(first, second)
        _change(second, seed=1, shift=0.0123)
    for seed, error in enumerate((84.5, 83.25)):
        _store(
            root, RunResult("cifar10-cnn-relu", "smoke", seed, "finished", {"test_error": error})
        )
    _store(
        root, RunResult("cifar10-cnn-apl", "smoke", 0, "failed", {}, error="loss at step 3: NaN")
    )
    # As a run looks before its first epoch ends.
    young = run_folder(root, "cifar10-cnn-apl-s2", "smoke", 2)
    shutil.copytree(run_folder(root, "cifar10-cnn-apl-s2", "smoke", 0), young)
    for name in ("result.json", "inputs.safetensors"):
        (young / name).unlink()
    config = read_config(young)
    assert config is not None
    write_config(young, replace(config, seed=2))
    return root


def _store(root: Path, result: RunResult) -> None:
    folder = run_folder(root, result.experiment, result.scale, result.seed)
    folder.mkdir(parents=True)
    write_result(folder, result)


def _change(folder: Path, *, seed: int, shift: float) -> None:
    result = read_result(folder)
    assert result is not None
    shifted = ("test_error", "test_auc", "test_significance_histogram")
    metrics = {
        name: value + shift if name in shifted else value for name, value in result.metrics.items()
    }
    write_result(folder, replace(result, seed=seed, metrics=metrics))
