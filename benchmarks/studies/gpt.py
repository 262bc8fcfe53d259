"""A GPT of a million parameters that reads bytes: which activation function predicts text best?

    python benchmarks/studies/gpt.py run    # about a minute of one core for a run
    python benchmarks/studies/gpt.py table

The metric is bits per byte on held-out chapters. All rows have equally many parameters: the hidden
layers of fixed activations are wider by what the curves take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
import verses
from study import Outcome, Run, Study, command, schedule
from torch import Tensor, nn

import torchapl

RESULTS = Path(__file__).parents[2] / "results" / "text.jsonl"
VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS = 256, 128, 144, 4, 3
BATCH = 8
DECAY, CLIP = 0.1, 1.0
# Windows of the held-out text that are evaluated, evenly spread: 64 kB.
WINDOWS = 500

# Hidden units of the models with curves, and what one of their curves takes.
CURVED, HINGES = 4 * WIDTH, 8


@dataclass(frozen=True)
class Curves:
    """How a row learns its curves."""

    start: str | None = None
    per_layer: bool = False
    # In rates of the weights.
    rate: float = 1.0
    is_learned: bool = True


CURVES = {
    "apl": Curves(),
    "start-squared": Curves(start="squared_relu"),
    "start-silu": Curves(start="silu"),
    "frozen": Curves(is_learned=False),
    "frozen-squared": Curves(start="squared_relu", is_learned=False),
    "start-leaky": Curves(start="leaky_silu"),
    "per-layer": Curves(per_layer=True),
    "slow": Curves(rate=0.3),
    "fast": Curves(rate=3.0),
}

STUDY = Study(
    "gpt",
    rows={
        "relu": "ReLU",
        "gelu": "GELU",
        "silu": "SiLU",
        "relu2": "ReLU squared",
        "swiglu": "SwiGLU",
        "apl": "APL, default",
        "start-squared": "APL, started near ReLU squared",
        "start-silu": "APL, started near SiLU",
        "swapped": "APL, swapped into GELU",
        "swapped-swiglu": "SwiGLU, its SiLU swapped for APL",
        "frozen": "APL, default start, frozen",
        "frozen-squared": "APL, started near ReLU squared, frozen",
    },
    trials={
        "start-leaky": "APL, started as convolutions are",
        "per-layer": "APL, one curve for a layer",
        "slow": "APL, curves at 0.3 of the rate",
        "fast": "APL, curves at 3 times the rate",
    },
    middle=4e-3,
    metrics=["bits_per_byte"],
    settings=(f"batch={BATCH}", f"context={CONTEXT}", f"width={WIDTH}"),
    steps=600,
    # A swap takes over the recipe of the model; frozen curves show what learning them adds.
    followers={"swapped": "gelu", "swapped-swiglu": "swiglu", "frozen-squared": "start-squared"}
    | dict.fromkeys(("frozen", "start-leaky", "per-layer", "slow", "fast"), "apl"),
)


class SquaredReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class SwiGLU(nn.Module):
    """A SiLU of one half of the input gates the other half."""

    def forward(self, x: Tensor) -> Tensor:
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def feed_forward(row: str) -> nn.Sequential:
    """Return the two layers of a block with the activation of a row between them."""
    activation: nn.Module
    hidden, curves = CURVED, CURVES.get(row)
    if curves is not None and not curves.per_layer:
        activation = torchapl.APL(hidden, HINGES, unit_dim=-1, init=curves.start)
        activation.requires_grad_(curves.is_learned)
    elif row == "swapped":
        # Becomes APL when the whole model is swapped.
        activation = nn.GELU()
    else:
        fixed = {
            "relu": nn.ReLU,
            "gelu": nn.GELU,
            "silu": nn.SiLU,
            "relu2": SquaredReLU,
            "swiglu": SwiGLU,
            "swapped-swiglu": SwiGLU,
            "per-layer": torchapl.APL,
        }
        activation = fixed[row]()
        matrices = 3 if isinstance(activation, SwiGLU) else 2
        # As many parameters as with curves, or a few more: rounded up to what vectors like.
        curved = CURVED * (2 * WIDTH + 1 + 2 * HINGES)
        own = 2 * HINGES if row == "swapped-swiglu" else 0
        hidden = 4 * math.ceil(curved / (matrices * (WIDTH + 1) - 1 + own) / 4)
    inner = 2 * hidden if isinstance(activation, SwiGLU) else hidden
    return nn.Sequential(nn.Linear(WIDTH, inner), activation, nn.Linear(hidden, WIDTH))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        # (batch, time, 3 * width) to three of (batch, heads, time, width / heads).
        query, key, value = self.inputs(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, row: str) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.feed_forward = nn.LayerNorm(WIDTH), feed_forward(row)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class GPT(nn.Module):
    """Logits of the next byte at every position."""

    def __init__(self, row: str) -> None:
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, WIDTH)
        # Sees a byte and the three before it. In its first 400 steps attention alone learns little
        # more than which byte follows which (3.3 bits), and for that no activation matters.
        self.neighbours = nn.Conv1d(WIDTH, WIDTH, 4)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(Block(row) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        with torch.no_grad():
            self.head.weight.mul_(0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        before = F.pad(self.bytes(tokens).transpose(1, 2), (3, 0))
        x = self.neighbours(before).transpose(1, 2) + self.positions[: tokens.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def build(row: str, example: Tensor) -> nn.Module:
    """Return the model of a row; ``example`` is a batch of bytes."""
    model = GPT(row)
    if row.startswith("swapped"):
        return torchapl.swap_activations(model, example, num_hinges=HINGES)
    return model


def batches(text: Tensor, seed: int, steps: int) -> Iterator[Tensor]:
    """Yield random windows with one byte more than the context."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=random)
        yield torch.stack([text[start : start + CONTEXT + 1] for start in starts]).long()


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def bits_per_byte(model: nn.Module, text: Tensor) -> float:
    """Return the mean over the windows of a text, evenly spread."""
    starts = torch.linspace(0, len(text) - CONTEXT - 1, WINDOWS).long()
    windows = text[starts[:, None] + torch.arange(CONTEXT + 1)].long()
    model.eval()
    losses = [loss_of(model, part) * len(part) for part in windows.split(50)]
    return float(sum(losses)) / WINDOWS / math.log(2)


@cache
def corpus() -> dict[verses.Part, Tensor]:
    every = verses.parse(verses.read())
    return {part: verses.text_of(every, part) for part in ("train", "valid", "test")}


def train(run: Run) -> Outcome:
    torch.manual_seed(run.seed)
    text = corpus()
    stream = batches(text["train"], run.seed, run.steps)
    model = build(run.row, next(batches(text["train"], run.seed, 1))[:, :-1])
    curve_rate = run.rate * CURVES.get(run.row, Curves()).rate
    groups = torchapl.parameter_groups(model, lr=run.rate, weight_decay=DECAY, curve_lr=curve_rate)
    optimizer = torch.optim.AdamW(groups, lr=run.rate, betas=(0.9, 0.95))
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, run.steps))
    model.train()
    for windows in stream:
        loss = loss_of(model, windows)
        if not loss.isfinite():
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        rates.step()
    part: verses.Part = "test" if run.is_final else "valid"
    bits = bits_per_byte(model, text[part])
    return Outcome({f"{part}_bits_per_byte": bits}, sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    command(STUDY, train, RESULTS, __doc__.splitlines()[0])
