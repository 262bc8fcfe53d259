"""Ensembles: n networks, trained side by side, that average their probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchapl.paper.nets.base import Net, average_predictions
from torchapl.paper.optim import ParameterMultiplier
from torchapl.paper.rivals import cross_entropy


class Ensemble(Net):
    """Networks with one input, whose predictions have the mean of their probabilities.

    In training every member learns from its own loss: ``forward`` returns the logits of the first,
    ``extra_loss`` the losses of the others. Finished networks may be put together just as well.

    Args:
        members: The networks, each started or trained on its own.

    Example:
        >>> from torchapl.paper.activations import Activation
        >>> from torchapl.paper.nets import build
        >>> net = build(
        ...     "ensemble:3:higgs-dnn", activation=Activation(), input_shape=(25,), num_classes=1
        ... )
        >>> len(net.members), net.eval()(torch.randn(2, 25)).shape
        (3, torch.Size([2, 1]))
    """

    def __init__(self, members: Sequence[Net]) -> None:
        super().__init__()
        if not members:
            raise ValueError("members must be at least one network, got none")
        self.members = nn.ModuleList(members)
        self._others: list[Tensor] = []

    def _nets(self) -> list[Net]:
        return [member for member in self.members if isinstance(member, Net)]

    def forward(self, input: Tensor) -> Tensor:
        logits = [member(input) for member in self.members]
        self._others = logits[1:] if self.training else []
        return logits[0] if self.training else average_predictions(torch.stack(logits))

    def parameter_multipliers(self) -> list[ParameterMultiplier]:
        """Return those of all members."""
        return [entry for net in self._nets() for entry in net.parameter_multipliers()]

    def after_step(self) -> None:
        """Let every member restore its constraints."""
        for net in self._nets():
            net.after_step()

    def extra_loss(self, targets: Tensor, progress: float) -> Tensor:
        """Return the losses of all members but the first, and the extra losses of all."""
        others, self._others = self._others, []
        losses = [net.extra_loss(targets, progress) for net in self._nets()]
        losses += [cross_entropy(logits, targets) for logits in others]
        return torch.stack(losses).sum()

    def predict(self, input: Tensor) -> Tensor:
        """Return the logarithm of the mean of the members' probabilities."""
        return average_predictions(torch.stack([net.predict(input) for net in self._nets()]))
