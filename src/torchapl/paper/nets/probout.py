"""Goodfellow's CIFAR network with probout units in its lower layers (Springenberg et al. 2013)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchapl.paper.nets.base import NETWORKS, Network, average_predictions
from torchapl.paper.nets.maxout import MaxoutNet
from torchapl.paper.rivals import Maxout, Probout

# By layer; those above have maxout units.
_SHARPNESS = {1: 1.0, 2: 2.0}


class ProboutNet(MaxoutNet):
    """The maxout network whose first two layers draw their piece in every pass, in tests too.

    Attributes:
        passes: Number of passes whose probabilities a test averages.

    Example:
        >>> from torchapl.paper.activations import Activation
        >>> relu = Activation.parse("relu")
        >>> net = ProboutNet(relu, (3, 16, 16), num_classes=10, width=0.125).eval()
        >>> bool(net.predict(torch.randn(1, 3, 16, 16)).exp().sum().sub(1).abs() < 1e-5)
        True
    """

    passes = 50

    def unit(self, index: int, pieces: int) -> nn.Module:
        """Return probout units for the first two layers, maxout units above."""
        return Probout(pieces, _SHARPNESS[index]) if index in _SHARPNESS else Maxout(pieces)

    def predict(self, input: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities of several stochastic passes."""
        # What comes before the first draw is the same in all of them.
        drawn = next(i for i, layer in enumerate(self.layers) if isinstance(layer, Probout))
        before, after = self.layers[:drawn], self.layers[drawn:]
        shared = before(input)
        return average_predictions(torch.stack([after(shared) for _ in range(self.passes)]))


NETWORKS.register(
    Network(
        "probout",
        "CNN + Probout (Springenberg and Riedmiller 2013)",
        "maxout",
        ProboutNet,
        1.1e9,
    )
)
