"""How an axis of an input divides into the pieces of rival units."""

from __future__ import annotations

import torch
from torch import Tensor


def check_pieces(pieces: int) -> int:
    """Return ``pieces``, refusing what is not a number of pieces."""
    if not isinstance(pieces, int) or isinstance(pieces, bool):
        raise TypeError(f"pieces must be an int, got {type(pieces).__name__}")
    if pieces < 1:
        raise ValueError(f"pieces must be at least 1, got {pieces}")
    return pieces


def check_input(input: Tensor, pieces: int, dim: int) -> int:
    """Return a non-negative ``dim``, refusing inputs that do not divide into pieces there."""
    check_pieces(pieces)
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a tensor, got {type(input).__name__}")
    if not input.is_floating_point():
        raise TypeError(f"input must be of a floating dtype, got {input.dtype}")
    if not -input.dim() <= dim < input.dim():
        raise ValueError(f"dim={dim} is not an axis of an input of shape {tuple(input.shape)}")
    dim %= input.dim()
    if input.shape[dim] % pieces:
        raise ValueError(
            f"input has {input.shape[dim]} channels at dim={dim}, which do not divide into "
            f"{pieces} pieces: give a multiple of {pieces}"
        )
    return dim


def split(input: Tensor, pieces: int, dim: int) -> tuple[Tensor, ...]:
    """Return views of the pieces: piece i of unit u is channel ``i * units + u``.

    Blocks, not neighbours: each piece is dense in memory, so elementwise kernels are vectorised.

    Example:
        >>> [piece.tolist() for piece in split(torch.arange(4.0), 2, 0)]
        [[0.0, 1.0], [2.0, 3.0]]
    """
    size = input.shape[dim] // pieces
    return tuple(input.narrow(dim, index * size, size) for index in range(pieces))


@torch.no_grad()
def winners(pieces: tuple[Tensor, ...]) -> list[Tensor]:
    """Return for every piece where it is the largest; of equal ones the first wins."""
    best = pieces[0]
    for piece in pieces[1:]:
        best = torch.maximum(best, piece)
    free = torch.ones_like(best, dtype=torch.bool)
    masks = []
    for piece in pieces[:-1]:
        mask = (piece == best) & free
        free = free & ~mask
        masks.append(mask)
    # What nobody has won is the last piece's, a NaN among them.
    return [*masks, free]
