"""How long does it take to give a network of the size of ResNet-50 learned activations?

python benchmarks/swap.py

"CPU s" is the least time of the processor, which says more on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor, nn

import torchapl


class Bottleneck(nn.Module):
    """The block of ResNet-50: one activation module, three call sites."""

    def __init__(self, inputs: int, width: int, stride: int, activation: nn.Module) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = activation
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


def resnet50(activation: type[nn.Module]) -> nn.Module:
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), activation()]
    layers: list[nn.Module] = [*stem, nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(Bottleneck(inputs, width, stride, activation()))
            inputs = 4 * width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers, *head)


def measure(activation: type[nn.Module], num_hinges: int | None, repetitions: int) -> str:
    seconds, processor = [], []
    x = torch.randn(1, 3, 224, 224)
    for _ in range(repetitions):
        model = resnet50(activation).eval()
        weights = sum(parameter.numel() for parameter in model.parameters())
        start, start_of_process = time.perf_counter(), time.process_time()
        swapped = torchapl.swap_activations(model, x, num_hinges=num_hinges)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_of_process)
    report = torchapl.describe(swapped)
    start = time.perf_counter()
    torchapl.rebuild_swapped(resnet50(activation), report.to_json())
    rebuild = time.perf_counter() - start
    largest = max(swap.error for swap in report.swaps)
    return (
        f"{activation.__name__:6} {weights:12,} {len(report.swaps):6} {report.num_parameters:10,} "
        f"{statistics.median(seconds):8.2f} {max(seconds):8.2f} {min(processor):8.2f} "
        f"{rebuild:8.2f} {largest:10.2g} {report.output_error:10.2g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-hinges", type=int, help="by tolerance if not given")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads, {options.repetitions} repetitions")
    print(
        f"{'old':6} {'weights':>12} {'calls':>6} {'added':>10} {'median s':>8} {'max s':>8} "
        f"{'CPU s':>8} {'rebuild':>8} {'error':>10} {'output':>10}"
    )
    for activation in (nn.ReLU, nn.SiLU):
        print(measure(activation, options.num_hinges, options.repetitions), flush=True)


if __name__ == "__main__":
    main()
