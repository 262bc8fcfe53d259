"""Whole training steps of the networks: the default APL against SiLU and ReLU, and the loop.

The loop is the one of :mod:`torchapl.paper.train`, with drawing batches, schedule, checks, sums and
progress. What it adds is measured twice: as the ratio of its time to that of bare steps on the same
batches, and directly, as its time outside forward, loss, backward and update.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchapl.paper.config import Experiment
from torchapl.paper.data.catalogue import DATA_SETS
from torchapl.paper.data.events import ArrayRows, EventBatches
from torchapl.paper.experiments import get
from torchapl.paper.train.loop import Run
from torchapl.paper.train.progress import Plain
from torchapl.paper.train.trainer import Trainer

# Their rows "apl-default" (the library's default unit), "silu" and "relu", in the paper's sizes.
NETS = {
    "CNN": "cifar10-cnn",
    "NIN": "cifar10-nin",
    "ResNet": "cifar10-resnet",
    "Higgs DNN": "higgs-dnn",
}
# Short, so that many pairs are compared: the machine changes its speed within a second.
_BLOCK_SECONDS = 0.03
_WARM_UP = 3
_REPEATS = 50


class Confidence(NamedTuple):
    """The median of a sample and the bounds of the population's median, at 95 %."""

    median: float
    low: float
    high: float


class Parts(NamedTuple):
    """A number for each of the three calls that a step needs."""

    forward: float
    backward: float
    update: float


@dataclass(frozen=True)
class StepMeasurement:
    """One network: times of a step as ratios to the bare ReLU step, and what the loop adds to it.

    Attributes:
        apl: The bare step with APL, over the bare step with ReLU.
        silu: The bare step with SiLU, over the bare step with ReLU.
        apl_to_silu: The bare step with APL, over the bare step with SiLU.
        relu_loop: A step of the loop with ReLU, over the bare step with ReLU.
        blocks: How many pairs of blocks the ratios are of.
        milliseconds: The bare step with ReLU.
        added: Microseconds of a step of the loop outside forward, loss, backward and update.
        checkpoint: Milliseconds to save a checkpoint, which the loop does once a minute.
        curves: Microseconds more with APL than with SiLU in each part of a bare step.
    """

    net: str
    threads: int
    apl: Confidence
    silu: Confidence
    apl_to_silu: Confidence
    relu_loop: Confidence
    blocks: int
    milliseconds: float
    added: float
    checkpoint: float
    curves: Parts

    @property
    def added_percent(self) -> float:
        """What the loop adds, directly measured, in percent of the bare step."""
        return self.added / (10 * self.milliseconds)


def confidence(values: Iterable[float]) -> Confidence:
    """Return the median with its 95 % interval, which holds for any distribution.

    The interval is between two order statistics, as in the sign test; with fewer than six values
    it is their whole range.

    Example:
        >>> confidence(range(1, 12))
        Confidence(median=6, low=2, high=10)
    """
    ordered = sorted(values)
    size = len(ordered)
    below, outside = 0, 2 * 0.5**size
    while outside <= 0.05:
        below += 1
        outside += 2 * math.comb(size, below) * 0.5**size
    rank = max(below - 1, 0)
    return Confidence(median(ordered), ordered[rank], ordered[-1 - rank])


def measure_step(
    net: str, threads: int, *, device: str = "cpu", rounds: int = 11, least_seconds: float = 10.0
) -> StepMeasurement:
    """Time short blocks of steps in turn: bare with APL, SiLU and ReLU, the loop with ReLU.

    Args:
        net: A name of :data:`NETS`.
        threads: Of torch.
        device: Where.
        rounds: Least number of blocks of each.
        least_seconds: Least time to go on for; more blocks narrow the intervals.
    """
    torch.set_num_threads(threads)
    apl, silu, relu = (
        Trainer(_on_toy_data(get(f"{NETS[net]}-{row}")), 0, device=torch.device(device))
        for row in ("apl-default", "silu", "relu")
    )
    for trainer in (apl, silu, relu):
        _lengthen_(trainer)
    with TemporaryDirectory() as folder:
        run = Run(relu, Path(folder), (), math.inf, Plain(io.StringIO()), tensorboard=False)
        run.reporter.begin(net, 0, relu.total_steps, relu.experiment.epochs)
        candidates = {
            "apl": _Candidate(apl, lambda batches: _bare(apl, batches), draws=False),
            "silu": _Candidate(silu, lambda batches: _bare(silu, batches), draws=False),
            "relu": _Candidate(relu, lambda batches: _bare(relu, batches), draws=False),
            "loop": _Candidate(relu, run.steps, draws=True),
        }
        seconds = _in_turn(candidates, rounds, least_seconds)
        parts = _parts_in_turn(
            {name: candidates[name] for name in ("apl", "silu", "loop")}, len(seconds["loop"])
        )
        added = median(total - sum(inside) for total, inside in parts["loop"])
        curves = _more(parts["apl"], parts["silu"])
        start = perf_counter()
        run.save()
        saving = perf_counter() - start

    def ratio(name: str, to: str = "relu") -> Confidence:
        return confidence(a / b for a, b in zip(seconds[name], seconds[to], strict=True))

    return StepMeasurement(
        net,
        threads,
        ratio("apl"),
        ratio("silu"),
        ratio("apl", to="silu"),
        ratio("loop"),
        len(seconds["relu"]),
        1000 * median(seconds["relu"]),
        1e6 * added,
        1000 * saving,
        curves,
    )


def _bare(trainer: Trainer, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    for inputs, targets in batches:
        trainer.bare_step(inputs, targets)


class _Candidate:
    """Blocks of steps with one trainer, on batches that go on from block to block.

    Args:
        trainer: Has the data; several candidates see the same batches in the same order.
        work: Does a step with each batch.
        draws: Whether drawing the batches is part of the work.
    """

    def __init__(
        self,
        trainer: Trainer,
        work: Callable[[Iterable[tuple[Tensor, Tensor]]], None],
        *,
        draws: bool,
    ) -> None:
        self.trainer, self.work, self.draws = trainer, work, draws
        epochs = (trainer.bundle.train.epoch(number) for number in count())
        self.batches: Iterator[tuple[Tensor, Tensor]] = chain.from_iterable(epochs)

    def seconds(self, steps: int) -> float:
        """Return the time per step of a block."""
        block: Iterable[tuple[Tensor, Tensor]] = islice(self.batches, steps)
        if not self.draws:
            block = list(block)
        self._wait()
        start = perf_counter()
        self.work(block)
        self._wait()
        return (perf_counter() - start) / steps

    def _wait(self) -> None:
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize(self.trainer.device)


def _in_turn(
    candidates: dict[str, _Candidate], rounds: int, least_seconds: float
) -> dict[str, list[float]]:
    """Return seconds per step, one value per candidate and round; every round is a comparison."""
    single = median(candidates["relu"].seconds(1) for _ in range(_WARM_UP))
    steps = max(1, round(_BLOCK_SECONDS / single))
    for candidate in candidates.values():
        candidate.seconds(steps)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    end = perf_counter() + least_seconds
    while len(seconds["relu"]) < rounds or perf_counter() < end:
        for name in order:
            seconds[name].append(candidates[name].seconds(steps))
        # A machine that gets slower or faster favours nobody.
        order.reverse()
    return seconds


class _Timers:
    """Seconds that the three necessary calls of a trainer have taken since they were asked for.

    Host time: where a device works on its own, waiting for it would be counted.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._seconds = [0.0, 0.0, 0.0]
        owners = (
            (trainer, "forward_and_loss"),
            (trainer, "backward"),
            (trainer.optimizer, "step"),
        )
        for part, (owner, name) in enumerate(owners):
            setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part: int, call: Callable[..., object]) -> Callable[..., object]:
        def measured(*arguments: object) -> object:
            start = perf_counter()
            result = call(*arguments)
            self._seconds[part] += perf_counter() - start
            return result

        return measured

    def take(self, steps: int) -> Parts:
        """Return the seconds per step and begin anew."""
        parts = Parts(*(seconds / steps for seconds in self._seconds))
        self._seconds[:] = [0.0] * len(parts)
        return parts


def _parts_in_turn(
    candidates: dict[str, _Candidate], rounds: int
) -> dict[str, list[tuple[float, Parts]]]:
    """Return for every candidate and round the seconds of a step and of its three calls."""
    single = min(candidate.seconds(1) for candidate in candidates.values())
    steps = max(1, min(50, round(_BLOCK_SECONDS / single)))
    timers = {name: _Timers(candidate.trainer) for name, candidate in candidates.items()}
    found: dict[str, list[tuple[float, Parts]]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            total = candidate.seconds(steps)
            found[name].append((total, timers[name].take(steps)))
    return found


def _more(ones: list[tuple[float, Parts]], others: list[tuple[float, Parts]]) -> Parts:
    """Return the median differences in microseconds, compared round by round."""
    pairs = [(one, other) for (_, one), (_, other) in zip(ones, others, strict=True)]
    return Parts(*(1e6 * median(a[i] - b[i] for a, b in pairs) for i in range(3)))


def _on_toy_data(experiment: Experiment) -> Experiment:
    """Return the experiment on made-up rows of the right shape; a step costs the same."""
    name = DATA_SETS.get(experiment.data.name).stand_ins["smoke"]
    data = replace(experiment.data, name=name, validation=0, limit=None)
    optim = replace(experiment.optim, lr=1e-6)
    return replace(experiment, data=data, optim=optim, made_for_steps=None)


def _lengthen_(trainer: Trainer) -> None:
    """Repeat the made-up events: epochs of 2,000 steps rather than 40; the real ones have more."""
    train = trainer.bundle.train
    if isinstance(train, EventBatches):
        table = np.empty((train.rows, train.columns), dtype=np.float32)
        train.source.read(train.start, table)
        rows = ArrayRows(np.tile(table, (_REPEATS, 1)))
        longer = replace(train, source=rows, start=0, rows=_REPEATS * train.rows)
        trainer.bundle = replace(trainer.bundle, train=longer)
