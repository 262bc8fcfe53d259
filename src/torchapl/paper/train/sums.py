"""Loss and errors added up on the device, so that a step never waits to be read."""

from __future__ import annotations

import torch
from torch import Tensor

from torchapl.paper.train.distributed import World, total


class Sums:
    """Sum of losses, wrong rows and rows so far.

    Example:
        >>> sums = Sums(torch.device("cpu"))
        >>> sums.add(torch.tensor(3.0), torch.tensor(1), rows=4)
        >>> sums.numbers(World())
        {'loss': 0.75, 'error': 25.0}
    """

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.wrong = torch.zeros((), dtype=torch.float64, device=device)
        self.rows = 0

    def add(self, loss: Tensor, wrong: Tensor, rows: int) -> None:
        """Add a batch: the sum of its losses and the number of wrong rows."""
        self.loss += loss.detach()
        self.wrong += wrong
        self.rows += rows

    def numbers(self, world: World) -> dict[str, float]:
        """Return mean loss and error in percent over all processes."""
        loss, wrong, rows = total(self.state(), world).tolist()
        return {"loss": loss / rows, "error": 100 * wrong / rows}

    def state(self) -> Tensor:
        """Return all three as one tensor."""
        return torch.stack([self.loss, self.wrong, self.wrong.new_tensor(self.rows)])

    def restore(self, state: Tensor) -> None:
        """Put back what :meth:`state` returned."""
        self.loss.copy_(state[0])
        self.wrong.copy_(state[1])
        self.rows = int(state[2])
