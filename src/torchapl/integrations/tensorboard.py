"""Statistics and pictures of the curves in TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from torchapl.integrations.curves import curve_statistics
from torchapl.plotting import plot

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def add_curves(
    writer: SummaryWriter, model: nn.Module, step: int, *, prefix: str = "curves"
) -> None:
    """Write the statistics of all curves as scalars, and a picture of them.

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter``.
        model: Holds units somewhere.
        step: The training step.
        prefix: The first part of every tag.
    """
    for tag, value in curve_statistics(model, prefix).items():
        writer.add_scalar(tag, value, step)  # type: ignore[no-untyped-call]  # torch has no types
    writer.add_figure(prefix, plot(model), step)  # type: ignore[no-untyped-call]
