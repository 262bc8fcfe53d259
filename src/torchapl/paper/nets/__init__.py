"""Every network of the paper's tables, by name; a new one is a file and its import here.

Example:
    >>> relu = Activation.parse("relu")
    >>> net = build("higgs-dnn", activation=relu, input_shape=(25,), num_classes=1)
    >>> sum(parameter.numel() for parameter in net.parameters())
    459499
"""

from __future__ import annotations

from torchapl.paper.activations import Activation
from torchapl.paper.nets.base import NETWORKS, Net, Network, Plain
from torchapl.paper.nets.channel_out import ChannelOutNet
from torchapl.paper.nets.cifar_cnn import CifarCNN
from torchapl.paper.nets.dasnet import DasNet
from torchapl.paper.nets.deep_supervision import DeeplySupervisedNIN
from torchapl.paper.nets.dropout_cnn import DropoutCNN
from torchapl.paper.nets.fast_resnet import FastResNet
from torchapl.paper.nets.higgs_dnn import HiggsDNN
from torchapl.paper.nets.maxout import MaxoutNet
from torchapl.paper.nets.nin import NIN
from torchapl.paper.nets.probout import ProboutNet
from torchapl.paper.nets.resnet import ResNet

__all__ = [
    "NETWORKS",
    "NIN",
    "ChannelOutNet",
    "CifarCNN",
    "DasNet",
    "DeeplySupervisedNIN",
    "DropoutCNN",
    "FastResNet",
    "HiggsDNN",
    "MaxoutNet",
    "Net",
    "Network",
    "ProboutNet",
    "ResNet",
    "build",
]


def build(
    name: str,
    *,
    activation: Activation,
    input_shape: tuple[int, ...],
    num_classes: int,
    width: float = 1.0,
    depth: int | None = None,
) -> Net:
    """Return a freshly started network of the catalogue ``NETWORKS``.

    Args:
        name: Of the network.
        activation: What follows its layers.
        input_shape: ``(C, H, W)`` for images, ``(F,)`` for tables, without the batch.
        num_classes: Number of logits; 1 means one logit with sigmoid cross-entropy.
        width: Factor on all numbers of channels and hidden units; 1 is the paper's size.
        depth: Number of hidden layers; None is the network's own.
    """
    network = NETWORKS.get(name)
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    options = {} if depth is None else {"depth": depth}
    if depth is not None and network.depth is None:
        raise ValueError(f"{name} has a depth that cannot be changed, got depth={depth}")
    module = network.build(activation, tuple(input_shape), num_classes, width, **options)
    return module if isinstance(module, Net) else Plain(module)
