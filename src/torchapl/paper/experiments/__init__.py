"""Every experiment by name, the tables they fill, and the scales they come in.

Example:
    >>> get("cifar10-cnn-apl").published.mean
    11.38
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from torchapl.paper.config import Experiment
from torchapl.paper.experiments.cifar import CIFAR
from torchapl.paper.experiments.costs import estimate
from torchapl.paper.experiments.higgs import HIGGS
from torchapl.paper.experiments.scales import GRID, SCALES, Scale, scaled
from torchapl.paper.experiments.tables import TABLES, Cell, Row, Table

__all__ = [
    "EXPERIMENTS",
    "GRID",
    "SCALES",
    "TABLES",
    "Cell",
    "Row",
    "Scale",
    "Table",
    "estimate",
    "get",
    "scaled",
]

EXPERIMENTS: dict[str, Experiment] = {
    name: replace(experiment, cost=estimate(experiment))
    for name, experiment in (CIFAR | HIGGS).items()
}


def get(name: str) -> Experiment:
    """Return the experiment of this name, at paper scale.

    Raises:
        ValueError: If there is none; the message names the nearest ones.
    """
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "see `torchapl list`"
        raise ValueError(f"unknown experiment {name!r}, {hint}")
    return EXPERIMENTS[name]
