"""The network of a run: built, started, laid out and compiled as the experiment says."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from torchapl.paper.config import Experiment
from torchapl.paper.data import Bundle
from torchapl.paper.nets import Net, build

Compile = Literal["none", "default", "graphs"]


@torch.no_grad()
def start_by_fan_in_(net: nn.Module) -> None:
    """Start all weights as N(0, 2 / fan-in), a last linear layer's smaller, and biases at 0."""
    layers = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            layer.bias.zero_()
    # Logits near 0 at the start; the logits of NIN are a convolution with an activation after it.
    if isinstance(layers[-1], nn.Linear):
        layers[-1].weight.mul_(0.1)


def check_compile(compile: Compile, device: torch.device) -> None:
    """Refuse a way to compile that the device does not have.

    Example:
        >>> check_compile("graphs", torch.device("cpu"))
        Traceback (most recent call last):
        ValueError: compile='graphs' captures CUDA graphs, which device 'cpu' does not have...
    """
    if compile not in ("none", "default", "graphs"):
        raise ValueError(f"compile must be 'none', 'default' or 'graphs', got {compile!r}")
    if compile == "graphs" and device.type != "cuda":
        raise ValueError(
            f"compile='graphs' captures CUDA graphs, which device {str(device)!r} does not have; "
            "take 'default'"
        )


def build_network(
    experiment: Experiment, bundle: Bundle, device: torch.device, compile: Compile
) -> Net:
    """Return the network at its start; torch's random state decides the weights.

    Args:
        experiment: What to train.
        bundle: Its data, for the shapes, and for networks that start from it.
        device: Where.
        compile: ``"default"`` compiles the network, ``"graphs"`` captures CUDA graphs too.
    """
    check_compile(compile, device)
    net = build(
        experiment.net,
        activation=experiment.activation,
        input_shape=bundle.input_shape,
        num_classes=bundle.num_classes,
        width=experiment.width,
        depth=experiment.depth,
    ).to(device)
    if experiment.start == "he":
        start_by_fan_in_(net)
    net.start_from_data_(inputs for inputs, _ in bundle.train.epoch(0))
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p *= experiment.dropout
    if len(bundle.input_shape) == 3:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    if compile != "none":
        # In place: names of parameters and the methods of the network stay as they are.
        net.compile(mode="reduce-overhead" if compile == "graphs" else "default")
    return net
