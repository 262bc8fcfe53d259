from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl import describe, swap_activations


class Net(nn.Module):
    """Calls its one activation on what a function makes of its layers and the input."""

    def __init__(self, prepare: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(3, 6, 1)
        self.conv2 = nn.Conv2d(3, 6, 1)
        self.single = nn.Conv2d(3, 1, 1)
        self.conv3 = nn.Conv3d(3, 6, 1)
        self.up = nn.ConvTranspose2d(3, 6, 2, stride=2)
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.batch_norm = nn.BatchNorm2d(3)
        self.embedding = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.act = nn.ReLU()
        self.prepare = prepare

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.prepare(self, x))


SIX = (2, 3, 6, 6)  # a map as wide and high as it will have channels
CASES: dict[str, tuple[Callable[[Net, Tensor], Tensor], tuple[int, ...], int]] = {
    "conv1d": (lambda m, x: m.conv1(x), (2, 3, 6), 1),
    "conv2d": (lambda m, x: m.conv2(x), SIX, 1),
    "conv3d": (lambda m, x: m.conv3(x), (2, 3, 6, 6, 6), 1),
    "transposed convolution": (lambda m, x: m.up(x), SIX, 1),
    "no batch axis": (lambda m, x: m.conv2(x), (3, 6, 6), -3),
    "linear": (lambda m, x: m.linear(x), (2, 6, 6), -1),
    "linear on maps": (lambda m, x: m.linear(x), (2, 6, 6, 6), -1),
    "layer norm": (lambda m, x: m.norm(x), (2, 6, 6), -1),
    "batch norm": (lambda m, x: m.batch_norm(x), (2, 3, 3, 3), 1),
    "group norm": (lambda m, x: F.group_norm(x, 3), SIX, 1),
    "embedding": (lambda m, x: m.embedding(x.abs().long().clamp(max=9)), (2, 6), -1),
    "lstm": (lambda m, x: m.lstm(x)[0], (2, 6, 6), -1),
    "product with a weight": (lambda m, x: x @ m.weight, (2, 6, 6), -1),
    "residual and dropout": (lambda m, x: F.dropout(m.conv2(x) + 1, 0.1, False) * 2, SIX, 1),
    "channels moved to the end": (lambda m, x: m.conv2(x).permute(0, 2, 3, 1), SIX, -1),
    "channels moved to the front": (lambda m, x: m.linear(x).permute(0, 3, 1, 2), (2, 6, 6, 6), 1),
    "transposed": (lambda m, x: m.linear(x).transpose(1, 2), (2, 6, 6), 1),
    "mT": (lambda m, x: m.linear(x).mT, (2, 6, 6), 1),
    "patches": (lambda m, x: m.conv2(x).flatten(2).transpose(1, 2), SIX, -1),
    "flattened": (lambda m, x: m.conv2(x).flatten(1), SIX, -1),
    "global mean": (lambda m, x: m.conv2(x).mean([2, 3]), SIX, -1),
    "max pool": (lambda m, x: F.max_pool2d(m.conv2(x), 3, 1, 1), SIX, 1),
    "average pool with border": (lambda m, x: F.avg_pool2d(m.conv2(x), 3, 1, 1), SIX, 1),
    "padded": (lambda m, x: F.pad(m.conv2(x), (1, 1, 1, 1)), SIX, 1),
    "resized": (lambda m, x: F.interpolate(m.conv2(x), scale_factor=2), SIX, 1),
    "single channel": (lambda m, x: F.max_pool2d(m.single(x), 2), SIX, 1),
    "pixel shuffle": (lambda m, x: F.pixel_shuffle(m.conv2(x)[:, :4], 2), SIX, 1),
    "concatenated": (lambda m, x: torch.cat([m.conv2(x), m.conv2(x)], dim=1), SIX, 1),
    "half of the channels": (lambda m, x: m.conv2(x).chunk(2, dim=1)[1], SIX, 1),
    "squeezed gate": (lambda m, x: m.conv2(x) * m.conv2(x).mean((2, 3), keepdim=True), SIX, 1),
    "one row": (lambda m, x: m.linear(x)[:, 0], (2, 6, 6), -1),
    "another precision": (lambda m, x: m.conv2(x).double().contiguous(), SIX, 1),
    "swin-like windows": (
        lambda m, x: m.linear(x).view(2, 3, 2, 3, 2, 6).permute(0, 1, 3, 2, 4, 5).flatten(3, 4),
        (2, 6, 6, 6),
        -1,
    ),
    "two axes": (lambda m, x: x, (2, 6), -1),
}


@pytest.mark.parametrize("case", CASES)
def test_axis_of_the_channels(case: str) -> None:
    prepare, shape, expected = CASES[case]
    net = Net(prepare)
    reached = []
    net.act.register_forward_pre_hook(lambda module, args: reached.append(args[0].shape))
    (swap,) = describe(swap_activations(net, torch.randn(shape))).swaps
    assert swap.unit_dim == expected
    assert swap.unit_shape == (reached[0][expected],)


AMBIGUOUS: dict[str, tuple[Callable[[Net, Tensor], Tensor], tuple[int, ...]]] = {
    "the input itself": (lambda m, x: x, SIX),
    "attention": (lambda m, x: m.linear(x) @ m.linear(x).mT, (2, 6, 6)),
    "heads": (lambda m, x: m.linear(x).view(2, 6, 2, 3).transpose(1, 2), (2, 6, 6)),
    "two opinions": (lambda m, x: m.conv1(x[:, :3]) + m.linear(x), (2, 6, 6)),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_ambiguous_axes_are_asked_for(case: str) -> None:
    prepare, shape = AMBIGUOUS[case]
    net, x = Net(prepare), torch.randn(shape)
    with pytest.raises(ValueError, match=r"which axis of the input .* of act \(ReLU, "):
        swap_activations(net, x)
    assert isinstance(net.act, nn.ReLU)
    assert describe(swap_activations(net, x, per="layer")).swaps[0].unit_shape == ()


@pytest.mark.parametrize("unit_dim", [1, -3, lambda name, shape: 1 if name == "act" else None])
def test_axis_given(unit_dim: int | Callable[[str, tuple[int, ...]], int | None]) -> None:
    net = swap_activations(Net(lambda m, x: x), torch.randn(SIX), unit_dim=unit_dim)
    assert (net.act.unit_shape, net.act.unit_dim) == ((3,), 1)


def test_wrong_axis_given() -> None:
    with pytest.raises(ValueError, match=r"unit_dim=4 is not an axis of the input \(2, 3, 6, 6\)"):
        swap_activations(Net(lambda m, x: x), torch.randn(SIX), unit_dim=4)


@pytest.mark.parametrize(
    ("case", "unit_shape"),
    [
        ("conv2d", (6, 6, 6)),
        ("conv1d", (6, 6)),
        ("linear", (6,)),
        ("linear on maps", (6,)),
        ("flattened", (216,)),
    ],
)
def test_units_are_positions_from_the_channels_on(case: str, unit_shape: tuple[int, ...]) -> None:
    prepare, shape, _ = CASES[case]
    net = swap_activations(Net(prepare), torch.randn(shape), per="unit")
    assert net.act.unit_shape == unit_shape


def test_sequences_may_be_of_any_length() -> None:
    net = swap_activations(Net(lambda m, x: m.linear(x)), torch.randn(2, 5, 6), per="unit")
    assert net(torch.randn(3, 9, 6)).shape == (3, 9, 6)


def test_sizes_that_no_unit_fits() -> None:
    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act = nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = F.max_pool2d(self.act(self.conv(x)), 2)
            return x

    x = torch.randn(2, 3, 8, 8)
    with pytest.raises(ValueError, match="which per='unit' units do not all fit"):
        swap_activations(Pyramid(), x, per="unit")
    assert describe(swap_activations(Pyramid(), x)).swaps[0].unit_shape == (3,)
