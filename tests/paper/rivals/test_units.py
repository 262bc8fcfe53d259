"""The same laws for the three units: values, gradients, dtypes, layouts, compilation, messages."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cases import lay_out
from torchapl.paper.rivals import ChannelOut, Maxout, Probout, channel_out, maxout, probout
from torchapl.paper.rivals.maxout import _operator, reference

SHAPES = [((3, 6), 1), ((2, 6, 4, 5), 1), ((2, 3, 12), -1), ((6,), 0), ((0, 6, 2), 1)]
UNITS = [Maxout, ChannelOut, Probout]


def distinct(shape, seed=0, dtype=torch.float64):
    """Return an input no two numbers of which are close."""
    count = int(torch.tensor(shape).prod())
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return (order.to(dtype).reshape(shape) - count / 2) / 16


def expected_maxout(x, pieces, dim):
    return torch.stack(x.chunk(pieces, dim)).amax(dim=0)


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_maxout_values(shape, dim, pieces):
    x = distinct(shape)
    torch.testing.assert_close(maxout(x, pieces, dim=dim), expected_maxout(x, pieces, dim))


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_channel_out_values(shape, dim, pieces):
    x = distinct(shape)
    y = channel_out(x, pieces, dim=dim)
    best = torch.cat([expected_maxout(x, pieces, dim)] * pieces, dim=dim)
    torch.testing.assert_close(y, torch.where(x == best, x, 0.0))


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_probout_draws_one_of_the_pieces(shape, dim, pieces):
    x = distinct(shape)
    drawn = probout(x, pieces, dim=dim)
    assert (torch.stack(x.chunk(pieces, dim)) == drawn).any(dim=0).all()
    sharp = probout(x, pieces, sharpness=1e6, dim=dim)
    torch.testing.assert_close(sharp, expected_maxout(x, pieces, dim))


def test_probout_draws_with_the_probabilities_of_its_formula():
    z = torch.tensor([0.0, 0.7, -1.0])
    draws = probout(z.repeat_interleave(100_000)[None], 3, sharpness=2.0)
    expected = (2.0 * z).softmax(dim=0)
    for value, probability in zip(z, expected, strict=True):
        share = (draws == value).float().mean()
        assert abs(share - probability) < 4 * (probability * (1 - probability) / 1e5) ** 0.5


def test_probout_draws_in_bfloat16_too():
    z = torch.tensor([0.0, 0.5], dtype=torch.bfloat16)
    draws = probout(z.repeat_interleave(100_000)[None], 2)
    share = (draws == 0.5).float().mean()
    assert abs(share - 1 / (1 + 2.718281828**-0.5)) < 0.01


def seeded(function):
    """Return the function with the same random draws in every call, as gradcheck needs it."""

    def call(*arguments):
        torch.manual_seed(7)
        return function(*arguments)

    return call


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("unit", UNITS)
def test_gradients(unit, pieces, layout):
    x = lay_out(distinct((2, 6, 2, 3)), layout).requires_grad_()
    function = seeded(unit(pieces))
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("pieces", [2, 3])
@pytest.mark.parametrize("unit", [Maxout, ChannelOut])
def test_torch_func_and_forward_mode(unit, pieces):
    x, v = distinct((2, 6)), distinct((2, 6), seed=1)
    layer = unit(pieces)
    expected = torch.autograd.functional.jacobian(layer, x)
    torch.testing.assert_close(torch.func.jacrev(layer)(x), expected)
    torch.testing.assert_close(torch.func.jacfwd(layer)(x), expected)
    _, tangent = torch.func.jvp(layer, (x,), (v,))
    torch.testing.assert_close(tangent, torch.einsum("...ij,ij->...", expected, v))


@pytest.mark.parametrize("unit", [Maxout, ChannelOut])
def test_of_equal_pieces_the_first_gets_the_gradient(unit):
    x = torch.tensor([[1.0, 1.0, 1.0, 0.0, 2.0, 2.0]], requires_grad=True)  # units (1,1,2), (1,0,2)
    unit(3)(x).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0, 0, 1, 1]]
    x = torch.tensor([[3.0, 3.0, 3.0]], requires_grad=True)
    unit(3)(x).sum().backward()
    assert x.grad.tolist() == [[1, 0, 0]]


def test_ties_are_common_in_bfloat16_and_the_gradient_is_never_counted_twice():
    x = torch.randn(64, 500).to(torch.bfloat16).requires_grad_()
    y = maxout(x, 5)
    y.backward(torch.ones_like(y))
    assert set(x.grad.unique().tolist()) == {0.0, 1.0}
    assert (torch.stack(x.grad.chunk(5, 1)).sum(dim=0) == 1).all()


@pytest.mark.parametrize("position", range(3))
def test_a_nan_is_not_lost(position):
    x = torch.tensor([[1.0, 2.0, 3.0]])
    x[0, position] = float("nan")
    assert maxout(x, 3).isnan().all()
    assert reference(x, 3, 1).isnan().all()
    assert channel_out(x, 3)[0, position].isnan()


def test_infinities():
    inf = float("inf")
    x = torch.tensor([[inf, -inf, 1.0, -inf]])
    assert maxout(x, 2).tolist() == [[inf, -inf]]
    assert channel_out(x, 2).tolist() == [[inf, -inf, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("unit", UNITS)
def test_dtype_is_kept(unit, dtype):
    x = distinct((2, 6, 3), dtype=dtype).requires_grad_()
    y = unit(2, dim=1)(x)
    assert y.dtype == dtype
    y.sum().backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("unit", UNITS)
def test_channels_last_is_kept(unit):
    x = lay_out(distinct((2, 6, 4, 5)), "channels_last").requires_grad_()
    y = unit(2)(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    y.backward(torch.ones_like(y))
    assert x.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided", "expanded"])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_the_operator_is_a_good_citizen(pieces, layout):
    x = lay_out(distinct((2, 6, 4, 5), dtype=torch.float32), layout).requires_grad_()
    torch.library.opcheck(_operator, (x, pieces, 1))


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_compiled_equals_eager(unit):
    # Sharp enough for probout to draw the maximum, whatever the noise of the compiled version is.
    layer = unit(3, sharpness=1e4) if unit is Probout else unit(3)
    x, twin = (distinct((4, 6, 5), dtype=torch.float32).requires_grad_() for _ in range(2))
    compiled = torch.compile(layer, fullgraph=True)
    y, expected = compiled(x), layer(twin)
    torch.testing.assert_close(y, expected)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)


def test_maxout_keeps_no_indices():
    x = torch.randn(4, 10, 6, 6, requires_grad=True)
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = maxout(x, 5)
    assert all(tensor.dtype == torch.float32 for tensor in saved)
    # The input, which its producer keeps alive anyway, and the output, which the next layer keeps.
    assert {tensor.shape for tensor in saved} == {x.shape, y.shape}
    assert len(saved) == 2


def test_dense_and_convolutional():
    dense = nn.Sequential(nn.Linear(7, 5 * 4), Maxout(5))
    convolution = nn.Sequential(nn.Conv2d(3, 5 * 4, 3, padding=1), Maxout(5))
    assert dense(torch.randn(2, 7)).shape == (2, 4)
    assert convolution(torch.randn(2, 3, 8, 8)).shape == (2, 4, 8, 8)


@pytest.mark.parametrize("unit", UNITS)
def test_mistakes_are_named(unit):
    with pytest.raises(ValueError, match="pieces must be at least 1, got 0"):
        unit(0)
    with pytest.raises(TypeError, match="pieces must be an int, got float"):
        unit(2.0)
    with pytest.raises(ValueError, match="7 channels at dim=1, which do not divide into 2 pieces"):
        unit(2)(torch.randn(3, 7))
    with pytest.raises(ValueError, match=r"dim=1 is not an axis of an input of shape \(4,\)"):
        unit(2)(torch.randn(4))
    with pytest.raises(TypeError, match=r"floating dtype, got torch\.int64"):
        unit(2)(torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match="input must be a tensor, got list"):
        unit(2)([1.0])


@pytest.mark.parametrize("sharpness", [-1.0, float("nan"), float("inf")])
def test_probout_refuses_a_wrong_sharpness(sharpness):
    with pytest.raises(ValueError, match="sharpness must be finite and not negative"):
        Probout(2, sharpness=sharpness)


def test_repr():
    assert repr(Maxout(2)) == "Maxout(2, dim=1)"
    assert repr(ChannelOut(3, dim=-1)) == "ChannelOut(3, dim=-1)"
    assert repr(Probout(2, 0.5)) == "Probout(2, sharpness=0.5, dim=1)"
