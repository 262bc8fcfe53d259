"""The networks equal the authors' files: sizes, counts, starts, multipliers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchapl import APL
from torchapl.paper.activations import Activation
from torchapl.paper.config import Optim
from torchapl.paper.nets import NETWORKS, build
from torchapl.paper.nets.dropout import Dropout
from torchapl.paper.nets.layers import Layers
from torchapl.paper.optim import build_optimizer
from torchapl.paper.rivals import ChannelOut

CIFAR = (3, 32, 32)


def paper_net(name, activation="relu", num_classes=10):
    higgs = name == "higgs-dnn"
    return build(
        name,
        activation=Activation.parse(activation),
        input_shape=(25,) if higgs else CIFAR,
        num_classes=1 if higgs else num_classes,
    )


def count(net):
    return sum(parameter.numel() for parameter in net.parameters())


def units(net):
    return sum(m.slope[0].numel() for m in net.modules() if isinstance(m, APL))


@pytest.mark.parametrize(
    ("name", "classes", "weights"),
    [
        ("cifar-cnn", 10, 13_741_578),
        ("cifar-cnn-100", 100, 13_741_578 + 90 * 2049),
        ("nin", 10, 966_986),
        ("nin", 100, 966_986 + 90 * 193),
        ("nin-lin", 10, 966_986),
        ("higgs-dnn", 1, 459_499),
        # 192*(3*64+1) + 384*(96*64+1) + 384*(192*25+1) + 2500*(192*25+1) + 10*501
        ("maxout", 10, 37_056 + 2_359_680 + 1_843_584 + 12_002_500 + 5_010),
        # 64*(3*49+1) + 192*(64*25+1) + 256*(192*9+1) + 2048*(256*16+1) + 10*2049
        ("channel-out", 10, 9_472 + 307_392 + 442_624 + 8_390_656 + 20_490),
        # 96 channels in the first layer
        ("channel-out-100", 100, 14_208 + 460_992 + 442_624 + 8_390_656 + 204_900),
        ("probout", 10, 16_247_830),
        # NIN and three companions: 10 outputs for 192 maps of 32x32, 16x16 and 8x8
        ("nin-dsn", 10, 966_986 + 10 * (192 * (1024 + 256 + 64) + 3)),
        # 0.27 million, the figure of He et al. for 20 layers, and 2,752 for the two shortcuts
        ("resnet", 10, 272_474),
        # 9*(24*64 + 64*64 + 64*256 + 3*256*256) + 2*(2*64 + 4*256) + 10*256
        ("fast-resnet", 10, 1_967_616 + 2_304 + 2_560),
    ],
)
def test_number_of_weights(name, classes, weights):
    assert count(paper_net(name, num_classes=classes)) == weights


@pytest.mark.parametrize(
    ("name", "hinges", "number"),
    [("cifar-cnn", 5, 151_552), ("nin", 2, 631_424), ("higgs-dnn", 2, 1_918)],
)
def test_number_of_units_and_of_their_parameters(name, hinges, number):
    net = paper_net(name, f"apl:{hinges}")
    assert units(net) == number
    assert count(net) - count(paper_net(name)) == 2 * hinges * number


def test_the_figures_of_the_paper():
    assert 2 * 5 * 151_552 == 1_515_520
    assert 2 * 2 * 631_424 == 2_525_696


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cifar-cnn", {"conv1": 32, "pool1": 16, "conv2": 16, "pool2": 8, "conv3": 8, "pool3": 4}),
        ("nin", {"conv13": 32, "pool1": 16, "conv23": 16, "pool2": 8, "conv33": 8, "pool3": 1}),
        (
            "maxout",
            {"conv1": 33, "pool1": 16, "conv2": 15, "pool2": 7, "conv3": 9, "pool3": 5},
        ),
        ("dropout-cnn", {"pool1": 16, "pool2": 8, "pool3": 4}),
    ],
)
def test_map_sizes(name, sizes):
    net = build(
        name, activation=Activation.parse("relu"), input_shape=CIFAR, num_classes=10, width=0.05
    ).eval()
    seen = {}
    for layer, module in net.layers.named_children():
        module.register_forward_hook(
            lambda _, __, output, layer=layer: seen.update({layer: tuple(output.shape[1:])})
        )
    net(torch.randn(1, *CIFAR))
    assert {layer: seen[layer][1:] for layer in sizes} == {
        layer: (size, size) for layer, size in sizes.items()
    }
    # What the layers were built for is what they get.
    assert seen == net.map_shapes


def test_average_pooling_divides_by_the_clipped_window():
    layers = Layers((1, 4, 4))
    layers.pool("pool", "average", 3, 2)
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    # Windows: rows 0-2 and 2-3, likewise columns.
    expected = torch.tensor([[45 / 9, 39 / 6], [66 / 6, 50 / 4]])
    torch.testing.assert_close(layers.sequential()(image)[0, 0], expected)


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (4, 2), (2, 2), (2, 3)])
def test_pooled_sizes_are_torch_s(size, kind, kernel, stride):
    layers = Layers((2, size, size + 1))
    layers.pool("pool", kind, kernel, stride)
    assert layers.sequential()(torch.zeros(1, 2, size, size + 1)).shape[1:] == layers.shape


def test_order_of_the_layers():
    def kinds(name):
        return [type(module).__name__ for module in paper_net(name).layers]

    def stage(pool):
        return ["Conv2d", "ReLU", "Dropout", pool, "Dropout"]

    dense = ["Linear", "ReLU", "Dropout"]
    head = ["Flatten", *dense, *dense, "Linear"]
    assert kinds("cifar-cnn") == stage("MaxPool2d") + stage("AvgPool2d") + stage("AvgPool2d") + head
    assert kinds("cifar-cnn-100") == stage("MaxPool2d") * 2 + stage("AvgPool2d") + head
    block = ["Conv2d", "ReLU"] * 3
    for name, pool in (("nin", "AvgPool2d"), ("nin-lin", "MaxPool2d")):
        assert kinds(name) == [
            *block,
            "MaxPool2d",
            "Dropout",
            *block,
            pool,
            "Dropout",
            *block,
            "AdaptiveAvgPool2d",
            "Flatten",
        ]
    hidden = ["Linear", "ReLU"]
    assert kinds("higgs-dnn") == [*hidden * 6, "Dropout", *hidden, "Dropout", "Linear"]


@pytest.mark.parametrize(
    ("name", "dropouts"),
    [
        ("cifar-cnn", [0.25, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5]),
        ("nin", [0.5, 0.5]),
        ("higgs-dnn", [0.25, 0.5]),
        ("maxout", [0.2, 0.5, 0.5, 0.5, 0.5]),
        ("dropout-cnn", [0.1, 0.25, 0.25, 0.5, 0.5, 0.5]),
        ("channel-out", [0.2, 0.5, 0.5, 0.5, 0.5]),
        ("channel-out-100", [0.2, 0.4, 0.4, 0.4, 0.4]),
    ],
)
def test_dropout(name, dropouts):
    net = build(
        name, activation=Activation.parse("relu"), input_shape=CIFAR, num_classes=10, width=0.1
    )
    assert [m.p for m in net.layers if isinstance(m, nn.Dropout)] == dropouts


@pytest.mark.parametrize(
    ("name", "deviations"),
    [
        ("cifar-cnn", [1e-4, 0.01, 0.01, 0.01, 0.01, 0.01]),
        ("nin", [0.05] * 9),
        ("higgs-dnn", [0.1] * 7 + [0.001]),
        ("maxout", [0.005 / 3**0.5] * 5),
        ("channel-out", [0.005 / 3**0.5] * 5),
        ("nin-lin", [0.05] * 9),
        ("nin-lin-100", [0.001, 0.01, 0.01] + [0.05] * 6),
    ],
)
def test_initial_weights(name, deviations):
    net = paper_net(name)
    layers = [m for m in net.layers if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer, deviation in zip(layers, deviations, strict=True):
        # Four standard errors of an estimated standard deviation.
        allowed = 4 * deviation / (2 * layer.weight.numel()) ** 0.5
        assert abs(layer.weight.std() - deviation) < allowed
        assert abs(layer.weight.mean()) < 4 * deviation / layer.weight.numel() ** 0.5
        assert not layer.bias.any()


def multipliers(net):
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    return {
        names[id(p)]: (lr, decay, kind) for p, lr, decay, kind, *_ in net.parameter_multipliers()
    }


def test_multipliers_of_the_cifar_and_higgs_networks_are_one():
    for name in ("cifar-cnn", "higgs-dnn"):
        net = paper_net(name, "apl:1")
        found = multipliers(net)
        assert set(found) == set(dict(net.named_parameters()))
        for parameter, (lr, decay, kind) in found.items():
            assert (lr, decay) == (1.0, 1.0)
            last = parameter.rsplit(".", 1)[1]
            assert kind == {"slope": "curve", "offset": "curve"}.get(last, last)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("nin", (0.1, 0.1)),
        ("nin-lin", (0.1, 0.2)),
        ("nin-lin-100", (1.0, 2.0)),
        ("nin-dsn", (0.1, 0.2)),
    ],
)
def test_multipliers_of_nin(name, last):
    found = multipliers(paper_net(name, "apl:1"))
    for key, (lr, decay, kind) in found.items():
        layer, parameter = key.split(".")[-2:]
        if "companions" in key:
            assert (lr, decay) == ((0.001, 1.0) if parameter == "weight" else (0.002, 0.0))
            continue
        expected = {
            "weight": (last[0] if layer == "conv33" else 1.0, 1.0, "weight"),
            "bias": (last[1] if layer == "conv33" else 2.0, 0.0, "bias"),
        }.get(parameter, (1.0, 1.0, "curve"))
        assert (lr, decay, kind) == expected


def test_rates_of_companions_fall():
    net = paper_net("nin-dsn")
    for entry in net.parameter_multipliers():
        is_companion = any(entry.parameter is p for p in net.companions.parameters())
        assert entry.lr_fall == (20.0 if is_companion else 0.0)


@pytest.mark.parametrize(("name", "dense"), [("channel-out", 2.0), ("channel-out-100", 1.0)])
def test_multipliers_of_channel_out(name, dense):
    for key, (lr, decay, kind) in multipliers(paper_net(name)).items():
        rate = dense if "fc" in key else 1.0
        assert (lr, decay) == (0.1 * rate if kind == "bias" else rate, 1.0)


def test_probout_draws_in_two_layers_and_chooses_above():
    net = paper_net("probout")
    units = [layer for name, layer in net.layers.named_children() if name.startswith("unit")]
    assert [type(unit).__name__ for unit in units] == ["Probout", "Probout", "Maxout", "Maxout"]
    assert [unit.sharpness for unit in units[:2]] == [1.0, 2.0]
    assert net.passes == 50


def test_dasnet_has_a_policy_of_a_million_numbers():
    net = paper_net("dasnet")
    assert net.policy.numel() == 960 * 961
    assert (net.population, net.passes) == (50, 5)


def test_inputs_of_maxout_are_not_rescaled_by_dropout():
    net = paper_net("maxout")
    assert [m.rescale for m in net.layers if isinstance(m, Dropout)] == [False] + [True] * 4


@pytest.mark.parametrize("name", ["channel-out", "channel-out-100"])
def test_groups_and_maps_of_channel_out(name):
    net = paper_net(name)
    assert [m.pieces for m in net.layers if isinstance(m, ChannelOut)] == [2, 2, 4, 4]
    sides = [shape[1] for key, shape in net.map_shapes.items() if key.startswith("pool")]
    assert sides == [16, 8, 4]


def test_deep_supervision_ends_without_an_activation():
    assert "act33" not in paper_net("nin-dsn").map_shapes
    assert "act33" in paper_net("nin-lin").map_shapes


@pytest.mark.parametrize(("name", "decay"), [("cifar-cnn", 1e-3), ("nin", 1e-4), ("higgs-dnn", 0)])
def test_curves_decay_by_a_thousandth_whatever_the_weights_do(name, decay):
    net = paper_net(name, "apl:1")
    optimizer = build_optimizer(
        net.parameter_multipliers(), Optim(weight_decay=decay, curve_decay=1e-3)
    )
    decays = {
        id(parameter): group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for module in net.modules():
        if isinstance(module, APL):
            assert decays[id(module.slope)] == decays[id(module.offset)] == 1e-3
        elif isinstance(module, nn.Conv2d | nn.Linear):
            assert decays[id(module.weight)] == decay


def test_frozen_curves_have_no_multiplier():
    net = paper_net("higgs-dnn", "apl:2:unit:frozen")
    assert len(net.parameter_multipliers()) == 16


def test_prelu_and_batch_norm_do_not_decay():
    net = build(
        "resnet",
        activation=Activation.parse("prelu"),
        input_shape=CIFAR,
        num_classes=10,
        width=0.25,
    )
    for name, (_, decay, kind) in multipliers(net).items():
        if "act" in name:
            assert (decay, kind) == (0.0, "curve")
        if "norm" in name or "shortcut.1" in name:
            assert (decay, kind) == (0.0, "bias")
        if "conv" in name:
            assert (decay, kind) == (1.0, "weight")


def test_resnet_has_twenty_layers_and_an_activation_after_each_but_the_last():
    net = paper_net("resnet", "apl:2:channel")
    convolutions = [
        m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)
    ]
    assert len(convolutions) + 1 == 20
    assert len([m for m in net.modules() if isinstance(m, APL)]) == 19
    assert len([m for m in net.modules() if isinstance(m, nn.ReLU)]) == 0


def test_every_network_of_the_tables_is_registered():
    assert set(NETWORKS) == {
        "cifar-cnn",
        "cifar-cnn-100",
        "nin",
        "nin-lin",
        "nin-lin-100",
        "nin-dsn",
        "nin-dsn-100",
        "higgs-dnn",
        "dropout-cnn",
        "maxout",
        "channel-out",
        "channel-out-100",
        "probout",
        "dasnet",
        "resnet",
        "fast-resnet",
    }
