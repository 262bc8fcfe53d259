"""What a training loop may ask of every network of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log

import torch.nn.functional as F
from torch import Tensor, nn

from torchapl import APL
from torchapl.paper.activations import ACTIVATIONS
from torchapl.paper.catalogue import Catalogue
from torchapl.paper.optim import ParameterMultiplier
from torchapl.paper.rivals import cross_entropy


class Net(nn.Module):
    """A network with the six things a training loop may need beyond ``forward``.

    ``forward`` returns logits of shape ``(N, num_classes)``; one class means one logit for sigmoid
    cross-entropy.
    """

    def parameter_multipliers(self) -> list[ParameterMultiplier]:
        """Return every trainable parameter once, with its multipliers.

        Here: all factors are 1, as in the authors' CIFAR and Higgs networks, but the parameters of
        batch norm do not decay, nor curves whose activation says so.
        """
        result: dict[int, ParameterMultiplier] = {}
        for module in self.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    multiplier = self.multiplier(module, name, parameter)
                    result.setdefault(id(parameter), multiplier)
        return list(result.values())

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return the multipliers of one parameter of one module; made to be overridden."""
        for activation in ACTIVATIONS.entries.values():
            if activation.curves is not None and isinstance(module, activation.curves):
                decay = 1.0 if activation.curves_decay else 0.0
                is_slope = isinstance(module, APL) and name == "slope"
                return ParameterMultiplier(parameter, 1.0, decay, "curve", is_slope=is_slope)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return ParameterMultiplier(parameter, 1.0, 0.0, "bias")
        return ParameterMultiplier(parameter, 1.0, 1.0, "bias" if name == "bias" else "weight")

    def start_from_data_(self, batches: Iterable[Tensor]) -> None:
        """Set before the first step what depends on the training inputs, here nothing.

        Args:
            batches: Training inputs as the loop sees them, made one by one: take no more than
                needed.
        """

    def after_step(self) -> None:
        """Restore what must hold after every step of the optimiser (max-norm constraints)."""

    def summed_loss(self, logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Return the sum of the rows' losses: cross-entropy, unless a network has another.

        Args:
            logits: What ``forward`` or ``predict`` returned.
            targets: Class indices, or 0 and 1 for a single logit.
            label_smoothing: As in :func:`torchapl.paper.rivals.cross_entropy`.
        """
        return cross_entropy(logits, targets, "sum", label_smoothing)

    def extra_loss(self, targets: Tensor, progress: float) -> Tensor:
        """Return what is added to the loss of the last ``forward`` (companion losses).

        Args:
            targets: The targets of that batch.
            progress: Part of the training that is over, 0 to 1.
        """
        return targets.new_zeros((), dtype=next(self.parameters()).dtype)

    def predict(self, input: Tensor) -> Tensor:
        """Return the logits to test with; more than ``forward`` where a test takes several passes.

        Networks that average probabilities return their logarithm (for one class: their logit), so
        that argmax, softmax and sigmoid apply to any network's predictions.
        """
        output: Tensor = self(input)
        return output


class Plain(Net):
    """Any module with one input, as a network of a training loop."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.module(input)
        return output


@dataclass(frozen=True)
class Network:
    """A network by name, with what tables, scales and estimates need to know of it.

    Attributes:
        name: Of the ``net`` setting of experiments.
        title: How tables call it.
        family: Which recipe of a scale it is trained by.
        build: Called with activation, input shape, number of classes and width, and by keyword with
            a ``depth`` if it has one; returns any module that takes a batch of inputs and returns
            logits.
        multiply_adds: Of one forward pass at width 1; None where nobody has counted them.
        depth: Its own number of hidden layers, if it can be built with others.
        depths: Those among which a search chooses.
        drops: Whether it has dropout.
    """

    name: str
    title: str
    family: str
    build: Callable[..., nn.Module]
    multiply_adds: float | None = None
    depth: int | None = None
    depths: tuple[int, ...] = ()
    drops: bool = True


NETWORKS: Catalogue[Network] = Catalogue("network", lambda network: network.name)


def average_predictions(logits: Tensor) -> Tensor:
    """Return the logits of the mean probability of several predictions.

    Args:
        logits: Of shape ``(predictions, N, num_classes)``.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[2.0, -1.0]], [[0.0, 0.5]]])
        >>> mean = logits.softmax(dim=2).mean(dim=0)
        >>> bool(torch.allclose(average_predictions(logits).softmax(dim=1), mean))
        True
    """
    if logits.shape[2] == 1:
        return F.logsigmoid(logits).logsumexp(dim=0) - F.logsigmoid(-logits).logsumexp(dim=0)
    return logits.log_softmax(dim=2).logsumexp(dim=0) - log(logits.shape[0])
