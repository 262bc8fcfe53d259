"""Whole training steps of the paper's networks: APL against ReLU, the loop against bare steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from torchapl.bench.timing import Spread, interleaved, ratios
from torchapl.paper.config import Data, Experiment
from torchapl.paper.experiments import get
from torchapl.paper.train.trainer import Trainer

# Network, the experiment with APL, and the one with ReLU; the sizes are the paper's.
NETS = {
    "CNN, S=5 per unit": ("cifar10-cnn-apl", "cifar10-cnn-relu"),
    "NIN, S=2 per unit": ("cifar10-nin-apl", "cifar10-nin-relu"),
    "Higgs DNN, S=2": ("higgs-dnn-apl", "higgs-dnn-relu"),
}


@dataclass(frozen=True)
class StepMeasurement:
    """One network: times of a step as ratios to the bare ReLU step."""

    net: str
    threads: int
    apl: Spread
    relu_loop: Spread
    milliseconds: float


def measure_step(
    net: str, threads: int, *, device: str = "cpu", rounds: int = 7
) -> StepMeasurement:
    """Time a step with APL and with ReLU, and one of the training loop, in turn.

    Args:
        net: A name of :data:`NETS`.
        threads: Of torch.
        device: Where.
        rounds: How often each is timed.
    """
    torch.set_num_threads(threads)
    with_apl, with_relu = (_on_toy_data(get(name)) for name in NETS[net])
    calls: dict[str, Callable[[], object]] = {}
    for name, experiment in (("apl", with_apl), ("relu", with_relu)):
        trainer = Trainer(experiment, 0, device=torch.device(device))
        inputs, targets = next(iter(trainer.bundle.train.epoch(0)))
        calls[name] = lambda t=trainer, x=inputs, y=targets: t.bare_step(x, y)  # type: ignore[misc]  # mypy cannot infer a default's type
        if name == "relu":
            calls["loop"] = lambda t=trainer, x=inputs, y=targets: t.step(x, y)  # type: ignore[misc]  # mypy cannot infer a default's type
    seconds = interleaved(calls, rounds=rounds)
    found = ratios(seconds, to="relu")
    middle = sorted(seconds["relu"])[rounds // 2]
    return StepMeasurement(net, threads, found["apl"], found["loop"], 1000 * middle)


def _on_toy_data(experiment: Experiment) -> Experiment:
    """Return the experiment on made-up rows of the right shape; a step costs the same."""
    name = "toy-images" if experiment.net in ("cifar-cnn", "nin") else "toy-events"
    small_steps = replace(experiment.optim, lr=1e-6, schedule="constant", factors=())
    return replace(experiment, data=Data(name, experiment.data.preprocessing), optim=small_steps)
