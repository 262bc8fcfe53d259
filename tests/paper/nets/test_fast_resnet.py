"""The fast residual network: its whitening whitens, its parts are where they should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchapl import APL
from torchapl.paper.activations import Activation
from torchapl.paper.config import Data, Experiment, Optim
from torchapl.paper.nets.fast_resnet import FastResNet, Whitening
from torchapl.paper.train.trainer import Trainer


def correlated_images(count: int = 400) -> torch.Tensor:
    """Neighbours and channels alike, as in photographs."""
    noise = torch.randn(count, 1, 10, 10) + 0.3 * torch.randn(count, 3, 10, 10)
    return torch.nn.functional.avg_pool2d(noise, 3, stride=1) + 0.1 * torch.randn(count, 3, 8, 8)


def second_moments(maps: torch.Tensor) -> torch.Tensor:
    rows = maps.permute(0, 2, 3, 1).flatten(0, 2).double()
    return rows.T @ rows / len(rows)


def test_whitened_patches_have_variance_one_and_no_correlation():
    images = correlated_images()
    whitening = Whitening(3)
    before = second_moments(whitening(images)[:, :12])
    assert (before - before.diag().diag()).abs().max() > 0.1
    whitening.fit_([images])
    output = whitening(images)
    # Noise of deviation 0.1 is the least variance here, 0.01, to which the floor adds a twentieth.
    moments = second_moments(output[:, :12])
    torch.testing.assert_close(moments, torch.eye(12, dtype=torch.float64), atol=0.06, rtol=0)
    assert (moments - moments.diag().diag()).abs().max() < 1e-4
    torch.testing.assert_close(output[:, 12:], -output[:, :12])


def test_whitening_is_the_same_for_parts_and_the_whole_and_takes_what_it_needs():
    images = correlated_images()
    whole, parts = Whitening(3), Whitening(3)
    whole.fit_([images])
    parts.fit_(images.split(90))
    # Axes have no sign of their own.
    torch.testing.assert_close(parts.weight.abs(), whole.weight.abs(), atol=1e-4, rtol=1e-4)

    taken = []

    def batches():
        for number in range(100):
            taken.append(number)
            yield torch.randn(1000, 3, 4, 4)

    Whitening(3).fit_(batches())
    assert len(taken) == 5


def test_whitening_is_not_trained_but_stored():
    net = FastResNet(Activation.parse("relu"), (3, 32, 32), 10, width=0.125)
    assert "whiten.weight" in net.state_dict()
    assert not any(name.startswith("whiten") for name, _ in net.named_parameters())


def test_a_run_starts_from_its_training_images(tmp_path: Path):
    experiment = Experiment(
        "toy",
        net="fast-resnet",
        data=Data("toy-images", "standard", limit=120),
        optim=Optim(kind="sgd"),
        batch_size=40,
        width=0.05,
        start="he",
    )
    trainer = Trainer(experiment, 0, device=torch.device("cpu"))
    assert isinstance(trainer.net, FastResNet)
    images = torch.cat([inputs for inputs, _ in trainer.bundle.train.epoch(0)])
    moments = second_moments(trainer.net.whiten(images))
    size = trainer.net.whiten.size
    off = moments[:size, :size] - moments[:size, :size].diag().diag()
    assert off.abs().max() < 1e-3
    # Another seed shuffles the same images.
    other = Trainer(replace(experiment), 1, device=torch.device("cpu"))
    torch.testing.assert_close(
        other.net.get_buffer("whiten.weight").abs(),
        trainer.net.whiten.weight.abs(),
        rtol=1e-3,
        atol=1e-3,
    )


@pytest.mark.parametrize(
    ("side", "sides"), [(32, [31, 15, 15, 7, 7, 3, 3]), (8, [7, 3, 3, 1, 1, 1, 1])]
)
def test_map_sizes_and_an_activation_after_each_norm(side, sides):
    net = FastResNet(Activation.parse("apl:2:channel"), (3, side, side), 10, width=0.05)
    seen = []
    for module in net.modules():
        if isinstance(module, APL):
            module.register_forward_hook(lambda _, args, __: seen.append(args[0].shape[2]))
    net(torch.randn(2, 3, side, side))
    assert seen == sides


def test_biases_of_batch_norm_learn_faster():
    net = FastResNet(Activation.parse("apl:2:channel"), (3, 32, 32), 10, width=0.05)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    for entry in net.parameter_multipliers():
        name = names[id(entry.parameter)]
        is_shift = "norm" in name and name.endswith("bias")
        assert (entry.lr > 1) == is_shift
        assert entry.decay == (0.0 if "norm" in name else 1.0)


def test_images_too_small_to_have_a_patch_are_refused():
    with pytest.raises(ValueError, match=r"sides of 2 or more, got \(3, 1, 4\)"):
        FastResNet(Activation.parse("relu"), (3, 1, 4), 10)
    with pytest.raises(ValueError, match=r"must be \(C, H, W\).*got \(25,\)"):
        FastResNet(Activation.parse("relu"), (25,), 10)
