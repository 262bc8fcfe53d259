from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import pytest

import torchapl.paper
from torchapl.paper.activations import Activation
from torchapl.paper.config import (
    Data,
    Experiment,
    Optim,
    differences,
    from_dict,
    override,
    override_all,
    to_dict,
)
from torchapl.paper.experiments import EXPERIMENTS
from torchapl.paper.nets import Net

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
        ("data.validation=0.1", lambda e: e.data.validation, 0.1),
        ("data.validation=5000", lambda e: repr(e.data.validation), "5000"),
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
        ("optim.lrr=1", "unknown setting 'optim.lrr', did you mean 'optim.lr'?"),
        ("lr=1", "unknown setting 'lr', did you mean 'optim.lr'?"),
        ("activation.num_hinges=3", "unknown setting 'activation.num_hinges', there are none"),
        ("data.validation=-1", "validation must be a number of rows, or a share"),
        ("data.validation=1.5", "validation must be a number of rows, or a share"),
        ("optim.rate=0.02", "unknown setting 'optim.rate', there are optim.kind"),
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
        ("epochs=0", "epochs must be between 1 and 1000000000, got 0"),
        ("test_every=0", "test_every must be between 1 and"),
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
    experiment = EXPERIMENTS.get(name)
    assert from_dict(json.loads(json.dumps(to_dict(experiment)))) == experiment


def test_differences_ignore_what_does_not_train() -> None:
    from dataclasses import replace

    assert differences(MINE, replace(MINE, provenance="y")) == {}
    changed = replace(MINE, optim=Optim(lr=0.5), epochs=7)
    assert differences(MINE, changed) == {"optim.lr": (0.01, 0.5), "epochs": (1, 7)}


def test_wholes_are_set_before_their_parts() -> None:
    changed = override_all(MINE, ["activation.num_hinges=10", "activation=apl:2:channel"])
    assert str(changed.activation) == "apl:10:channel"


def test_settings_that_there_were_once_are_read() -> None:
    old = {**to_dict(MINE), "title": "Mine", "choices": ["optim.lr=1"]}
    assert from_dict(old) == MINE


def test_differences_of_two_activations_and_of_published_ones() -> None:
    apl = override(EXPERIMENTS.get("cifar10-cnn-apl"), "activation=leaky:0.2")
    assert differences(EXPERIMENTS.get("cifar10-cnn-apl"), apl) == {
        "activation.kind": ("apl", "leaky"),
        "activation.num_hinges": (5, None),
        "activation.per": ("unit", None),
        "activation.start": ("authors", None),
        "activation.steps": ("slopes", None),
        "activation.frozen": (False, None),
        "activation.negative_slope": (None, 0.2),
    }


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("dropout=nan", "dropout must be between 0 and 1, got nan"),
        ("dropout=2", "dropout must be between 0 and 1, got 2"),
        ("width=1e9", "width must be a factor .* at most 16, got 1e"),
        ("width=nan", "width must be a factor"),
        ("optim.weight_decay=-0.1", "weight_decay must be 0 or more, got -0.1"),
        ("optim.curve_decay=inf", "curve_decay must be 0 or more, got inf"),
        ("optim.warmup=5", "warmup must be between 0 and 1, got 5"),
        ("optim.momentum=1.5", "momentum must be between 0 and 1, got 1.5"),
        ("optim.momentum_start=-1", "momentum_start must be between 0 and 1"),
        ("optim.lr=0", "lr must be positive, got 0"),
        ("optim.lr=inf", "lr must be positive, got inf"),
        ("activation=apl:1000000", "num_hinges must be between 1 and 1000, got 1000000"),
        ("activation=leaky:+nan", "negative_slope must be finite, got nan"),
        ("activation=apl:2:bound=inf", "slope_bound must be positive and finite, got inf"),
        ("epochs=1000000000000000000000", "epochs must be between 1 and 1000000000, got 1000"),
        ("epochs=1" + "0" * 400, "epochs must be between 1 and 1000000000, got 1000"),
        ("batch_size=10000000000", "batch_size must be between 1 and 1000000000"),
        ("depth=0", "depth must be between 1 and 1000, got 0"),
        ("depth=1000000000", "depth must be between 1 and 1000, got 1000"),
        ("optim.floor=nan", "floor must be between 0 and 1, got nan"),
        ("optim.fall_steps=-5", "fall_steps must be between 0 and 1000000000, got -5"),
        ("optim.factors=((-1, 0.1),)", "factors must be pairs of an iteration and a factor"),
        ("optim.factors=((1, 1e999),)", "factors must be pairs of an iteration and a factor"),
        ("optim.factors=" + "-" * 100_000 + "1", "factors must be pairs such as"),
        ("data.padding=-3", "padding must be between 0 and 32, got -3"),
        ("data.limit=0", "limit must be between 1 and 1000000000, got 0"),
        ("data.validation=nan", "validation must be a number of rows"),
    ],
)
def test_impossible_settings_are_refused_with_what_would_fit(assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        override(Experiment("mine", net="nin"), assignment)


def test_training_reads_every_setting_and_asks_networks_all_they_can_say() -> None:
    paper = Path(torchapl.paper.__path__[0])
    files = [*(paper / "train").glob("*.py"), paper / "optim.py", paper / "schedule.py"]
    read = {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    settings = {
        field.name for kind in (Experiment, Data, Optim) for field in dataclasses.fields(kind)
    }
    descriptive = {"published", "provenance", "cost"}
    assert settings - descriptive - read == set()
    questions = {name for name, value in vars(Net).items() if callable(value) and name[0] != "_"}
    # A network asks itself for the multipliers of one parameter.
    assert questions - {"multiplier"} - read == set()
