"""A search varies architecture, dropout, start and training settings, around the own ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from torchapl.cli import main
from torchapl.paper.config import override_all
from torchapl.paper.experiments import EXPERIMENTS, get, scaled
from torchapl.paper.nets import build
from torchapl.paper.space import Choice, Range, own_settings, search_space


def settings(name: str, scale: str = "paper") -> set[str]:
    return {dimension.setting for dimension in search_space(scaled(get(name), scale))}


def test_every_part_that_the_authors_searched_is_searched() -> None:
    assert settings("higgs-dnn-apl") == {
        "depth",
        "width",
        "dropout",
        "start",
        "optim.lr",
        "optim.momentum",
        "batch_size",
        "activation.num_hinges",
        "activation.slope_bound",
        "optim.curve_lr",
        "optim.curve_decay",
    }


def test_spaces_follow_the_experiment() -> None:
    relu = settings("cifar10-cnn-relu")
    assert {"depth", "optim.weight_decay", "dropout"} <= relu
    assert not any("curve" in setting or "activation" in setting for setting in relu)
    assert "activation.negative_slope" in settings("cifar10-cnn-leaky")
    assert "optim.curve_lr" in settings("cifar10-cnn-prelu")
    assert "optim.curve_lr" not in settings("cifar10-cnn-apl-frozen")
    assert "activation.slope_bound" not in settings("cifar10-cnn-apl-unit")
    assert "depth" not in settings("cifar10-maxout")
    assert "dropout" not in settings("cifar10-resnet-relu")
    assert "optim.momentum" not in settings("atlas-dnn-relu", "lab")


@pytest.mark.parametrize("scale", ["paper", "lab", "smoke"])
def test_both_ends_of_every_space_are_settings(scale: str) -> None:
    # One of each network with each activation: all of them take minutes.
    kinds = {(entry.net, entry.activation): entry for entry in EXPERIMENTS.entries.values()}
    for entry in kinds.values():
        experiment = scaled(entry, scale)
        for last in (False, True):
            ends = [
                f"{dimension.setting}={dimension.values[-1 if last else 0]}"
                if isinstance(dimension, Choice)
                else f"{dimension.setting}={dimension.high if last else dimension.low}"
                for dimension in search_space(experiment)
            ]
            override_all(experiment, ends)


def test_own_settings_are_the_experiments() -> None:
    own = own_settings(get("cifar10-cnn-apl"))
    assert set(own) == settings("cifar10-cnn-apl")
    changed = override_all(get("cifar10-cnn-apl"), [f"{k}={v}" for k, v in own.items()])
    # Spelled out, they are the same network and start.
    assert (changed.depth, changed.activation.slope_bound) == (5, 0.2)
    assert replace(changed, depth=None, activation=get("cifar10-cnn-apl").activation) == get(
        "cifar10-cnn-apl"
    )


def test_own_settings_outside_the_space_are_left_out() -> None:
    far = override_all(get("cifar10-cnn-relu"), ["optim.momentum=0.1"])
    assert "optim.momentum" not in own_settings(far)


@pytest.mark.parametrize(
    ("net", "depth", "layers"),
    [
        ("higgs-dnn", 3, 4),
        ("higgs-dnn", 10, 11),
        ("cifar-cnn", 3, 4),
        ("cifar-cnn-100", 6, 7),
        ("nin", 6, 6),
        ("nin", 12, 12),
        ("resnet", 7, 10),
    ],
)
def test_networks_have_the_depth_they_are_asked_for(net: str, depth: int, layers: int) -> None:
    import torch
    from torch import nn

    shape = (25,) if net == "higgs-dnn" else (3, 16, 16)
    relu = get("cifar10-cnn-relu").activation
    built = build(
        net, activation=relu, input_shape=shape, num_classes=4, width=0.05, depth=depth
    ).eval()
    assert built(torch.randn(2, *shape)).shape == (2, 4)
    # The residual network has two shortcuts beside its hidden layers.
    assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in built.modules()) == layers


def test_dropout_of_the_higgs_network_stays_at_its_end() -> None:
    from torch import nn

    relu = get("higgs-dnn-relu").activation
    net = build("higgs-dnn", activation=relu, input_shape=(5,), num_classes=1, depth=4)
    names = [name for name, layer in net.layers.named_children() if isinstance(layer, nn.Dropout)]
    assert names == ["drop3", "drop4"]
    assert [net.layers.get_submodule(name).p for name in names] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("net", "depth", "message"),
    [
        ("maxout", 4, "maxout has a depth that cannot be changed, got depth=4"),
        ("higgs-dnn", 0, "at least 1 hidden layer, got 0"),
        ("cifar-cnn", 2, "at least 3, .* got 2"),
        ("nin", 8, "6, 9, 12, .* got 8"),
        ("resnet", 20, "7, 13, 19, .* got 20"),
    ],
)
def test_depths_that_do_not_fit(net: str, depth: int, message: str) -> None:
    relu = get("cifar10-cnn-relu").activation
    with pytest.raises(ValueError, match=message):
        build(net, activation=relu, input_shape=(3, 32, 32), num_classes=10, depth=depth)


def test_show_states_the_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "higgs-dnn-relu"]) == 0
    shown = capsys.readouterr().out
    assert "depth one of 3, 4, 5, 6, 7, 8, 9, 10" in shown
    assert "width from 0.5 to 2, log" in shown
    assert main(["show", "higgs-dnn-relu", "--json"]) == 0
    space = json.loads(capsys.readouterr().out)["search_space"]
    assert {"setting": "width", "low": 0.5, "high": 2.0, "log": True} in space


def test_dimensions_know_what_they_hold() -> None:
    assert Range("width", 0.5, 2.0).holds(1.0)
    assert not Range("width", 0.5, 2.0).holds(3.0)
    assert not Range("width", 0.5, 2.0).holds(None)
    assert Choice("start", ("authors", "he")).holds("he")
    assert not Choice("start", ("authors", "he")).holds("she")
