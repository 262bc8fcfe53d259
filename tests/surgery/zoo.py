"""Hand-written models, one for each way in which an activation can be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """One ReLU object, two call sites, one of them behind an in-place addition."""

    def __init__(self, channels: int = 6, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = activation or nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class OneSite(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)
        self.act = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


class Alias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 7)
        self.first = nn.ReLU()
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.linear(x))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.layers[0](x))
        x = torch.relu(self.layers[1](x))
        x = self.layers[2](x).relu()
        x = F.leaky_relu(self.layers[3](x), 0.2)
        return F.dropout(self.layers[4](x).relu_(), 0.5, self.training)


class InPlace(nn.Module):
    """Statements that throw the result away: what was overwritten is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        F.relu_(x)
        y = self.second(x)
        z = self.relu(y)
        return z + y + x


class LayerLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 8), nn.Linear(8, 3)])
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x


class TimeLoop(nn.Module):
    """A recurrent network: torch.fx cannot unroll it, and one unit serves all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.state = nn.Linear(4, 6), nn.Linear(6, 6)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 6)
        for t in range(x.shape[1]):
            h = self.act(self.input(x[:, t]) + self.state(h))
        return h


class Attribute(nn.Module):
    """Keeps functions as attributes, and branches on its input: no trace is possible or needed."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 7)
        self.activation = function

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError
        return self.activation(self.linear(x))


class Stranger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 7)

    def forward(self, x: Tensor) -> Tensor:
        return nn.ReLU()(self.linear(x))


class Optional(nn.Module):
    """Arguments that may be None, a flag, and a keyword-only number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 7)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, flag: bool = True, *, scale: float = 2.0
    ) -> Tensor:
        x = F.relu(self.linear(x)) * scale
        if mask is not None:
            x = x * mask
        return x if flag else -x


class Modes(nn.Module):
    """Batch statistics and dropout, which depend on the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn = nn.Linear(5, 7), nn.BatchNorm1d(7)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.linear(x)))
        return F.dropout(x, 0.5, training=self.training)


class ChannelsLast(nn.Module):
    """(N, C, H, W) -> (N, H, W, C) with C == H == W: the shape does not tell the axis."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)
        self.act1, self.act2, self.act3 = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.linear = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.conv(x))
        x = self.act2((x - x.mean()).permute(0, 2, 3, 1))
        return self.act3(self.linear(x).flatten(1, 2))


class Outer(nn.Module):
    """A shared block under two names, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.block = OneSite(nn.ReLU())
        self.again = self.block

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.block(x))


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def shared_by_blocks() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(OneSite(relu), nn.Linear(5, 5), OneSite(relu))


def repeated_in_sequence() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(5, 6), relu, nn.Linear(6, 7), relu)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def smooth() -> nn.Module:
    return nn.Sequential(*(OneSite(kind) for kind in (nn.GELU(), nn.Tanh(), Swish())))


def piecewise_linear() -> nn.Module:
    slopes = nn.PReLU(5)
    with torch.no_grad():
        slopes.weight.copy_(torch.tensor([0.1, -0.3, 0.25, 0.0, 1.5]))
    kinds = [nn.ReLU(), nn.LeakyReLU(0.01), nn.LeakyReLU(-0.1), nn.PReLU(), slopes]
    return nn.Sequential(*(OneSite(kind) for kind in kinds))


def bounded() -> nn.Module:
    kinds = [nn.ReLU6(), nn.Hardtanh(), nn.Hardtanh(-0.5, 2.0), nn.Softshrink(0.3)]
    return nn.Sequential(*(OneSite(kind) for kind in kinds))


@dataclass(frozen=True)
class Model:
    """A model, inputs for it, and where its units belong."""

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    units: dict[str, tuple[int, ...]] = field(default_factory=dict)
    exact: bool = True
    in_place: bool = True

    def __str__(self) -> str:
        return self.name


def _row(size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(64, size)


def _maps(channels: int, size: int = 6) -> Callable[[], Tensor]:
    return lambda: torch.randn(4, channels, size, size)


def _each(count: int) -> dict[str, tuple[int, ...]]:
    return {f"{index}.act": (5,) for index in range(count)}


def _rewritten(
    name: str, build: Callable[[], nn.Module], example: Any, units: dict[str, tuple[int, ...]]
) -> Model:
    return Model(name, build, example, units, in_place=False)


TWO = {"relu_1": (6,), "relu_2": (6,)}
FUNCTIONS = {"relu_1": (6,), "relu_2": (6,), "relu_3": (6,), "leakyrelu_1": (6,), "relu_4": (6,)}
LAYERS = {"act_1": (6,), "act_2": (8,), "act_3": (3,)}
AXES = {"act1": (6,), "act2": (6,), "act3": (8,)}
ENCODER = {"layers.0.activation": (16,), "layers.1.activation": (16,)}
BLOCKS = {f"{block}.relu_{site}": (6,) for block in (0, 1) for site in (1, 2)}

MODELS = [
    _rewritten("residual block", BasicBlock, _maps(6), TWO),
    Model("blocks", lambda: nn.Sequential(BasicBlock(), BasicBlock()), _maps(6, 8), BLOCKS),
    _rewritten("prelu at two sites", lambda: BasicBlock(activation=nn.PReLU()), _maps(6), TWO),
    Model("shared by blocks", shared_by_blocks, _row(5), {"0.act": (5,), "2.act": (5,)}),
    Model("repeated in sequence", repeated_in_sequence, _row(5), {"1": (6,), "3": (7,)}),
    Model("alias", Alias, _row(5), {"first": (7,)}),
    _rewritten("functional", Functional, _row(6), FUNCTIONS),
    _rewritten("in place", InPlace, _row(6), TWO),
    _rewritten("layer loop", LayerLoop, _row(4), LAYERS),
    Model("time loop", TimeLoop, lambda: torch.randn(8, 5, 4), {"act": (6,)}),
    Model("function as attribute", lambda: Attribute(F.relu), _row(5), {"activation": (7,)}),
    Model("own function", lambda: Attribute(swish), _row(5), {"activation": (7,)}, exact=False),
    _rewritten("module made in forward", Stranger, _row(5), {"relu_1": (7,)}),
    _rewritten("optional arguments", Optional, lambda: {"x": torch.randn(64, 5)}, {"relu_1": (7,)}),
    _rewritten(
        "mask given", Optional, lambda: (torch.randn(64, 5), torch.rand(64, 7)), {"relu_1": (7,)}
    ),
    _rewritten("modes", Modes, _row(5), {"relu_1": (7,)}),
    Model("channels first and last", ChannelsLast, _maps(3), AXES),
    Model("shared block", Outer, _row(5), {"block.act": (5,)}),
    Model("torch encoder", encoder, lambda: torch.randn(4, 3, 8), ENCODER),
    Model("piecewise linear", piecewise_linear, _row(5), _each(5)),
    Model("bounded", bounded, _row(5), _each(4), exact=False),
    Model("smooth", smooth, _row(5), _each(3), exact=False),
]
