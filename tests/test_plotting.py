from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import torchapl
from torchapl import APL, init

pytest.importorskip("matplotlib")


def test_a_panel_for_every_layer_with_the_units_values() -> None:
    net = nn.Sequential(APL((2, 3), init=init.authors_), nn.Identity(), APL(init=init.authors_))
    figure = torchapl.plot(net, interval=(-2.0, 4.0))
    assert [axes.get_title() for axes in figure.axes] == ["0: 6 curves", "2: 1 curve"]
    lines = figure.axes[1].get_lines()
    x = torch.from_numpy(lines[0].get_xdata())
    assert (x.min().item(), x.max().item()) == (-2.0, 4.0)
    torch.testing.assert_close(torch.from_numpy(lines[0].get_ydata()), net[2](x).detach())


def test_many_curves_are_thinned_evenly() -> None:
    unit = APL(1000, init=init.authors_)
    # The thinned curves, ReLU, the mean, and two lines through 0.
    assert len(torchapl.plot(unit, max_curves=10).axes[0].get_lines()) == 10 + 4


def test_values_are_those_of_the_module_for_any_dtype() -> None:
    unit = APL(3, 4, init=init.authors_, dtype=torch.bfloat16)
    line = torchapl.plot(unit).axes[0].get_lines()[1]
    x, y = (torch.from_numpy(data) for data in (line.get_xdata(), line.get_ydata()))
    expected = unit.float()(x[:, None].expand(-1, 3))[:, 1].detach()
    torch.testing.assert_close(y, expected)


def test_refuses_what_it_cannot_draw() -> None:
    with pytest.raises(ValueError, match="no APL units to draw, got Linear"):
        torchapl.plot(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"interval must be \(low, high\)"):
        torchapl.plot(APL(), interval=(1.0, 1.0))
    with pytest.raises(ValueError, match="max_curves must be at least 1, got 0"):
        torchapl.plot(APL(), max_curves=0)


def test_leaves_no_window_and_no_pyplot() -> None:
    code = (
        "import torchapl, sys; torchapl.plot(torchapl.APL(3)); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_affine_units_are_drawn_as_they_are() -> None:
    tanh = torchapl.curves.fit(torch.tanh, 4, (-3.0, 3.0)).module(3)
    (axes,) = torchapl.plot(nn.ModuleDict({"a": tanh, "b": tanh})).axes
    assert axes.get_title() == "a: 3 curves"
    line = axes.get_lines()[0]
    x, y = (torch.from_numpy(data) for data in (line.get_xdata(), line.get_ydata()))
    torch.testing.assert_close(y, tanh(x[:, None].expand(-1, 3))[:, 0].detach())


def test_another_default_device_makes_no_difference() -> None:
    unit = APL(3, init=init.authors_)
    expected = torchapl.plot(unit).axes[0].get_lines()[0].get_ydata()
    with torch.device("meta"):
        found = torchapl.plot(unit).axes[0].get_lines()[0].get_ydata()
    assert (found == expected).all()
