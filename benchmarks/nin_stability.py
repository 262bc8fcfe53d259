"""The first iterations of NIN at the authors' rates, on raw and on standardised CIFAR-10.

    python benchmarks/nin_stability.py --data DIR --preprocessing mean-image --activation apl:2

DIR holds cifar-10-batches-bin. Prints one line per ten iterations: loss (mean of the ten), largest
gradient, largest logit and the share of first-block units that are 0 for every image of the batch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchapl.paper.activations import Activation
from torchapl.paper.config import Optim
from torchapl.paper.nets import build
from torchapl.paper.optim import build_optimizer, set_schedule

# The authors' solver file: momentum .1 -> .9, decay 1e-4; paper.md section 3 has the later rates.
AUTHORS = Optim(lr=0.05, momentum=0.9, momentum_start=0.1, weight_decay=1e-4, curve_decay=1e-3)


def read(folder: Path) -> tuple[Tensor, Tensor]:
    files = sorted((folder / "cifar-10-batches-bin").glob("data_batch_*.bin"))
    rows = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
    images = torch.from_numpy(rows[:, 1:]).reshape(-1, 3, 32, 32)
    return images, torch.from_numpy(rows[:, 0]).long()


def prepare(images: Tensor, preprocessing: str) -> Tensor:
    values = images.float()
    values -= values.mean(dim=0) if preprocessing == "mean-image" else values.mean((0, 2, 3), True)
    if preprocessing == "standard":
        values /= values.std((0, 2, 3), keepdim=True)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preprocessing", choices=("mean-image", "standard"), required=True)
    parser.add_argument("--activation", type=Activation.parse, required=True)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--lr", type=float, default=AUTHORS.lr)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    images, labels = read(options.data)
    values = prepare(images, options.preprocessing)
    net = build(
        "nin",
        activation=options.activation,
        input_shape=(3, 32, 32),
        num_classes=10,
        width=options.width,
    ).train()
    optim = Optim(**{**vars(AUTHORS), "lr": options.lr})
    optimizer = build_optimizer(net.parameter_multipliers(), optim)
    first_block = []
    net.layers.act13.register_forward_hook(lambda *call: first_block.append(call[2]))
    order = torch.randperm(len(images))
    losses = []
    for step in range(options.iterations):
        set_schedule(optimizer, optim, step, options.iterations)
        batch = order[100 * step : 100 * (step + 1)]
        logits = net(values[batch])
        loss = F.cross_entropy(logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        dead = (first_block.pop() == 0).all(dim=0).float().mean().item()
        if (step + 1) % 10 == 0:
            gradient = max(
                p.grad.abs().max().item() for p in net.parameters() if p.grad is not None
            )
            print(
                f"{step + 1:4d}  loss {np.mean(losses[-10:]):.4g}  gradient {gradient:.3g}  "
                f"logit {logits.detach().abs().max().item():.3g}  dead {dead:.2f}",
                flush=True,
            )
        if not np.isfinite(losses[-1]):
            print(f"diverged at iteration {step + 1}: loss {losses[-1]}")
            return


if __name__ == "__main__":
    main()
