"""All that a file of one's own experiments needs, for ``--load``.

Example:
    >>> DATA_SETS.register(
    ...     DataSet(
    ...         "pairs", "Pairs", "two classes", load=arrays([[0.0], [1.0]] * 50, [0, 1] * 50)
    ...     )
    ... ).name
    'pairs'
    >>> def small(activation, input_shape, num_classes, width):
    ...     hidden = nn.Linear(input_shape[0], 8), activation.build((8,))
    ...     return nn.Sequential(*hidden, nn.Linear(8, num_classes))
    >>> NETWORKS.register(Network("small", "small net", "own", small)).name
    'small'
    >>> EXPERIMENTS.register(
    ...     Experiment("mine", net="small", data=Data("pairs", "standard"), optim=ADAMW, epochs=5)
    ... ).name
    'mine'
    >>> for catalogue, name in ((DATA_SETS, "pairs"), (NETWORKS, "small"), (EXPERIMENTS, "mine")):
    ...     del catalogue.entries[name]
"""

from __future__ import annotations

from torch import nn

from torchapl.paper.activations import ACTIVATIONS, Activation
from torchapl.paper.config import Data, Experiment, Optim
from torchapl.paper.data import DATA_SETS, DataSet
from torchapl.paper.data.own import arrays, image_folder, table
from torchapl.paper.experiments import EXPERIMENTS
from torchapl.paper.nets import NETWORKS, Net, Network

__all__ = [
    "ACTIVATIONS",
    "ADAMW",
    "DATA_SETS",
    "EXPERIMENTS",
    "NETWORKS",
    "Activation",
    "Data",
    "DataSet",
    "Experiment",
    "Net",
    "Network",
    "Optim",
    "arrays",
    "image_folder",
    "nn",
    "table",
]

# A recipe that suits most networks: the rate rises, then falls to 0.
ADAMW = Optim(
    kind="adamw",
    lr=2e-3,
    schedule="one-cycle",
    warmup=0.2,
    momentum=0.9,
    weight_decay=1e-2,
    curve_decay=0.0,
)
