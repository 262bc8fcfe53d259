"""dasNet (Stollenga et al. 2014): a maxout network that looks several times and gates its maps."""

from __future__ import annotations

import torch
from torch import Tensor

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Network
from torchapl.paper.nets.maxout import MaxoutNet
from torchapl.paper.rivals import SNES, gates, policy_cost

# Filters are gated, before maxout chooses among them: 960 in all, for a policy of 922,560 numbers.
_GATED = ("conv1", "conv2", "conv3")
_FIRST_DEVIATION = 0.01


class DasNet(MaxoutNet):
    """A maxout network with a policy that turns averages of filter maps into gates of them.

    Gradient descent trains the network alone. The policy is found by natural evolution (SNES) on
    the finished network: call :meth:`search_policy`, or leave it to :meth:`extra_loss`, which makes
    one generation per batch in the last hundredth of a training, when the network hardly changes.

    Args:
        activation: Must be left at ``relu``.
        input_shape: ``(C, H, W)``.
        num_classes: Number of logits.
        width: Factor on all numbers of channels and hidden units.

    Attributes:
        passes: Looks at every image; the first is the plain network's.
        population: Policies tried per generation.
        policy_share: Part of the training at its end in which ``extra_loss`` searches.
        policy: Mean of the search, the policy in use; 0, which is the plain network, at the start.

    Example:
        >>> relu = Activation.parse("relu")
        >>> net = DasNet(relu, (3, 16, 16), num_classes=10, width=0.05).eval()
        >>> images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])
        >>> bool(torch.allclose(net.predict(images), net(images)))
        True
        >>> net.search_policy(images, labels, generations=2)
        >>> bool(net.policy.any())
        True
    """

    policy: Tensor
    policy_deviation: Tensor
    passes = 5
    population = 50
    policy_share = 0.01

    def __init__(
        self,
        activation: Activation,
        input_shape: tuple[int, ...],
        num_classes: int,
        width: float = 1.0,
    ) -> None:
        super().__init__(activation, input_shape, num_classes, width)
        maps = sum(self.map_shapes[name][0] for name in _GATED)
        size = maps * (maps + 1)
        self.register_buffer("policy", torch.zeros(size))
        self.register_buffer("policy_deviation", torch.full((size,), _FIRST_DEVIATION))
        self._last_input: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        self._last_input = input.detach() if self.training else None
        return super().forward(input)

    def predict(self, input: Tensor) -> Tensor:
        """Return the logits of the last of several looks."""
        return self._look(input, self.policy)

    @torch.no_grad()
    def search_policy(self, input: Tensor, targets: Tensor, generations: int = 1) -> None:
        """Improve the policy on a batch, without dropout and without touching the network."""
        was_training = self.training
        self.eval()
        search = SNES(self.policy, self.policy_deviation, self.population)
        for _ in range(generations):
            costs = [policy_cost(self._look(input, draw), targets, draw) for draw in search.ask()]
            search.tell(torch.stack(costs))
        self.train(was_training)

    def extra_loss(self, targets: Tensor, progress: float) -> Tensor:
        """Search on the last batch near the end of a training; the loss itself stays 0."""
        batch, self._last_input = self._last_input, None
        if progress >= 1 - self.policy_share and batch is not None:
            self.search_policy(batch, targets)
        return super().extra_loss(targets, progress)

    def _look(self, input: Tensor, policy: Tensor) -> Tensor:
        sizes = [self.map_shapes[name][0] for name in _GATED]
        factors: Tensor | None = None
        for look in range(self.passes):
            output, averages = input, []
            parts = iter(() if factors is None else torch.split(factors, sizes, dim=1))
            for name, layer in self.layers.named_children():
                output = layer(output)
                if name in _GATED:
                    if factors is not None:
                        output = output * next(parts)[:, :, None, None]
                    averages.append(output.mean(dim=(2, 3)))
            if look < self.passes - 1:
                factors = gates(policy, torch.cat(averages, dim=1))
        return output


NETWORKS.register(
    Network(
        "dasnet",
        "CNN + Maxout + selective attention (Stollenga et al. 2014)",
        "maxout",
        DasNet,
        1.1e9,
    )
)
