"""The moving parts of one run: network, optimiser, data; one step and one evaluation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchapl.paper import metrics
from torchapl.paper.config import Experiment, Optim
from torchapl.paper.data import Batches, open_data
from torchapl.paper.nets import Net
from torchapl.paper.optim import build_optimizer, set_schedule
from torchapl.paper.train import checkpoint, observe
from torchapl.paper.train.distributed import Share, World, in_order, shard_dropout_, total
from torchapl.paper.train.network import Compile, build_network
from torchapl.paper.train.sums import Sums
from torchapl.runs.records import Json
from torchapl.watch import same_random_state


class DivergedError(ArithmeticError):
    """The loss or a curve is no longer finite; the message says where."""


@dataclass(frozen=True)
class Evaluation:
    """Numbers of one pass over a data set, and for events the scores they came from."""

    numbers: Mapping[str, float]
    scores: Tensor | None = None
    labels: Tensor | None = None

    def named(self, prefix: str) -> dict[str, float]:
        """Return the numbers as ``prefix_error`` and so on."""
        return {f"{prefix}_{name}": value for name, value in self.numbers.items()}


@dataclass
class Position:
    """How far a run is: what a checkpoint holds beside tensors."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    # Numbers of the last whole epoch on training rows, and of the best one on validation rows.
    trained: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Everything that one run changes from step to step.

    Args:
        experiment: What to train.
        seed: Of the start, the order of the data and dropout.
        device: Where.
        data_root: Folder of the data sets' files.
        world: Which of how many processes this is.
        compile: ``"default"`` compiles the network, ``"graphs"`` captures CUDA graphs too.
    """

    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        *,
        device: torch.device,
        data_root: Path | None = None,
        world: World | None = None,
        compile: Compile = "none",
    ) -> None:
        self.experiment, self.seed, self.device = experiment, seed, device
        self.world, self.compile = world or World(), compile
        _warn_of_slow_precision(experiment, device)
        data = experiment.data
        self.bundle = open_data(
            data.name,
            data_root,
            batch_size=experiment.batch_size,
            seed=seed,
            preprocessing=data.preprocessing,
            augment=data.augment,
            padding=data.padding,
            validation=data.validation,
            limit=data.limit,
            device=device,
            rank=self.world.rank,
            world_size=self.world.size,
            # A step of the paper's networks takes 0.5 to 0.7 of the time, on CPUs too.
            channels_last=True,
        )
        torch.manual_seed(seed)
        self.net = build_network(experiment, self.bundle, device, compile)
        self.share = Share()
        self.model: nn.Module = self.net
        if self.world.size > 1:
            shard_dropout_(self.net, self.share)
            self.model = DistributedDataParallel(
                self.net, device_ids=[device.index] if device.type == "cuda" else None
            )
        self.steps_per_epoch = len(self.bundle.train)
        self.total_steps = self.steps_per_epoch * experiment.epochs
        self.optim = _fitted(experiment, self.total_steps)
        self.optimizer = build_optimizer(
            self.net.parameter_multipliers(), self.optim, experiment.activation.steps
        )
        self.is_binary = self.bundle.num_classes == 1
        self.has_extra_loss = type(self.net).extra_loss is not Net.extra_loss
        self.position = Position()
        # A CPU's values can be read at no cost; a signal to one process must be told to the others.
        self.reads_losses = device.type == "cpu"
        self.checks_each_step = self.reads_losses and self.world.size == 1
        # Of the present epoch.
        self.sums = self.new_sums()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the training outputs, in the experiment's precision."""
        if self.experiment.precision == "float32":
            return cast(Tensor, self.model(inputs))
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            return cast(Tensor, self.model(inputs)).float()

    def backward(self, loss: Tensor) -> None:
        """Replace all gradients by those of the loss."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch

    def forward_and_loss(
        self, inputs: Tensor, targets: Tensor, factor: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs, the sum of the rows' losses, and this sum times a factor."""
        outputs = self.forward(inputs)
        summed = self.net.summed_loss(outputs, targets, self.experiment.label_smoothing)
        return outputs, summed, summed * factor

    def bare_step(self, inputs: Tensor, targets: Tensor) -> None:
        """Do forward, backward and update, nothing else: what the loop is measured against."""
        self.backward(self.forward_and_loss(inputs, targets, 1 / len(targets))[2])
        self.optimizer.step()

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Do one step of the run, with schedule, constraints and sums."""
        position = self.position
        self._set_share(len(targets))
        # DDP averages over processes, whose shares of a batch may differ by a row.
        factor = self.world.size / self.share.rows
        outputs, summed, loss = self.forward_and_loss(inputs, targets, factor)
        if self.has_extra_loss:
            loss = loss + self.net.extra_loss(targets, position.step / self.total_steps)
        seen = summed.item() if self.reads_losses else summed.detach().double()
        if self.checks_each_step:
            checked = loss.item() if self.has_extra_loss else seen
            if not math.isfinite(checked):
                raise DivergedError(self.diagnosis(inputs))
        self.backward(loss)
        set_schedule(self.optimizer, self.optim, position.step, self.total_steps)
        self.optimizer.step()
        self.net.after_step()
        self.sums.add(seen, outputs, targets)
        position.step += 1
        position.batch += 1

    def _set_share(self, rows: int) -> None:
        """Find out which rows of the whole batch are this process's."""
        if self.world.size == 1:
            self.share.first, self.share.rows = 0, rows
            return
        counts = torch.zeros(self.world.size, device=self.device)
        counts[self.world.rank] = rows
        all_counts = total(counts, self.world).tolist()
        self.share.first = int(sum(all_counts[: self.world.rank]))
        self.share.rows = int(sum(all_counts))

    def new_sums(self) -> Sums:
        """Return sums of no rows yet."""
        return Sums(self.device, self._wrong)

    def _wrong(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.is_binary:
            return ((outputs.flatten() > 0) != (targets > 0.5)).sum()
        return (outputs.argmax(1) != targets).sum()

    def check(self, inputs: Tensor | None = None) -> None:
        """Raise DivergedError unless losses so far and all parameters are finite."""
        norms = torch._foreach_norm([p.detach() for p in self.net.parameters()])
        finite = torch.isfinite(torch.stack([n.double() for n in norms])).all()
        finite &= torch.isfinite(torch.as_tensor(self.sums.loss))
        if int(total((~finite).double(), self.world)):
            raise DivergedError(self.diagnosis(inputs))

    def diagnosis(self, inputs: Tensor | None) -> str:
        """Say at which step and in which layer a number stopped being finite."""
        start = (
            f"step {self.position.step} (epoch {self.position.epoch + 1}) of {self.experiment.name}"
        )
        advice = "; a smaller optim.lr may help"
        for name, module in self.net.named_modules():
            for kind, parameter in module.named_parameters(recurse=False):
                if not bool(torch.isfinite(parameter).all()):
                    what = "curves" if name in observe.units(self.net) else "parameters"
                    return f"{start}: the {what} of layer {name!r} ({kind}) are not finite{advice}"
        where = observe.first_not_finite(self.net, inputs) if inputs is not None else None
        if where is not None:
            return f"{start}: the output of layer {where!r} is not finite{advice}"
        return f"{start}: the loss is not finite{advice}"

    def train_numbers(self) -> dict[str, float]:
        """Return loss and error of the epoch so far, over all processes."""
        return {f"train_{key}": value for key, value in self.sums.numbers(self.world).items()}

    @torch.no_grad()
    def evaluate(self, batches: Batches) -> Evaluation:
        """Return loss and error (percent), and for events AUC and significances, of a data set."""
        self.net.eval()
        sums = self.new_sums()
        scores, labels = [], []
        with same_random_state([self.device]):
            # A network that is stochastic at test time gives the same numbers whenever it is asked.
            torch.manual_seed(self.seed)
            for inputs, targets in batches.epoch(0):
                outputs = self.net.predict(inputs).float()
                sums.add(self.net.summed_loss(outputs, targets).double(), outputs, targets)
                if self.is_binary:
                    scores.append(outputs.flatten().sigmoid().cpu())
                    labels.append(targets.cpu())
        self.net.train()
        numbers = sums.numbers(self.world)
        if not self.is_binary:
            return Evaluation(numbers)
        all_scores, all_labels = in_order(scores, self.world), in_order(labels, self.world)
        if not bool(torch.isfinite(all_scores).all()):
            raise DivergedError(self.diagnosis(None))
        numbers["auc"] = metrics.auc(all_scores, all_labels)
        numbers["significance_cut"] = metrics.cut_significance(all_scores, all_labels)
        numbers["significance_histogram"] = metrics.histogram_significance(all_scores, all_labels)
        return Evaluation(numbers, all_scores, all_labels)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Return all that a resumed run needs, as tensors and plain facts; all processes ask."""
        buffers, groups = checkpoint.pack_optimizer(self.optimizer)
        tensors = {f"net/{name}": tensor for name, tensor in self.net.state_dict().items()}
        tensors |= {f"optimizer/{name}": tensor for name, tensor in buffers.items()}
        tensors |= {f"rng/{k}": tensor for k, tensor in observe.rng_state(self.device).items()}
        tensors["sums"] = total(self.sums.state(), self.world)
        facts = cast("dict[str, Json]", {"position": vars(self.position).copy(), "groups": groups})
        return tensors, facts

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Json]) -> None:
        """Put back what :meth:`state` returned."""

        def below(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}

        self.net.load_state_dict(below("net/"))
        groups = cast("list[Json]", facts["groups"])
        checkpoint.unpack_optimizer(self.optimizer, below("optimizer/"), groups)
        observe.set_rng_state(below("rng/"), self.device)
        # They are those of all processes: the first one carries them on.
        sums = tensors["sums"]
        self.sums.restore(sums if self.world.is_first else torch.zeros_like(sums))
        self.position = Position(**cast("dict[str, float]", facts["position"]))  # type: ignore[arg-type]  # checked by the checksum


def _warn_of_slow_precision(experiment: Experiment, device: torch.device) -> None:
    # Without AVX-512 torch convolves in bfloat16 by plain loops, forty times as slow as in float32.
    if (
        experiment.precision == "bfloat16"
        and device.type == "cpu"
        and torch.backends.cpu.get_cpu_capability() in ("AVX2", "DEFAULT")
    ):
        warnings.warn(
            f"precision=bfloat16 of {experiment.name} is very slow on a CPU without AVX-512; "
            "--set precision=float32 is quicker there",
            stacklevel=2,
        )


def _fitted(experiment: Experiment, steps: int) -> Optim:
    """Return the optimiser's settings, the schedule shortened where there are far fewer rows.

    Else the learning rate would end where the published one had hardly begun to fall.
    """
    made_for = experiment.made_for_steps
    if made_for is None or steps >= made_for / 2:
        return experiment.optim
    warnings.warn(
        f"the schedule of {experiment.name} was made for {made_for:,} iterations, this run has "
        f"{steps:,} ({experiment.epochs} epochs of {experiment.data.name}, perhaps smaller here "
        f"than the published set): it is shortened to {steps / made_for:.3g} of its length. "
        "Settings optim.* of your own, by --set, are taken as they are",
        stacklevel=2,
    )
    return experiment.optim.stretched(steps / made_for)
