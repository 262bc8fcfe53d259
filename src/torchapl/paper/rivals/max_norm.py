"""Max-norm constraints."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def max_norm_(weight: Tensor, bound: float) -> Tensor:
    """Shrink every filter (row of a linear layer) that is longer than ``bound`` to that length.

    Args:
        weight: Of shape ``(filters, ...)``; changed in place and returned.
        bound: Largest L2 norm that a filter may have.

    Example:
        >>> max_norm_(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    if not bound > 0:
        raise ValueError(f"bound must be positive, got {bound}")
    if weight.dim() < 2:
        raise ValueError(f"weight must have the shape (filters, ...), got {tuple(weight.shape)}")
    norms = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)
    return weight.mul_(torch.where(norms > bound, bound / norms, 1.0))


@torch.no_grad()
def max_norm_layer_(layer: nn.Conv2d | nn.Linear, bound: float) -> None:
    """Shrink a whole layer, biases too, until its longest filter is no longer than ``bound``.

    Args:
        layer: Changed in place.
        bound: Largest L2 norm that a filter may have.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> with torch.no_grad():
        ...     _ = layer.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
        >>> max_norm_layer_(layer, 1.0)
        >>> layer.weight.detach()
        tensor([[0.6000, 0.8000],
                [0.0600, 0.0800]])
    """
    if not bound > 0:
        raise ValueError(f"bound must be positive, got {bound}")
    longest = torch.linalg.vector_norm(layer.weight.flatten(1), dim=1).amax()
    # Without a branch on the value, which a GPU would have to wait for.
    factor = torch.where(longest > bound, bound / longest, 1.0)
    layer.weight.mul_(factor)
    if layer.bias is not None:
        layer.bias.mul_(factor)
