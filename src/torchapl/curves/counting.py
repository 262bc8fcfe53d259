"""The paper's argument in numbers: what APL units cost, and what their rivals would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class LayerSize:
    """A layer with units behind it.

    Attributes:
        name: Shown in the table.
        inputs: Weights of one unit, without its bias: C_in * k * k of a convolution.
        channels: Outputs that have weights of their own.
        positions: Places of the map that share these weights; 1 for a dense layer.
    """

    name: str
    inputs: int
    channels: int
    positions: int = 1

    @classmethod
    def convolution(
        cls, name: str, channels: tuple[int, int], kernel: int, size: tuple[int, int]
    ) -> LayerSize:
        """Describe a convolution by channels (in, out), kernel and size of the map it makes."""
        return cls(name, channels[0] * kernel * kernel, channels[1], prod(size))

    @property
    def weights(self) -> int:
        """Weights and biases."""
        return (self.inputs + 1) * self.channels

    @property
    def units(self) -> int:
        """Curves, if every position has its own."""
        return self.channels * self.positions


@dataclass(frozen=True)
class ParameterCount:
    """Numbers to learn in one layer, or in all.

    Attributes:
        name: The layer.
        units: How many curves it has.
        relu: Weights and biases alone.
        apl: With 2*S numbers for every curve.
        apl_per_channel: With 2*S for every channel.
        maxout: Two maxout units with free weights in place of every curve: S + 3 pieces in all.
        mlpconv: An MLPConv layer with free weights in place of every curve: S + 1 hidden units and
            their sum.
    """

    name: str
    units: int
    relu: int
    apl: int
    apl_per_channel: int
    maxout: int
    mlpconv: int


def count_parameters(layers: Sequence[LayerSize], num_hinges: int) -> list[ParameterCount]:
    """Count what a network learns with tied weights (APL) and with untied ones (maxout, MLPConv).

    An APL unit is the difference of two maxout units, and an MLPConv layer, whose weights are tied:
    all pieces are multiples of one weight vector. Untied, each of them has a weight vector of its
    own, so that maxout needs O(S*K) numbers for K inputs, where APL needs 2*S.

    Args:
        layers: All layers; the last row is their sum.
        num_hinges: The S of the units.

    Example:
        >>> fc = LayerSize("fc", inputs=2048, channels=2048)
        >>> row = count_parameters([fc], num_hinges=5)[0]
        >>> row.apl - row.relu, row.maxout - row.relu
        (20480, 29374464)
    """
    if num_hinges < 1:
        raise ValueError(f"num_hinges must be at least 1, got {num_hinges}")
    rows = [
        ParameterCount(
            name=layer.name,
            units=layer.units,
            relu=layer.weights,
            apl=layer.weights + 2 * num_hinges * layer.units,
            apl_per_channel=layer.weights + 2 * num_hinges * layer.channels,
            maxout=layer.units * (num_hinges + 3) * (layer.inputs + 1),
            mlpconv=layer.units * (num_hinges + 1) * (layer.inputs + 2),
        )
        for layer in layers
    ]
    numbers = ("units", "relu", "apl", "apl_per_channel", "maxout", "mlpconv")
    totals = {number: sum(getattr(row, number) for row in rows) for number in numbers}
    return [*rows, ParameterCount(name="total", **totals)]


def parameter_table(layers: Sequence[LayerSize], num_hinges: int) -> str:
    """Return :func:`count_parameters` as a Markdown table.

    Example:
        >>> print(parameter_table([LayerSize("fc", inputs=24, channels=10)], num_hinges=2))
        | layer | units | ReLU | APL | APL per channel | maxout, untied | MLPConv, untied |
        |---|---:|---:|---:|---:|---:|---:|
        | fc | 10 | 250 | 290 | 290 | 1,250 | 780 |
        | total | 10 | 250 | 290 | 290 | 1,250 | 780 |
    """
    head = ("layer", "units", "ReLU", "APL", "APL per channel", "maxout, untied", "MLPConv, untied")
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for row in count_parameters(layers, num_hinges):
        numbers = (row.units, row.relu, row.apl, row.apl_per_channel, row.maxout, row.mlpconv)
        lines.append("| " + " | ".join([row.name, *(f"{number:,}" for number in numbers)]) + " |")
    return "\n".join(lines)
