"""Every experiment by name, the tables they fill, and the scales they come in.

Example:
    >>> get("cifar10-cnn-apl").published.mean
    11.38
"""

from __future__ import annotations

from dataclasses import replace

from torchapl.paper.catalogue import Catalogue
from torchapl.paper.config import Experiment
from torchapl.paper.experiments.cifar import CIFAR, COLUMNS
from torchapl.paper.experiments.costs import START_SECONDS, estimate
from torchapl.paper.experiments.higgs import HIGGS
from torchapl.paper.experiments.key import Key
from torchapl.paper.experiments.modern import MODERN
from torchapl.paper.experiments.published import TABLE1
from torchapl.paper.experiments.scales import SCALES, Recipe, Scale, scale_named, scaled
from torchapl.paper.experiments.tables import TABLES, Cell, Metric, Row, Table

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "START_SECONDS",
    "TABLES",
    "Cell",
    "Key",
    "Metric",
    "Recipe",
    "Row",
    "Scale",
    "Table",
    "estimate",
    "get",
    "scale_named",
    "scaled",
]

EXPERIMENTS: Catalogue[Experiment] = Catalogue("experiment", lambda experiment: experiment.name)
for _experiment in (*CIFAR, *HIGGS, *MODERN):
    EXPERIMENTS.register(replace(_experiment, cost=estimate(_experiment)))
# Trained by the same settings as Goodfellow's: another name of the same runs.
for _column in (Key(data, augmented, "").column for data, augmented in COLUMNS):
    EXPERIMENTS.entries[f"{_column}-maxout-stollenga"] = replace(
        EXPERIMENTS.get(f"{_column}-maxout"),
        published=TABLE1["maxout", "stollenga"].get(_column),
        provenance="Trained as Goodfellow's maxout network; no source gives Stollenga's own recipe",
    )


def get(name: str) -> Experiment:
    """Return the experiment of this name, at paper scale.

    Raises:
        ValueError: If there is none; the message names the nearest ones.
    """
    return EXPERIMENTS.get(name)
