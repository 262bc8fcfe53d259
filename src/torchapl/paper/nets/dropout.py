"""Dropout whose masks cost a CPU a third of torch's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Values of 16 random bits: rates are met to 1/131072.
_LEVELS = 1 << 16


class Dropout(nn.Dropout):
    """``nn.Dropout`` that draws 16 bits for an element in place of a double.

    With torch's own, masks take a third of a training step of the paper's CNN on a CPU. On other
    devices and where a network is compiled this is ``nn.Dropout``.

    Args:
        p: The part of the elements that is dropped.
        rescale: Whether those that stay are divided by ``1 - p``, as usual. The file of maxout's
            authors does not do so with the input.

    Example:
        >>> layer = Dropout(0.25)
        >>> dropped = layer(torch.ones(40_000))
        >>> dropped.unique().tolist() == [0.0, torch.tensor(4 / 3).item()]
        True
        >>> bool((dropped == 0).float().mean().sub(0.25).abs() < 0.02)
        True
    """

    def __init__(self, p: float = 0.5, *, rescale: bool = True) -> None:
        super().__init__(p)
        self.rescale = rescale

    def forward(self, input: Tensor) -> Tensor:
        quick = self.training and 0 < self.p < 1 and input.is_cpu and input.dim() > 0
        if not quick or torch.compiler.is_compiling():
            output = super().forward(input)
            return output if self.rescale or not self.training else output * (1 - self.p)
        return input * self.factors(input, input.shape[0])

    def factors(self, input: Tensor, rows: int) -> Tensor:
        """Draw the mask of a batch of ``rows`` rows like those of ``input``."""
        last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
        # The mask lies in memory as the input does, else their product would be slow.
        sizes = [input.shape[axis] for axis in ((2, 3, 1) if last else range(1, input.dim()))]
        count = rows * torch.Size(sizes).numel()
        # Four elements from every 64 bits.
        bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        passing = bits.view(torch.int16)[:count] >= round(self.p * _LEVELS) - _LEVELS // 2
        mask = passing.to(input.dtype).view(rows, *sizes)
        if self.rescale:
            mask.mul_(1 / (1 - self.p))
        return mask.permute(0, 3, 1, 2) if last else mask.view(rows, *input.shape[1:])

    def extra_repr(self) -> str:
        return f"p={self.p}" if self.rescale else f"p={self.p}, rescale=False"
