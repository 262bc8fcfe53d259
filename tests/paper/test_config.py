from __future__ import annotations

import json

import pytest

from torchapl.paper.activations import Activation
from torchapl.paper.config import Experiment, Optim, differences, from_dict, override, to_dict
from torchapl.paper.experiments import EXPERIMENTS

MINE = Experiment("mine", net="nin")


@pytest.mark.parametrize(
    ("assignment", "read", "value"),
    [
        ("optim.lr=0.02", lambda e: e.optim.lr, 0.02),
        ("optim.lr=1e-3", lambda e: e.optim.lr, 1e-3),
        ("epochs = 3", lambda e: e.epochs, 3),
        ("data.augment=true", lambda e: e.data.augment, True),
        ("data.limit=none", lambda e: e.data.limit, None),
        ("data.limit=500", lambda e: e.data.limit, 500),
        ("optim.momentum_start=0.5", lambda e: e.optim.momentum_start, 0.5),
        ("optim.factors=((10, 1), (20, 0.1))", lambda e: e.optim.factors, ((10, 1.0), (20, 0.1))),
        ("activation=apl:2:channel", lambda e: e.activation, Activation.parse("apl:2:channel")),
        ("activation.num_hinges=3", lambda e: e.activation.num_hinges, 3),
        ("optim.kind=adamw", lambda e: e.optim.kind, "adamw"),
    ],
)
def test_override_reads_each_type(assignment, read, value) -> None:
    changed = override(MINE, assignment)
    assert read(changed) == value
    assert type(read(changed)) is type(value)
    assert Experiment("mine", net="nin") == MINE


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("optm.lr=0.02", "unknown setting 'optm', did you mean 'optim'?"),
        ("optim.rate=0.02", "unknown setting 'rate'"),
        ("optim.lr=fast", "optim.lr must be a number, got 'fast'"),
        ("epochs=2.5", "epochs must be a whole number, got '2.5'"),
        ("epochs=True", "epochs must be a whole number"),
        ("data.augment=1", "data.augment must be true or false, got '1'"),
        ("optim.kind=adam", "must be one of caffe-sgd, sgd, adamw, got 'adam'"),
        ("optim.factors=(1, 2)", "optim.factors must be pairs"),
        ("optim=sgd", "optim must be set part by part"),
        ("epochs.x=1", "'epochs' has no parts"),
        ("epochs", "must look like optim.lr=0.02"),
        ("name=other", "unknown setting 'name'"),
        ("activation=tanh", "tanh"),
        ("epochs=0", "epochs must be at least 1, got 0"),
        ("test_every=0", "test_every must be at least 1"),
        ("optim.momentum_ramp=0", "momentum_ramp must be positive"),
    ],
)
def test_override_refuses(assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=".*".join(map(_escape, [message]))):
        override(MINE, assignment)


def _escape(text: str) -> str:
    import re

    return re.escape(text)


@pytest.mark.parametrize("name", ["cifar10-cnn-apl", "higgs-dnn-apl", "cifar100-aug-nin-leaky"])
def test_experiments_survive_json(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert from_dict(json.loads(json.dumps(to_dict(experiment)))) == experiment


def test_differences_ignore_what_does_not_train() -> None:
    from dataclasses import replace

    assert differences(MINE, replace(MINE, title="x", provenance="y")) == {}
    changed = replace(MINE, optim=Optim(lr=0.5), epochs=7)
    assert differences(MINE, changed) == {"optim.lr": (0.01, 0.5), "epochs": (1, 7)}
