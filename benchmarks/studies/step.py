"""Training steps of the small GPT with learned curves beside the same with fixed activations.

python benchmarks/studies/step.py --threads 1

The feed-forward layers are equally wide in all of them. Ratios are to the step with ReLU, compared
round by round: medians with 20 % and 80 % quantiles.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import gpt
import torch
from torch import Tensor, nn

import torchapl
from torchapl.bench.timing import interleaved, ratios, reuse_memory


def model_with(activation: Callable[[], nn.Module]) -> nn.Module:
    """Return the GPT of the row with curves, with another activation in their place."""
    model = gpt.GPT("apl")
    for block in model.blocks:
        block.feed_forward[1] = activation()
    return model


def step(model: nn.Module, windows: Tensor) -> Callable[[], object]:
    """Return a call of forward, backward and update."""
    groups = torchapl.parameter_groups(model, lr=1e-6, weight_decay=gpt.DECAY)
    optimizer = torch.optim.AdamW(groups, lr=1e-6)

    def call() -> object:
        optimizer.zero_grad()
        gpt.loss_of(model, windows).backward()
        return optimizer.step()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=61)
    options = parser.parse_args()
    reuse_memory()
    torch.manual_seed(0)
    windows = torch.randint(gpt.VOCABULARY, (gpt.BATCH, gpt.CONTEXT + 1))
    models = {"ReLU": nn.ReLU, "SiLU": nn.SiLU, "GELU": nn.GELU}
    calls = {name: step(model_with(make), windows) for name, make in models.items()}
    calls["APL"] = step(gpt.GPT("apl"), windows)
    print("| threads | over ReLU: SiLU | GELU | APL | APL over SiLU |\n|---|---|---|---|---|")
    for threads in options.threads:
        torch.set_num_threads(threads)
        seconds = interleaved(calls, rounds=options.rounds)
        found = {"relu": ratios(seconds, to="ReLU"), "silu": ratios(seconds, to="SiLU")}
        cells = [found["relu"][name] for name in ("SiLU", "GELU", "APL")] + [found["silu"]["APL"]]
        shown = [f"{cell.median:.3f} ({cell.low:.3f} - {cell.high:.3f})" for cell in cells]
        print(f"| {threads} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
