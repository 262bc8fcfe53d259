from __future__ import annotations

import pytest
import torch
from torch import nn

from torchapl import APL
from torchapl.paper.activations import ACTIVATIONS, Activation
from torchapl.paper.activations.apl import AdaptivePiecewiseLinear

TEXTS = [
    "relu",
    "leaky:0.05",
    "leaky:-0.2",
    "prelu",
    "silu",
    "gelu",
    "apl:1",
    "apl:5",
    "apl:2:channel",
    "apl:3:layer",
    "apl:1:frozen",
    "apl:2:channel:leaky",
    "apl:2:relu:frozen",
    "apl:5:bound=0.5",
    "apl:8:channel:leaky_silu:leak=0.2:segments",
    "apl:5:layer:leaky:bound=0.25:frozen",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_value_are_inverse(text):
    activation = Activation.parse(text)
    assert str(activation) == text
    assert Activation.parse(str(activation)) == activation


def test_options_come_in_any_order():
    assert Activation.parse("apl:2:frozen:channel") == AdaptivePiecewiseLinear(
        num_hinges=2, per="channel", frozen=True
    )


@pytest.mark.parametrize(
    ("bare", "usual"),
    [("apl", "apl:8:channel:leaky_silu:segments"), ("leaky", "leaky:0.01"), ("relu", "relu")],
)
def test_a_bare_kind_is_the_usual_one(bare, usual):
    assert str(Activation.parse(bare)) == usual


def test_defaults_may_be_written_out():
    assert Activation.parse("apl:1:unit:authors:frozen") == Activation.parse("apl:1:frozen")


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_survives_json_and_has_defaults(kind):
    activation = Activation.parse(kind)
    assert Activation.from_dict(activation.to_dict()) == activation
    assert type(activation)().kind == kind
    assert activation.is_learned == any(
        parameter.requires_grad for parameter in activation.build((4,)).parameters()
    )


def test_older_configurations_list_the_settings_of_all_kinds():
    old = {"kind": "leaky", "negative_slope": 0.2, "num_hinges": 1, "per": "unit", "frozen": False}
    assert str(Activation.from_dict(old)) == "leaky:0.2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("swish", "unknown activation 'swish', there are .*relu"),
        ("prrelu", "unknown activation 'prrelu', did you mean 'prelu'"),
        ("relu:2", "unknown option '2' in the activation 'relu:2': it has none"),
        ("apl:two", "unknown option 'two' in the activation 'apl:two': choose from a number for"),
        ("apl:2.5", "num_hinges of the activation 'apl:2.5' must be a whole number, got '2.5'"),
        ("apl:0", "num_hinges must be between 1 and 1000"),
        ("apl:2:chanel", "unknown option 'chanel'.*channel"),
        ("apl:2:unit:channel", "sets its per twice"),
        ("apl:2:bound=x", "bound of the activation 'apl:2:bound=x' must be a number, got 'x'"),
        ("apl:2:bound=-1", "slope_bound must be positive"),
        (
            "apl:2:leaky:leak=nan",
            "leak must be finite, for the starts leaky and leaky_silu, got nan",
        ),
        ("apl:2:silu:leak=0.1", "leak must be finite, .* got 0.1 for silu"),
        ("leaky:x", "unknown option 'x'"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        Activation.parse(text)


@pytest.mark.parametrize("settings", [{"per": "pixel"}, {"start": "zeros"}, {"num_hinges": 0}])
def test_values_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        AdaptivePiecewiseLinear(**settings)


@pytest.mark.parametrize(("per", "shape"), [("unit", (4, 3, 2)), ("channel", (4,)), ("layer", ())])
def test_sharing_decides_the_units(per, shape):
    unit = AdaptivePiecewiseLinear(num_hinges=2, per=per).build((4, 3, 2))
    assert isinstance(unit, APL)
    assert unit.unit_shape == shape
    assert unit(torch.randn(5, 4, 3, 2)).shape == (5, 4, 3, 2)


def test_frozen_curves_do_not_learn_but_differ_from_relu():
    unit = Activation.parse("apl:1:unit:frozen").build((64,))
    assert not any(parameter.requires_grad for parameter in unit.parameters())
    assert unit.slope.abs().max() > 0.1


def test_starts():
    x = torch.linspace(-3, 3, 7)[:, None].expand(7, 4)
    relu = Activation.parse("apl:2:unit:relu").build((4,))
    leaky = Activation.parse("apl:2:unit:leaky").build((4,))
    torch.testing.assert_close(relu(x), nn.functional.relu(x))
    torch.testing.assert_close(leaky(x), nn.functional.leaky_relu(x, 0.25))
    steeper = Activation.parse("apl:2:unit:leaky:leak=0.5").build((4,))
    torch.testing.assert_close(steeper(x), nn.functional.leaky_relu(x, 0.5))
    soft = Activation.parse("apl:8:unit:leaky_silu:leak=0.5").build((4,))
    assert (soft(x) - (0.5 * x + 0.5 * nn.functional.silu(x))).abs().max() < 0.02
    bounded = Activation.parse("apl:5:unit:bound=0.5").build((1000,))
    default = Activation.parse("apl:5").build((1000,))
    assert 0.45 < bounded.slope.abs().max() <= 0.5
    assert 0.19 < default.slope.abs().max() <= 0.2


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("relu", nn.functional.relu),
        ("leaky:-0.05", lambda x: nn.functional.leaky_relu(x, -0.05)),
        ("prelu", lambda x: nn.functional.leaky_relu(x, 0.25)),
        ("silu", nn.functional.silu),
        ("gelu", nn.functional.gelu),
    ],
)
def test_fixed_activations(text, function):
    x = torch.randn(2, 6, 3, 3)
    torch.testing.assert_close(Activation.parse(text).build((6, 3, 3))(x), function(x))
