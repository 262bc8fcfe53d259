"""Three more activations for `torchapl compare`: Mish, xIELU and a unit in the manner of PWLU.

    torchapl compare atlas-dnn-relu --scale lab --load benchmarks/learned_rivals.py --seeds 8 \\
      --rates 2,4,8 --selection-seeds 3 --activations silu,mish,pwlu,apl

They are not rows of the paper's tables, which would grow by a fifth for each of them. xIELU grows
with the square of its input and diverges in networks without a normalisation, as this one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl.paper.own import ACTIVATIONS, Activation


@ACTIVATIONS.register
@dataclass(frozen=True)
class Mish(Activation):
    """``x * tanh(softplus(x))`` (Misra 2020)."""

    kind = "mish"
    title = "Mish"

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return nn.Mish()


class XIELUnit(nn.Module):
    """A parabola on the right, an exponential on the left, two numbers for a layer.

    After Huang and Schlag (2024), with their start: both curvatures 0.8, a slope of 0.5 at 0.
    """

    def __init__(self, slope: float = 0.5, curvature: float = 0.8) -> None:
        super().__init__()
        self.slope = slope
        # Inverses of softplus: of the curvature, and of what it has beyond the slope.
        self.right = nn.Parameter(torch.tensor(curvature).expm1().log())
        self.left = nn.Parameter(torch.tensor(curvature - slope).expm1().log())

    def forward(self, input: Tensor) -> Tensor:
        right, left = F.softplus(self.right), self.slope + F.softplus(self.left)
        below = input.clamp(max=0)
        return (
            right * input.clamp(min=0).square()
            + left * (torch.expm1(below) - below)
            + self.slope * input
        )


@ACTIVATIONS.register
@dataclass(frozen=True)
class XIELU(Activation):
    """``xielu``, one for each layer."""

    kind = "xielu"
    title = "xIELU"
    curves = XIELUnit
    curves_decay = False

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return XIELUnit()


class HeightsUnit(nn.Module):
    """Learned heights at evenly spaced knots for each channel, lines beyond the first and the last.

    In the manner of Zhou et al. (2021): it is ReLU while it collects the mean and deviation of its
    inputs; then the knots cover three deviations on both sides, and learn from ReLU on. Unlike
    theirs the ends of the range stay where they were put, and the lines beyond them go on as the
    last intervals do.
    """

    low: Tensor
    width: Tensor
    seen: Tensor

    def __init__(self, channels: int, intervals: int = 16, collect: int = 200) -> None:
        super().__init__()
        self.intervals, self.collect = intervals, collect
        self.heights = nn.Parameter(torch.zeros(channels, intervals + 1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("low", torch.zeros(channels))
        self.register_buffer("width", torch.ones(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("square", torch.zeros(channels))

    def forward(self, input: Tensor) -> Tensor:
        if self.seen < self.collect:
            if self.training:
                self._collect(input.detach())
            return F.relu(input)
        shape = (-1, *[1] * (input.dim() - 2))
        low, width = self.low.view(shape), self.width.view(shape)
        place = (input - low) / width
        index = place.detach().floor().clamp(0, self.intervals - 1)
        first = torch.arange(len(self.heights), device=input.device).view(shape)
        flat = (first * (self.intervals + 1) + index).long()
        heights = self.heights.flatten()
        left, right = heights[flat], heights[flat + 1]
        return left + (place - index) * (right - left)

    @torch.no_grad()
    def _collect(self, input: Tensor) -> None:
        rows = input.transpose(0, 1).flatten(1)
        self.seen += 1
        self.get_buffer("mean").lerp_(rows.mean(1), 1 / self.seen.item())
        self.get_buffer("square").lerp_(rows.square().mean(1), 1 / self.seen.item())
        if self.seen == self.collect:
            mean, square = self.get_buffer("mean"), self.get_buffer("square")
            reach = 3 * (square - mean.square()).clamp(min=1e-6).sqrt()
            self.low.copy_(mean - reach)
            self.width.copy_(2 * reach / self.intervals)
            knots = torch.arange(self.intervals + 1, device=input.device)
            self.heights.copy_(F.relu(self.low[:, None] + knots * self.width[:, None]))


@ACTIVATIONS.register
@dataclass(frozen=True)
class PWLU(Activation):
    """``pwlu``, sixteen intervals for each channel."""

    kind = "pwlu"
    title = "In the manner of PWLU"
    curves = HeightsUnit
    curves_decay = False

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return HeightsUnit(unit_shape[0])
