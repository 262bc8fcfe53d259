"""Network in network with deep supervision (Lee et al. 2014)."""

from __future__ import annotations

from torch import Tensor

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.nin import NIN
from torchapl.paper.rivals import Companions


class DeeplySupervisedNIN(NIN):
    """The NIN of Lin et al. with a companion classifier on the first convolution of every block.

    Args:
        activation: Follows every convolution; ReLU in the original.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels.

    Example:
        >>> import torch
        >>> relu = Activation.parse("relu")
        >>> net = DeeplySupervisedNIN(relu, (3, 16, 16), num_classes=10, width=0.125)
        >>> logits = net(torch.randn(2, 3, 16, 16))
        >>> bool(net.extra_loss(torch.tensor([3, 7]), progress=0.0) > 0)
        True
    """

    _supervised = ("act11", "act21", "act31")

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
    ) -> None:
        super().__init__(activation, input_shape, num_classes, width, second_pool="max")
        shapes = [self.map_shapes[name] for name in self._supervised]
        self.companions = Companions(shapes, num_classes)
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

    def extra_loss(self, targets: Tensor, progress: float) -> Tensor:
        """Return the companions' losses for the last batch, weighted less as training goes on."""
        if not self._companion_logits:
            raise ValueError("extra_loss() needs a forward() in training mode before it")
        # Taken, so that the graph of the batch is freed with its loss.
        logits, self._companion_logits = self._companion_logits, []
        return self.companions.loss(logits, targets, progress)


NETWORKS.register(
    Network(
        "nin-dsn",
        "NIN + ReLU + deep supervision (Lee et al. 2014)",
        "nin",
        DeeplySupervisedNIN,
        224e6,
    )
)
