"""The other methods of Table 1: each a network of its own with a recipe of its own."""

from __future__ import annotations

from dataclasses import dataclass

from torchapl.paper.config import Optim, Preprocessing
from torchapl.paper.experiments.solvers import NIN10, NIN100, listed

_OURS = "Architecture as its authors describe it; the schedule is our choice, no source settles it"
_RATES = ((60_000, 0.05), (80_000, 0.005), (85_000, 5e-4), (90_000, 5e-5))
_SGD = listed(5e-4, 0.5, *_RATES)


@dataclass(frozen=True)
class RivalRecipe:
    """How a rival is trained on one data set."""

    optim: Optim
    epochs: int
    batch_size: int = 100
    preprocessing: Preprocessing = "gcn-zca"
    provenance: str = _OURS


_SHARED = RivalRecipe(_SGD, epochs=180)
# By network, then by data set.
RIVALS: dict[str, dict[str, RivalRecipe]] = {
    **{
        network: {"cifar10": _SHARED, "cifar100": _SHARED}
        for network in ("dropout-cnn", "channel-out", "maxout", "probout", "dasnet")
    },
    **{
        network: {"cifar10": RivalRecipe(NIN10, 640), "cifar100": RivalRecipe(NIN100, 660)}
        for network in ("nin-lin", "nin-dsn")
    },
}
