"""Probout (Springenberg and Riedmiller 2013)."""

from __future__ import annotations

from math import isfinite

import torch
from torch import Tensor, nn

from torchapl.paper.rivals.pieces import check_input, check_pieces, split


class Probout(nn.Module):
    r"""Probout units: maxout whose piece is drawn at random, larger ones more often.

    .. math::
        h_u = z_{i U + u}, \quad i \sim p_i = \frac{e^{\lambda z_{i U + u}}}
        {\sum_{j < k} e^{\lambda z_{j U + u}}}

    The draw is made in evaluation mode too: a test averages the probabilities of many passes, see
    ``predict`` of the network ``"probout"``. Only the drawn piece gets a gradient.

    Args:
        pieces: The k of the formula.
        sharpness: The :math:`\lambda`; maxout is its limit at infinity.
        dim: The axis of the channels.

    Shape:
        Input: ``pieces * U`` channels at ``dim``. Output: ``U`` channels there.

    Example:
        >>> Probout(2, sharpness=100.0)(torch.tensor([[1.0, 5.0, 2.0, 3.0]]))
        tensor([[2., 5.]])
    """

    def __init__(self, pieces: int, sharpness: float = 1.0, dim: int = 1) -> None:
        super().__init__()
        if not isfinite(sharpness) or sharpness < 0:
            raise ValueError(f"sharpness must be finite and not negative, got {sharpness}")
        self.pieces = check_pieces(pieces)
        self.sharpness = sharpness
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return probout(input, self.pieces, self.sharpness, dim=self.dim)

    def extra_repr(self) -> str:
        return f"{self.pieces}, sharpness={self.sharpness}, dim={self.dim}"


def probout(input: Tensor, pieces: int, sharpness: float = 1.0, *, dim: int = 1) -> Tensor:
    """Return a randomly drawn piece of every unit, see :class:`Probout`."""
    dim = check_input(input, pieces, dim)
    output, *others = split(input, pieces, dim)
    weights = _log_weight(output, sharpness)
    for piece in others:
        # One after the other: a piece replaces those before it with its share of all so far. That
        # is a uniform number less per unit than a draw among all at once.
        weight = _log_weight(piece, sharpness)
        share = torch.sigmoid(weight - weights)
        output = torch.where(torch.rand_like(share) < share, piece, output)
        weights = torch.logaddexp(weights, weight)
    return output


@torch.no_grad()
def _log_weight(piece: Tensor, sharpness: float) -> Tensor:
    # Below float32 a uniform number would take too few values.
    return sharpness * piece.to(torch.promote_types(piece.dtype, torch.float32))
