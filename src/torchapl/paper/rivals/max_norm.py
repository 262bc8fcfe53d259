"""Max-norm constraints."""

from __future__ import annotations

import torch
from torch import Tensor


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
