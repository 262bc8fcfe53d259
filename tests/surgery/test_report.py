from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from torchapl import SwapReport, describe, swap_activations
from torchapl.surgery import Left, Rewrite, Swap

REPORT = SwapReport(
    swaps=(
        Swap("a.relu", "ReLU", (96, 8, 8), 1, 2, 24576, 0.0, (-1.0, 2.0), aliases=("b.relu",)),
        Swap("gelu_1", "GELU", (16,), -1, 2, 64, 0.0123, (-3.0, 2.5), dtype="bfloat16"),
    ),
    rewrites=(Rewrite("", (("gelu", "gelu_1"),), (("mask", None), ("scale", 2.0)), ("act",)),),
    left=(Left("tail.tanh", "Tanh", "model.py:7", "cannot be traced: control flow"),),
    output_error=0.5,
    output_size=20.0,
)


def test_prints_as_a_table() -> None:
    assert str(REPORT).splitlines() == [
        "name             kind  unit shape  hinges  parameters  error",
        "a.relu = b.relu  ReLU  (96, 8, 8)       2      24,576      0",
        "gelu_1           GELU  (16,)            2          64  0.012",
        (
            "2 calls swapped, 24,640 parameters added, "
            "outputs differ by 0.5 (2.50% of the largest) on the example"
        ),
        "left as they were:",
        "  tail.tanh  Tanh  model.py:7  cannot be traced: control flow",
    ]
    assert str(SwapReport()).startswith("0 calls swapped")


def test_json_and_back() -> None:
    data = json.loads(REPORT.to_json())
    assert data["swaps"][0]["unit_shape"] == [96, 8, 8]
    assert SwapReport.from_json(REPORT.to_json()) == REPORT


def test_notebooks_show_html() -> None:
    shown = REPORT._repr_html_()
    assert shown.count("<tr>") == 5
    assert "cannot be traced" in shown
    assert "<script>" not in SwapReport(left=(Left("<script>", "", "", ""),))._repr_html_()


def test_prefix() -> None:
    moved = REPORT.under("encoder")
    assert moved.swaps[0].name == "encoder.a.relu"
    assert moved.swaps[0].aliases == ("encoder.b.relu",)
    assert moved.rewrites[0].module == "encoder"
    assert moved.left[0].name == "encoder.tail.tanh"


@pytest.mark.parametrize(
    "function",
    [
        *(nn.ELU(), nn.SELU(), nn.CELU(0.5), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish()),
        *(nn.Hardswish(), nn.Tanh(), nn.Softplus(), nn.Softsign(), nn.Tanhshrink()),
        *(nn.ReLU6(), nn.Hardtanh(-0.5, 2.0), nn.Softshrink(0.3), nn.LeakyReLU(0.1), nn.ReLU()),
    ],
    ids=lambda function: type(function).__name__,
)
@pytest.mark.filterwarnings("ignore:the outputs differ")
def test_stated_errors_hold(function: nn.Module) -> None:
    x = 3 * torch.randn(4000, 3)
    net = swap_activations(nn.Sequential(nn.Identity(), function), x, num_hinges=8)
    (swap,) = describe(net).swaps
    difference = (net(x) - function(x)).detach().abs().max()
    assert float(difference) <= swap.error * 1.01 + 1e-7
    assert swap.interval == (float(x.min()), float(x.max()))
    exact = isinstance(function, (nn.ReLU, nn.LeakyReLU))
    assert (swap.error == 0) == exact or isinstance(function, (nn.Hardtanh, nn.Softshrink))
    assert swap.error < 0.05


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{", "", "JSONDecodeError"),
        ('"swaps"', '"swap"', "KeyError: 'swaps'"),
        ('"num_hinges": 2', '"num_hinges": "2"', "num_hinges of Swap cannot be '2'"),
        ('"num_hinges": 2', '"num_hinges": true', "num_hinges of Swap cannot be True"),
        ('"num_hinges": 2', '"hinges": 2', "unexpected keyword argument 'hinges'"),
        ('"name": "a.relu"', '"name": ["a"]', "name of Swap cannot be"),
        ('"dtype": "bfloat16"', '"dtype": "load"', "dtype must be one of float64, "),
        ('"output_error": 0.5', '"output_error": null', "output_error of SwapReport cannot be"),
        ('"gelu",', "1,", "units of Rewrite cannot be"),
    ],
)
def test_other_descriptions_are_refused(old: str, new: str, message: str) -> None:
    text = REPORT.to_json()
    assert old in text
    with pytest.raises(ValueError, match=f"(?s)must be what describe.*{message}"):
        SwapReport.from_json(text.replace(old, new, 1))
