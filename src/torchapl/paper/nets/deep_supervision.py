"""Network in network with deep supervision (Lee et al. 2014)."""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import Tensor, nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.nin import NIN
from torchapl.paper.optim import ParameterMultiplier
from torchapl.paper.rivals import Companions, cross_entropy, squared_hinge

_LOSSES = {"squared-hinge": squared_hinge, "cross-entropy": cross_entropy}
# Phase 1 of the released solvers has companions and takes 50,000 of all 200,000 iterations.
_PHASE_1 = 0.25
# In them the companions' rate falls as (1 + 0.0001 * iteration) ** -0.75.
_FALL = 0.0001 * 200_000


class DeeplySupervisedNIN(NIN):
    """NIN with a companion classifier on the first convolution of every block.

    The companions see the maps before the activation; there is none after the last convolution.
    They are dropped after the first quarter of a training, and learn at a thousandth of the
    network's rate, so that they are hardly more than random projections.

    Args:
        activation: Follows every convolution but the last; ReLU in the original.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels.
        loss: Of the output and the companions: squared hinge for CIFAR-10, cross-entropy for
            CIFAR-100, where the former does not converge.

    Example:
        >>> import torch
        >>> relu = Activation.parse("relu")
        >>> net = DeeplySupervisedNIN(relu, (3, 16, 16), num_classes=10, width=0.125)
        >>> logits = net(torch.randn(2, 3, 16, 16))
        >>> bool(net.extra_loss(torch.tensor([3, 7]), progress=0.0) > 0)
        True
    """

    _supervised = ("conv11", "conv21", "conv31")

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
        *,
        loss: Literal["squared-hinge", "cross-entropy"] = "squared-hinge",
    ) -> None:
        super().__init__(
            activation,
            input_shape,
            num_classes,
            width,
            second_pool="max",
            last_rates=(0.1, 0.2),
            ends_linear=True,
        )
        self._loss = _LOSSES[loss]
        shapes = [self.map_shapes[name] for name in self._supervised]
        self.companions = Companions(shapes, num_classes, self._loss, until=_PHASE_1)
        self._companion_logits: list[Tensor] = []

    def forward(self, input: Tensor) -> Tensor:
        maps = []
        output = input
        for name, layer in self.layers.named_children():
            output = layer(output)
            if name in self._supervised:
                maps.append(output)
        self._companion_logits = self.companions(maps) if self.training else []
        return output

    def multiplier(
        self, module: nn.Module, name: str, parameter: nn.Parameter
    ) -> ParameterMultiplier:
        """Return the values of the released files."""
        entry = super().multiplier(module, name, parameter)
        if module in self.companions.heads:
            return entry._replace(lr=0.001 * entry.lr, lr_fall=_FALL)
        return entry

    def summed_loss(self, logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Return the sum of the rows' losses, of the kind that the companions have too."""
        if label_smoothing:
            raise ValueError(
                "deep supervision has losses of its own, label_smoothing must be 0, "
                f"got {label_smoothing}"
            )
        return self._loss(logits, targets, "sum")

    def extra_loss(self, targets: Tensor, progress: float) -> Tensor:
        """Return the companions' losses for the last batch; 0 after the first quarter."""
        if not self._companion_logits:
            raise ValueError("extra_loss() needs a forward() in training mode before it")
        # Taken, so that the graph of the batch is freed with its loss.
        logits, self._companion_logits = self._companion_logits, []
        return self.companions.loss(logits, targets, progress)


_TITLE = "NIN + ReLU + deep supervision (Lee et al. 2014)"
NETWORKS.register(Network("nin-dsn", _TITLE, "nin", DeeplySupervisedNIN, 224e6))
NETWORKS.register(
    Network("nin-dsn-100", _TITLE, "nin", partial(DeeplySupervisedNIN, loss="cross-entropy"), 228e6)
)
