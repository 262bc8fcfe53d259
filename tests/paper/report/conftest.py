from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from torchapl.paper.experiments import get, scaled
from torchapl.paper.runs import RunResult, run_folder, write_json
from torchapl.paper.train import train


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs of every kind: images and events, finished, failed, unfinished."""
    root = tmp_path_factory.mktemp("runs")
    for experiment in ("atlas-dnn-apl", "atlas-dnn-relu", "cifar10-cnn-apl-s2"):
        first = run_folder(root, experiment, "smoke", 0)
        train(scaled(get(experiment), "smoke"), seed=0, folder=first, device="cpu")
        second = run_folder(root, experiment, "smoke", 1)
        shutil.copytree(first, second)
        _change(second / "result.json", seed=1, shift=0.0123)
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
    content = json.loads((young / "config.json").read_text()) | {"seed": 2}
    (young / "config.json").write_text(json.dumps(content))
    return root


def _store(root: Path, result: RunResult) -> None:
    folder = run_folder(root, result.experiment, result.scale, result.seed)
    folder.mkdir(parents=True)
    write_json(folder / "result.json", result.to_dict())


def _change(path: Path, *, seed: int, shift: float) -> None:
    content = json.loads(path.read_text()) | {"seed": seed}
    for key in ("test_error", "test_auc", "test_significance_histogram"):
        if key in content:
            content[key] += shift
    path.write_text(json.dumps(content))
