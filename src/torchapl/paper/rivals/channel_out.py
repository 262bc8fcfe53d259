"""Channel-out (Wang and JaJa 2013)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchapl.paper.rivals.pieces import check_input, check_pieces, split, winners


class ChannelOut(nn.Module):
    r"""Channel-out units: of every group of k channels only the largest keeps its value.

    .. math::
        h_{i U + u} = z_{i U + u} \, [i = \arg\max_{j < k} z_{j U + u}]

    for U groups and k·U channels: a group takes one channel from each of k blocks, as in
    :class:`Maxout`. Unlike there, the next layer is told which one won. Of equal channels the first
    wins; a group with a NaN passes as it is. Only the winner gets a gradient.

    Args:
        pieces: The k of the formula.
        dim: The axis of the channels.

    Shape:
        Input and output: ``pieces * U`` channels at ``dim``.

    Example:
        >>> ChannelOut(2)(torch.tensor([[1.0, 5.0, 2.0, 3.0]]))
        tensor([[0., 5., 2., 0.]])
    """

    def __init__(self, pieces: int, dim: int = 1) -> None:
        super().__init__()
        self.pieces = check_pieces(pieces)
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return channel_out(input, self.pieces, dim=self.dim)

    def extra_repr(self) -> str:
        return f"{self.pieces}, dim={self.dim}"


def channel_out(input: Tensor, pieces: int, *, dim: int = 1) -> Tensor:
    """Zero all but the largest channel of every group, see :class:`ChannelOut`."""
    dim = check_input(input, pieces, dim)
    parts = split(input.detach(), pieces, dim)
    masks = winners(parts)
    broken = torch.stack([piece.isnan() for piece in parts]).any(dim=0)
    keep = torch.cat([mask | broken for mask in masks], dim=dim)
    return torch.where(keep, input, 0.0)
