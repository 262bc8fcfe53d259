"""Every network of the registry builds at any size, trains, and copies."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F

from torchapl.paper.activations import Activation
from torchapl.paper.nets import NETWORKS, Net, build
from torchapl.paper.nets.base import average_predictions
from torchapl.paper.rivals import squared_hinge

OWN_UNITS = ("maxout", "channel-out", "channel-out-100", "probout", "dasnet")


def small(name, activation="relu", shape=(3, 12, 12), classes=4, width=0.03):
    return build(
        name,
        activation=Activation.parse(activation),
        input_shape=shape,
        num_classes=classes,
        width=width,
    )


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize(
    ("shape", "classes", "width"),
    [((3, 32, 32), 10, 0.02), ((1, 28, 28), 7, 0.01), ((4, 9, 17), 1, 0.05), ((2, 8, 8), 3, 1e-3)],
)
def test_any_size(name, shape, classes, width):
    net = small(name, shape=shape, classes=classes, width=width)
    images = torch.randn(3, *shape)
    assert isinstance(net, Net)
    assert net(images).shape == (3, classes)
    net.eval()
    assert net(images).shape == net.predict(images).shape == (3, classes)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in OWN_UNITS])
@pytest.mark.parametrize(
    "activation", ["leaky:-0.05", "prelu", "silu", "gelu", "apl:2", "apl:1:channel", "apl:3:layer"]
)
def test_any_activation(name, activation):
    net = small(name, activation).eval()
    plain = small(name).eval()
    kinds = [str(type(m)) for m in plain.modules() if isinstance(m, torch.nn.ReLU)]
    assert kinds
    assert not [m for m in net.modules() if isinstance(m, torch.nn.ReLU)]
    assert net(torch.randn(2, 3, 12, 12)).isfinite().all()


@pytest.mark.parametrize("name", OWN_UNITS)
def test_networks_with_units_of_their_own_refuse_another_activation(name):
    with pytest.raises(ValueError, match=r"has units of its own.*got apl:2"):
        small(name, "apl:2")


def train(net, images, labels, steps, lr):
    groups = [
        {"params": [parameter], "lr": lr * factor}
        for parameter, factor, *_ in net.parameter_multipliers()
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    for step in range(steps):
        loss = F.cross_entropy(net(images), labels) + net.extra_loss(labels, step / steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.after_step()
    return net


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_trainable_parameter_has_a_gradient_and_a_multiplier(name):
    net = small(name, shape=(3, 16, 16))
    images, labels = torch.randn(8, 3, 16, 16), torch.arange(8) % 4
    trainable = {id(parameter) for parameter in net.parameters() if parameter.requires_grad}
    assert {id(entry.parameter) for entry in net.parameter_multipliers()} == trainable
    train(net, images, labels, steps=1, lr=0.01)
    missing = [key for key, value in net.named_parameters() if value.grad is None]
    assert missing == []


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_network_learns_a_batch_by_heart(name):
    images, labels = torch.randn(8, 3, 12, 12), torch.arange(8) % 4
    net = small(name, width=0.06)
    # The authors' small initial weights need hundreds of iterations to grow; start higher here.
    for entry in net.parameter_multipliers():
        if entry.kind == "weight":
            torch.nn.init.kaiming_normal_(entry.parameter)
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.Adam([entry.parameter for entry in net.parameter_multipliers()], 0.005)
    losses = []
    for step in range(30):
        loss = net.summed_loss(net(images), labels) / len(labels)
        optimizer.zero_grad()
        (loss + net.extra_loss(labels, step / 30)).backward()
        optimizer.step()
        net.after_step()
        losses.append(loss.item())
    assert min(losses[-5:]) < 0.7 * losses[0]


@pytest.mark.parametrize("name", list(NETWORKS))
def test_copies_and_state_dicts(name):
    net = small(name)
    images, labels = torch.randn(2, 3, 12, 12), torch.tensor([0, 1])
    train(net, images, labels, steps=1, lr=0.01)
    net.eval()
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    other = small(name).eval()
    other.load_state_dict(torch.load(buffer, weights_only=True))
    for twin in (copy.deepcopy(net), other):
        # Probout draws at random.
        torch.manual_seed(1)
        expected = net.predict(images)
        torch.manual_seed(1)
        torch.testing.assert_close(twin.predict(images), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_dtype_and_channels_last(name, dtype):
    net = small(name).to(dtype).to(memory_format=torch.channels_last).eval()
    images = torch.randn(2, 3, 12, 12, dtype=dtype).to(memory_format=torch.channels_last)
    assert net.predict(images).dtype == dtype


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar-cnn", "nin-dsn", "maxout", "dasnet"])
def test_compiled_networks_train_alike(name):
    """Traced by dynamo in one graph; the code generator is torch's and tested with the units."""
    net = small(name)
    twin = copy.deepcopy(net)
    twin.compile(backend="eager", fullgraph=True)
    images, labels = torch.randn(4, 3, 12, 12), torch.arange(4)
    gradients = []
    for model in (net, twin):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        loss = F.cross_entropy(model(images), labels) + model.extra_loss(labels, 0.2)
        loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["cifar-cnn", "nin-dsn", "maxout", "channel-out"])
def test_autocast(name):
    net = small(name)
    images, labels = torch.randn(4, 3, 12, 12), torch.arange(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(images)
    assert logits.dtype == torch.bfloat16
    loss = F.cross_entropy(logits.float(), labels) + net.extra_loss(labels, 0.2)
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)


def test_build_suggests_the_nearest_name():
    with pytest.raises(ValueError, match=r"'cifar_cnn', did you mean 'cifar-cnn' or"):
        small("cifar_cnn")
    with pytest.raises(ValueError, match="there are channel-out"):
        small("zzz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (25,)}, r"conv1 needs a map of shape \(C, H, W\), got \(25,\)"),
        ({"shape": (3, 0, 4)}, "input_shape must have positive sizes"),
        ({"classes": 0}, "num_classes must be at least 1, got 0"),
        ({"width": 0.0}, "width must be positive, got 0"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        small("cifar-cnn", **change)


def test_average_predictions_survive_extreme_logits():
    logits = torch.tensor([[[500.0, -500.0]], [[-500.0, 500.0]]])
    torch.testing.assert_close(average_predictions(logits).exp(), torch.full((1, 2), 0.5))
    single = torch.tensor([[[500.0]], [[-500.0]]])
    torch.testing.assert_close(average_predictions(single), torch.zeros(1, 1))


@pytest.mark.parametrize("name", ["maxout", "probout", "dasnet", "dropout-cnn"])
def test_max_norms_hold_after_a_step(name):
    net = small(name)
    bounds = {"conv1": 0.9, "conv2": 1.9365, "conv3": 1.9365, "fc4": 1.9, "fc5": 1.9365}
    if name == "dropout-cnn":
        bounds = dict.fromkeys(("conv1", "conv2", "conv3", "fc4", "fc5", "fc6"), 4.0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1000)
            parameter.flatten()[0] = 1e4
    net.after_step()
    for layer, bound in bounds.items():
        norms = net.layers.get_submodule(layer).weight.flatten(1).norm(dim=1)
        assert norms.max() <= bound * 1.0001
        assert norms.max() >= bound * 0.9999
        # Biases are not constrained.
        assert net.layers.get_submodule(layer).bias.abs().max() >= 1e4


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("channel-out", (0.9, 5.9, 5.9, 5.9, 5.9)), ("channel-out-100", (1.0, 5.9, 5.9, 9.9, 9.9))],
)
def test_channel_out_shrinks_whole_layers(name, bounds):
    net = small(name)
    layers = [m for m in net.layers if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.mul_(1000).flatten()[0] = 1e4
            layer.bias.fill_(1.0)
    before = [layer.weight.clone() for layer in layers]
    net.after_step()
    for layer, old, bound in zip(layers, before, bounds, strict=True):
        factor = bound / old.flatten(1).norm(dim=1).max()
        torch.testing.assert_close(layer.weight, old * factor)
        torch.testing.assert_close(layer.bias, torch.ones_like(layer.bias) * factor)


def test_probout_averages_probabilities_of_stochastic_passes():
    net = small("probout", shape=(3, 16, 16)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(30)
    images = torch.randn(2, 3, 16, 16)
    assert not torch.equal(net(images), net(images))
    torch.manual_seed(5)
    predicted = net.predict(images)
    torch.manual_seed(5)
    passes = torch.stack([net(images).softmax(dim=1) for _ in range(net.passes)])
    torch.testing.assert_close(predicted.exp(), passes.mean(dim=0))


def test_companions_are_dropped_after_the_first_quarter():
    net = small("nin-dsn", shape=(3, 16, 16))
    images, labels = torch.randn(2, 3, 16, 16), torch.tensor([0, 1])
    losses = []
    for progress in (0.0, 0.249, 0.25, 1.0):
        torch.manual_seed(0)
        net(images)
        losses.append(net.extra_loss(labels, progress).item())
    assert losses[0] > 0
    assert losses == pytest.approx([losses[0], losses[0], 0.0, 0.0])
    with pytest.raises(ValueError, match="needs a forward"):
        net.extra_loss(labels, 0.0)
    net.eval()
    net(images)
    with pytest.raises(ValueError, match="needs a forward"):
        net.extra_loss(labels, 0.0)


def test_companions_see_maps_before_the_activation():
    net = small("nin-dsn", shape=(3, 16, 16))
    images, labels = torch.randn(2, 3, 16, 16), torch.tensor([0, 1])
    seen = {}
    for name in ("conv11", "conv21", "conv31"):
        layer = net.layers.get_submodule(name)
        layer.register_forward_hook(lambda _, __, output, name=name: seen.update({name: output}))
    net(images)
    expected = sum(
        squared_hinge(head(map.flatten(1)), labels)
        for head, map in zip(net.companions.heads, seen.values(), strict=True)
    )
    torch.testing.assert_close(net.extra_loss(labels, 0.0), expected)


@pytest.mark.parametrize(
    ("name", "loss"),
    [("nin-dsn", squared_hinge), ("nin-dsn-100", F.cross_entropy), ("nin", F.cross_entropy)],
)
def test_networks_bring_their_loss(name, loss):
    net = small(name)
    logits, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 3])
    torch.testing.assert_close(net.summed_loss(logits, labels), 5 * loss(logits, labels))


def test_deep_supervision_refuses_smoothed_labels():
    logits, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 3])
    with pytest.raises(ValueError, match=r"label_smoothing must be 0, got 0\.2"):
        small("nin-dsn").summed_loss(logits, labels, 0.2)
