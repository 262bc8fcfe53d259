"""Time forward and backward of ten elements, where the call itself is what costs.

    python tools/overhead.py

Prints microseconds of ReLU, PReLU and APL, and the ratios of the latter two to ReLU. The best of
many, taken in turn, so that a busy machine delays all alike.
"""

from __future__ import annotations

import time

import torch
from torch import nn

import torchapl

CALLS = 10


def main() -> None:
    """Time all three and print a line."""
    torch.set_num_threads(1)
    input, grad = torch.randn(1, 10, requires_grad=True), torch.ones(1, 10)
    modules: list[nn.Module] = [nn.ReLU(), nn.PReLU(10), torchapl.APL(10)]
    best = [float("inf")] * len(modules)
    for _ in range(1000):
        for i, module in enumerate(modules):
            start = time.perf_counter()
            for _ in range(CALLS):
                torch.autograd.backward(module(input), grad)
            best[i] = min(best[i], (time.perf_counter() - start) / CALLS * 1e6)
    relu, prelu, apl = best
    print(torchapl.backends()["cpu"].reason)
    print(f"ReLU {relu:.1f}, PReLU {prelu:.1f}, APL {apl:.1f}: {prelu / relu:.2f} {apl / relu:.2f}")


if __name__ == "__main__":
    main()
