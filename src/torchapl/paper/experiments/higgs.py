"""Higgs -> tau tau: Table 2 on simulated events, and the same networks on public relatives."""

from __future__ import annotations

from collections.abc import Iterator

from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment
from torchapl.paper.experiments import solvers
from torchapl.paper.experiments.key import Key
from torchapl.paper.experiments.published import TABLE2
from torchapl.paper.experiments.rows import (
    DEFAULT,
    DEFAULT_FROZEN,
    LEAKY25,
    OTHERS,
    WIDER,
    ActivationRow,
)

# What names of experiments call the data sets.
DATA_SETS = {
    "higgs": "htautau",
    "atlas": "atlas-higgs-2014",
    "uci-higgs": "uci-higgs",
    "uci-susy": "uci-susy",
}
# At lab scale as many parameters as the default's curves bring along, at paper scale more.
_WIDTH_OF_WIDER = 1.085
_EPOCHS, _BATCH, _ROWS = 65, 100, 70_000_000
_FILES = "Network and solver as in the authors' Caffe files and paper section 3.2"
_SIMULATED = "The paper's 80 million events are not public: events of our own simulation stand in"
_OWN = "Not in the paper: the same network and schedule"

# The physics baseline differs from ReLU by having no dropout.
PUBLISHED_ROWS = (
    ActivationRow("baldi", "ReLU (Baldi et al. 2014)", Activation.parse("relu")),
    ActivationRow("relu", "ReLU", Activation.parse("relu")),
    ActivationRow("apl", "APL", Activation.parse("apl:2")),
)
OWN_ROWS = (
    ActivationRow("leaky", "Leaky ReLU 0.05", Activation.parse("leaky:0.05")),
    ActivationRow("apl-leaky", "APL, started as Leaky 0.25", Activation.parse("apl:2:leaky")),
    ActivationRow(
        "apl-frozen", "APL, frozen at the authors' start", Activation.parse("apl:2:frozen")
    ),
    LEAKY25,
    WIDER,
    DEFAULT,
    DEFAULT_FROZEN,
    *OTHERS,
    ActivationRow(
        "apl-layer", "APL per layer, started as Leaky 0.25", Activation.parse("apl:2:layer:leaky")
    ),
)


def _all() -> Iterator[Experiment]:
    for prefix, data in DATA_SETS.items():
        for row in (*PUBLISHED_ROWS, *OWN_ROWS):
            sources = [_FILES if row in PUBLISHED_ROWS else _OWN]
            sources += [_SIMULATED] if prefix == "higgs" else []
            yield Experiment(
                name=Key(prefix, False, "dnn", row.name).name,
                net="higgs-dnn",
                activation=row.activation,
                data=Data(data, "physics"),
                optim=solvers.HIGGS,
                dropout=0.0 if row.name == "baldi" else 1.0,
                epochs=_EPOCHS,
                batch_size=_BATCH,
                width=_WIDTH_OF_WIDER if row is WIDER else 1.0,
                published=TABLE2.get(row.name) if prefix == "higgs" else None,
                provenance=". ".join(sources),
                made_for_steps=_EPOCHS * _ROWS // _BATCH,
            )


HIGGS: tuple[Experiment, ...] = tuple(_all())
