"""Every network of the paper's tables, by name.

Example:
    >>> net = build("higgs-dnn", activation=Activation("relu"), input_shape=(25,), num_classes=1)
    >>> sum(parameter.numel() for parameter in net.parameters())
    459499
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import Net
from torchapl.paper.nets.channel_out import CIFAR100, ChannelOutNet
from torchapl.paper.nets.cifar_cnn import CifarCNN
from torchapl.paper.nets.dasnet import DasNet
from torchapl.paper.nets.deep_supervision import DeeplySupervisedNIN
from torchapl.paper.nets.dropout_cnn import DropoutCNN
from torchapl.paper.nets.ensemble import Ensemble
from torchapl.paper.nets.higgs_dnn import HiggsDNN
from torchapl.paper.nets.maxout import MaxoutNet
from torchapl.paper.nets.nin import NIN, SMALL_START
from torchapl.paper.nets.probout import ProboutNet
from torchapl.paper.nets.resnet import ResNet

__all__ = [
    "NETS",
    "NIN",
    "ChannelOutNet",
    "CifarCNN",
    "DasNet",
    "DeeplySupervisedNIN",
    "DropoutCNN",
    "Ensemble",
    "HiggsDNN",
    "MaxoutNet",
    "Net",
    "ProboutNet",
    "ResNet",
    "build",
]

NETS: dict[str, Callable[..., Net]] = {
    "cifar-cnn": CifarCNN,
    "cifar-cnn-100": partial(CifarCNN, second_pool="max"),
    "nin": NIN,
    "nin-lin": partial(NIN, second_pool="max", last_rates=(0.1, 0.2)),
    "nin-lin-100": partial(NIN, second_pool="max", last_rates=(1.0, 2.0), deviations=SMALL_START),
    "nin-dsn": DeeplySupervisedNIN,
    "nin-dsn-100": partial(DeeplySupervisedNIN, loss="cross-entropy"),
    "dropout-cnn": DropoutCNN,
    "maxout": MaxoutNet,
    "channel-out": ChannelOutNet,
    "channel-out-100": partial(ChannelOutNet, sizes=CIFAR100),
    "probout": ProboutNet,
    "dasnet": DasNet,
    "higgs-dnn": HiggsDNN,
    "resnet": ResNet,
}
_ENSEMBLE = "ensemble:"


def build(
    name: str,
    *,
    activation: Activation,
    input_shape: tuple[int, ...],
    num_classes: int,
    width: float = 1.0,
) -> Net:
    """Return a freshly started network of the registry ``NETS``.

    Args:
        name: A key of ``NETS``, or ``ensemble:N:NAME`` for N networks of that name.
        activation: What follows its layers.
        input_shape: ``(C, H, W)`` for images, ``(F,)`` for tables, without the batch.
        num_classes: Number of logits; 1 means one logit with sigmoid cross-entropy.
        width: Factor on all numbers of channels and hidden units; 1 is the paper's size.
    """
    if name.startswith(_ENSEMBLE):
        size, _, member = name.removeprefix(_ENSEMBLE).partition(":")
        if not size.isdecimal() or int(size) < 1:
            raise ValueError(f"an ensemble must look like ensemble:5:higgs-dnn, got {name!r}")
        arguments = (activation, input_shape, num_classes, width)
        return Ensemble([_build(member, *arguments) for _ in range(int(size))])
    return _build(name, activation, input_shape, num_classes, width)


def _build(
    name: str,
    activation: Activation,
    input_shape: tuple[int, ...],
    num_classes: int,
    width: float,
) -> Net:
    if name not in NETS:
        near = get_close_matches(name, NETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(NETS)}"
        raise ValueError(f"unknown network {name!r}, {hint}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    return NETS[name](activation, tuple(input_shape), num_classes, width)
