"""A CNN in plain PyTorch, once with ReLU and once with learned activations, and a report of both.

    python examples/cnn.py
    torchapl report runs/cnn -o cnn.html

The images are drawn here: rings and crosses under noise.
"""

import shutil

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchapl


def draw(count: int) -> tuple[Tensor, Tensor]:
    """Return images of rings (class 0) and crosses (class 1) at random places."""
    labels = torch.randint(0, 2, (count,))
    axis = torch.arange(16.0)
    centre = 5 + 5 * torch.rand(2, count, 1, 1)
    x, y = axis - centre[0], axis[:, None] - centre[1]
    ring = ((x**2 + y**2).sqrt() - 3).abs()
    cross = torch.minimum(x.abs(), y.abs()) + F.relu(torch.maximum(x.abs(), y.abs()) - 3)
    images = (-(torch.where(labels[:, None, None] == 0, ring, cross) ** 2)).exp()
    return (images + 0.5 * torch.randn(count, 16, 16))[:, None], labels


def network(learned: bool) -> nn.Sequential:
    """Return a small CNN: APL(16) is one curve for each of 16 channels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        torchapl.APL(16) if learned else nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        torchapl.APL(16) if learned else nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )


def train(learned: bool, seed: int) -> float:
    """Train one network, log the run, and return the test error in percent."""
    torch.manual_seed(seed)
    images, labels = draw(1000)
    test_images, test_labels = draw(1000)
    model = network(learned)
    # Slopes and offsets get steps that suit them; what is not given is the optimiser's own.
    groups = torchapl.parameter_groups(model)
    optimizer = torch.optim.AdamW(groups, lr=3e-3, weight_decay=0.01)
    name = "CNN with APL" if learned else "CNN with ReLU"
    folder = f"runs/cnn/{name}/{seed}"
    with torchapl.log_run(folder, model, name=name, seed=seed, batch=images[:100]) as run:
        for _ in range(8):
            for rows in torch.randperm(len(images)).split(50):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images[rows]), labels[rows])
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                wrong = model(test_images).argmax(1) != test_labels
            error = 100 * wrong.float().mean().item()
            run.epoch(train_loss=loss, test_error=error)
    return error


# Run again, the script starts anew: log_run overwrites nothing.
shutil.rmtree("runs/cnn", ignore_errors=True)
for learned in (False, True):
    errors = [train(learned, seed) for seed in (0, 1)]
    print("APL " if learned else "ReLU", "test errors:", *(f"{error:.1f} %" for error in errors))
