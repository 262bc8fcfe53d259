"""The affine maps around ReLUs that make an APL unit, as layers of torch.nn."""

from __future__ import annotations

import copy
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from torchapl.modules import AffineAPL, Unit, inner_unit

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Hidden(NamedTuple):
    """Curves as sums of ReLUs: constant + sum over k of weight*max(0, sign*x + bias).

    Attributes:
        sign: 1 or -1, of shape ``(K,)``.
        bias: Of shape ``(K, *unit_shape)``, as the next.
        weight: What each ReLU counts.
        constant: Of shape ``unit_shape``.
    """

    sign: Tensor
    bias: Tensor
    weight: Tensor
    constant: Tensor

    @classmethod
    def of(cls, unit: Unit) -> Hidden:
        """Read a layer of units: max(0, x) and a ReLU of -x for each hinge."""
        inner = inner_unit(unit)
        a, b = (p.detach().double() for p in (inner.slope, inner.offset))
        zero, one = torch.zeros_like(a[:1]), torch.ones_like(a[:1])
        bias, weight, constant = torch.cat([zero, b]), torch.cat([one, a]), zero[0]
        signs = [1.0] + [-1.0] * inner.num_hinges
        if isinstance(unit, AffineAPL):
            scale, shift, skip, center = (
                float(number) for number in (unit.scale, unit.shift, unit.skip, unit.center)
            )
            # x = max(0, x - c) - max(0, c - x) + c carries the skip.
            bias = torch.cat([bias[:1] - center, bias[1:] + center, zero + center])
            weight = torch.cat([scale * weight[:1] + skip, scale * weight[1:], zero - skip])
            constant, signs = constant + shift + skip * center, [*signs, -1.0]
        return cls(a.new_tensor(signs), bias, weight, constant)

    def flat(self, units: int) -> Hidden:
        """Return the same with one axis of units; a shared curve is repeated for each."""
        bias, weight = (
            t.reshape(t.shape[0], -1).expand(-1, units) for t in (self.bias, self.weight)
        )
        return Hidden(self.sign, bias, weight, self.constant.reshape(-1).expand(units))


def expanded(layer: Layer, hidden: Hidden) -> Layer:
    """Return the layer with outputs sign*y + bias, the K of one output beside each other."""
    wide = copy.deepcopy(layer)
    weight = layer.weight.detach().double()
    bias = 0.0 if layer.bias is None else layer.bias.detach().double()[:, None]
    signs = hidden.sign.reshape(1, -1, *(1,) * (weight.dim() - 1))
    return _refilled(
        wide,
        (weight[:, None] * signs).flatten(0, 1),
        (bias * hidden.sign + hidden.bias.T).flatten(),
        like=layer.weight,
    )


def combined(layer: nn.Linear, hidden: Hidden) -> nn.Linear:
    """Return the layer that first sums the K inputs of each unit."""
    weight = layer.weight.detach().double()
    bias = 0.0 if layer.bias is None else layer.bias.detach().double()
    return _refilled(
        copy.deepcopy(layer),
        (weight[..., None] * hidden.weight.T).flatten(1),
        bias + weight @ hidden.constant,
        like=layer.weight,
    )


def _refilled(layer: Layer, weight: Tensor, bias: Tensor, like: Tensor) -> Layer:
    """Give a layer, on the meta device if it is new, these weights: none is drawn at random."""
    layer.weight = nn.Parameter(weight.to(like), requires_grad=like.requires_grad)
    layer.bias = nn.Parameter(bias.to(like), requires_grad=like.requires_grad)
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    else:
        layer.out_channels = weight.shape[0]
    return layer


def grouped(hidden: Hidden, like: Tensor) -> tuple[nn.Conv2d, nn.Conv2d]:
    """Return the 1x1 convolutions before and after the ReLU, one group for each unit."""
    k, units = hidden.weight.shape
    signs = hidden.sign.repeat(units).reshape(-1, 1, 1, 1)
    return (
        _refilled(
            nn.Conv2d(units, k * units, 1, groups=units, device="meta"),
            signs,
            hidden.bias.T.flatten(),
            like,
        ),
        _refilled(
            nn.Conv2d(k * units, units, 1, groups=units, device="meta"),
            hidden.weight.T[..., None, None],
            hidden.constant,
            like,
        ),
    )


def dense(
    name: str, hidden: Hidden, like: Tensor, max_parameters: int
) -> tuple[nn.Linear, nn.Linear]:
    """Return the Linear before and after the ReLU; all but blocks on the diagonal is 0."""
    k, units = hidden.weight.shape
    size = k * units * units
    if size > max_parameters:
        raise ValueError(
            f"units {name!r}: a Linear for {units} features with {k} ReLUs each has {size:,} "
            f"weights, nearly all 0, more than max_parameters={max_parameters:,}; put the units "
            "between two Linear of a Sequential, which absorb them, or allow more"
        )
    identity = torch.eye(units, dtype=torch.float64, device=like.device)
    expand = (identity[:, None] * hidden.sign[:, None]).flatten(0, 1)
    combine = (identity[..., None] * hidden.weight.T).flatten(1)
    return (
        _refilled(nn.Linear(1, 1, device="meta"), expand, hidden.bias.T.flatten(), like),
        _refilled(nn.Linear(1, 1, device="meta"), combine, hidden.constant, like),
    )
