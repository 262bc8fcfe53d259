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
    best = _score(output, sharpness)
    for part in others:
        score = _score(part, sharpness)
        output = torch.where(score > best, part, output)
        best = torch.maximum(score, best)
    return output


@torch.no_grad()
def _score(part: Tensor, sharpness: float) -> Tensor:
    """Return logits plus Gumbel noise, the largest of which is a draw from their softmax."""
    # Below float32 the noise would take too few values.
    wide = part.to(torch.promote_types(part.dtype, torch.float32))
    return sharpness * wide - torch.empty_like(wide).exponential_().log()
