"""No network meets oneDNN's broken backward of 1x1 convolutions with stride 2.

Channels last, with fewer than 8 input channels and without AVX-512, it writes past the end of its
memory, and the interpreter dies some steps later.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from torchapl.paper.activations import Activation
from torchapl.paper.nets import NETWORKS, build
from torchapl.paper.nets.resnet import ResNet

STEPS = """
import torch
from torchapl.paper.activations import Activation
from torchapl.paper.nets import build

relu = Activation.parse("relu")
net = build(
    "resnet", activation=relu, input_shape=(3, 32, 32), num_classes=10, width=0.25
).to(memory_format=torch.channels_last)
images = torch.randn(50, 3, 32, 32).contiguous(memory_format=torch.channels_last)
for _ in range(10):
    net(images).sum().backward()
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_no_one_by_one_convolution_has_a_stride(name):
    is_dense = name == "higgs-dnn"
    net = build(
        name,
        activation=Activation.parse("relu"),
        input_shape=(25,) if is_dense else (3, 32, 32),
        num_classes=1 if is_dense else 10,
        width=0.0625,
    )
    strided = [
        layer
        for layer in net.modules()
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.stride != (1, 1)
    ]
    assert not strided


def test_resnet_survives_ten_steps_without_avx512():
    limited = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", STEPS], env=limited, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_shortcut_is_the_convolution_with_a_stride():
    net = ResNet(Activation.parse("relu"), (3, 8, 8), 10)
    block = next(block for block in net.stages if block.stride == 2)
    images = torch.randn(2, 16, 7, 7)
    strided = nn.functional.conv2d(images, block.shortcut[0].weight, stride=2)
    block.conv2.weight.data.zero_()
    expected = block.shortcut[1](strided).relu()
    assert torch.allclose(block(images), expected, atol=1e-5)
