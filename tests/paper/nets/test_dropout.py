"""Dropout with cheap masks is dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchapl.paper.nets.dropout import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5, 0.8])
def test_rate_and_size_of_what_stays(probability):
    input = torch.ones(1000, 401)
    output = Dropout(probability)(input)
    # Five standard deviations of a share of 401,000 draws.
    allowed = 5 * (probability * (1 - probability) / input.numel()) ** 0.5
    assert abs((output == 0).double().mean().item() - probability) < allowed
    assert output.max().item() == pytest.approx(1 / (1 - probability))


def test_elements_are_dropped_independently():
    dropped = (Dropout(0.5)(torch.ones(100_000)) == 0).double()
    for distance in (1, 2, 3, 4, 5, 8):
        both = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(both - 0.25) < 0.01


def test_gradient_goes_through_what_stays():
    input = torch.randn(64, 8, requires_grad=True)
    output = Dropout(0.3)(input)
    output.sum().backward()
    torch.testing.assert_close(input.grad, (output / input).detach())


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (7, 3), (5,)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_shape_dtype_and_layout_stay(shape, dtype):
    input = torch.randn(shape, dtype=dtype)
    if len(shape) == 4:
        input = input.contiguous(memory_format=torch.channels_last)
    output = Dropout(0.3)(input)
    assert (output.shape, output.dtype, output.stride()) == (shape, dtype, input.stride())


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_nothing_or_everything_is_dropped(probability):
    input = torch.randn(20)
    assert torch.equal(Dropout(probability)(input), nn.Dropout(probability)(input))


def test_evaluation_drops_nothing():
    input = torch.randn(20)
    assert Dropout(0.5).eval()(input) is input


def test_a_seed_repeats_the_mask():
    masks = []
    for _ in range(2):
        torch.manual_seed(4)
        masks.append(Dropout(0.5)(torch.ones(1000)))
    assert torch.equal(*masks)


def test_compiled_it_is_torchs_own():
    input = torch.ones(1000)
    torch.manual_seed(4)
    expected = nn.Dropout(0.5)(input)
    torch.manual_seed(4)
    layer = torch.compile(Dropout(0.5), backend="eager", fullgraph=True)
    assert torch.equal(layer(input), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_without_rescaling_what_stays_is_as_it_was(compiled):
    layer = Dropout(0.3, rescale=False)
    if compiled:
        layer = torch.compile(layer, backend="eager", fullgraph=True)
    input = torch.rand(1000) + 0.5
    output = layer(input)
    stays = output != 0
    assert 600 < int(stays.sum()) < 800
    torch.testing.assert_close(output[stays], input[stays])
    assert torch.equal(layer.eval()(input), input)
