"""Your own data, network and activation; `torchapl compare` finds the best activation.

    torchapl compare flowers --load examples/own_experiments.py --activations relu,bent,apl

The table may be any CSV or Parquet file with a header: name the column that holds the class.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from torchapl.paper.own import (
    ACTIVATIONS,
    ADAMW,
    DATA_SETS,
    EXPERIMENTS,
    NETWORKS,
    Activation,
    Data,
    DataSet,
    Experiment,
    Network,
    nn,
    table,
)

flowers = Path(__file__).with_name("flowers.csv")
DATA_SETS.register(
    DataSet("flowers", "Flowers", "petals of three species", load=table(flowers, label="species"))
)


def small_net(
    activation: Activation, input_shape: tuple[int, ...], num_classes: int, width: float
) -> nn.Module:
    """Build two hidden layers; activation.build((n,)) follows a layer of n units."""
    units = round(32 * width)
    return nn.Sequential(
        nn.Linear(input_shape[0], units),
        activation.build((units,)),
        nn.Linear(units, units),
        activation.build((units,)),
        nn.Linear(units, num_classes),
    )


NETWORKS.register(Network("small-net", "small net", "own", small_net))


class Bent(nn.Module):
    """The bent identity."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return (torch.sqrt(input * input + 1) - 1) / 2 + input


@ACTIVATIONS.register
@dataclass(frozen=True)
class BentIdentity(Activation):
    """Entry of the catalogue: `--activations bent`."""

    kind = "bent"
    title = "Bent identity"

    def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
        return Bent()


EXPERIMENTS.register(
    Experiment(
        "flowers",
        net="small-net",
        data=Data("flowers", "standard"),
        optim=ADAMW,
        epochs=20,
        batch_size=32,
    )
)
