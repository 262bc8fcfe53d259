from __future__ import annotations

import pytest

from torchapl.curves import LayerSize, count_parameters, parameter_table

# The paper's networks: CIFAR-10 CNN, network in network, Higgs.
CNN = [
    LayerSize.convolution("conv1", (3, 96), 5, (32, 32)),
    LayerSize.convolution("conv2", (96, 128), 5, (16, 16)),
    LayerSize.convolution("conv3", (128, 256), 5, (8, 8)),
    LayerSize("fc1", 256 * 4 * 4, 2048),
    LayerSize("fc2", 2048, 2048),
]
NIN = [
    LayerSize.convolution(name, channels, kernel, (size, size))
    for name, channels, kernel, size in [
        ("conv1", (3, 192), 5, 32),
        ("cccp1", (192, 160), 1, 32),
        ("cccp2", (160, 96), 1, 32),
        ("conv2", (96, 192), 5, 16),
        ("cccp3", (192, 192), 1, 16),
        ("cccp4", (192, 192), 1, 16),
        ("conv3", (192, 192), 3, 8),
        ("cccp5", (192, 192), 1, 8),
        ("cccp6", (192, 10), 1, 8),
    ]
]
HIGGS = [LayerSize("fc1", 25, 274)] + [LayerSize(f"fc{i}", 274, 274) for i in range(2, 8)]


@pytest.mark.parametrize(
    ("layers", "hinges", "output", "weights", "units", "added"),
    [
        (CNN, 5, 2048 * 10 + 10, 13_741_578, 151_552, 1_515_520),
        (NIN, 2, 0, 966_986, 631_424, 2_525_696),
        (HIGGS, 2, 275, 459_499, 1_918, 7_672),
    ],
)
def test_numbers_of_the_papers_networks(layers, hinges, output, weights, units, added) -> None:
    total = count_parameters(layers, hinges)[-1]
    assert total.relu + output == weights
    assert total.units == units
    assert total.apl - total.relu == added
    # Untied weights cost more than 50 times as much.
    assert total.maxout > 50 * added
    assert total.mlpconv > 50 * added or layers is NIN


def test_a_convolution_shares_its_weights_among_the_places_of_the_map() -> None:
    layer = LayerSize.convolution("conv", (3, 96), 5, (32, 16))
    assert layer == LayerSize("conv", inputs=75, channels=96, positions=512)


def test_untied_rivals_of_one_dense_unit() -> None:
    row, total = count_parameters([LayerSize("fc", inputs=10, channels=1)], num_hinges=2)
    assert row.relu == 11
    assert row.apl == row.apl_per_channel == 15
    assert row.maxout == 5 * 11
    assert row.mlpconv == 3 * 12
    assert total.maxout == row.maxout


def test_table_has_a_row_for_each_layer_and_the_sum() -> None:
    lines = parameter_table(CNN, 5).splitlines()
    assert len(lines) == 2 + len(CNN) + 1
    assert lines[-1].startswith("| total | 151,552 |")


def test_hinges_are_needed() -> None:
    with pytest.raises(ValueError, match="num_hinges must be at least 1, got 0"):
        count_parameters(CNN, 0)
