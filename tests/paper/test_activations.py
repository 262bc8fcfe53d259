from __future__ import annotations

import pytest
import torch
from torch import nn

from torchapl import APL
from torchapl.paper.activations import Activation

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
    "apl:1:unit:frozen",
    "apl:2:channel:leaky",
    "apl:2:unit:relu:frozen",
    "apl:5:unit:bound=0.5",
    "apl:5:layer:leaky:bound=0.25:frozen",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_value_are_inverse(text):
    activation = Activation.parse(text)
    assert str(activation) == text
    assert Activation.parse(str(activation)) == activation


def test_options_come_in_any_order():
    assert Activation.parse("apl:2:frozen:channel") == Activation(
        "apl", num_hinges=2, per="channel", frozen=True
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("swish", "cannot read the activation 'swish'"),
        ("leaky", "leaky:0.05"),
        ("apl", "apl:2"),
        ("relu:2", "cannot read"),
        ("apl:two", "expected a number of hinges in the activation 'apl:two', got 'two'"),
        ("apl:0", "num_hinges must be at least 1"),
        ("apl:2:chanel", "unknown option 'chanel'.*channel"),
        ("apl:2:unit:channel", "sets its per twice"),
        ("apl:2:bound=x", "expected a bound"),
        ("apl:2:bound=-1", "slope_bound must be positive"),
        ("leaky:x", "expected a slope"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        Activation.parse(text)


@pytest.mark.parametrize(
    "settings", [{"kind": "tanh"}, {"per": "pixel"}, {"start": "zeros"}, {"num_hinges": 0}]
)
def test_values_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Activation(**settings)


@pytest.mark.parametrize(("per", "shape"), [("unit", (4, 3, 2)), ("channel", (4,)), ("layer", ())])
def test_sharing_decides_the_units(per, shape):
    unit = Activation("apl", num_hinges=2, per=per).build((4, 3, 2))
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
