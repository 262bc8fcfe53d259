from __future__ import annotations

import pytest

from torchapl.paper.config import differences
from torchapl.paper.experiments import EXPERIMENTS, SCALES, TABLES, estimate, get, scaled
from torchapl.paper.experiments.published import TABLE1
from torchapl.paper.nets import NETS


@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_exists_at_every_scale(scale: str) -> None:
    for experiment in EXPERIMENTS.values():
        small = scaled(experiment, scale)
        assert small.net in NETS
        assert small.scale == scale
        assert small.cost == estimate(small)
        assert small.name == experiment.name


def test_paper_scale_changes_nothing() -> None:
    for experiment in EXPERIMENTS.values():
        assert differences(experiment, scaled(experiment, "paper")) == {}


def test_every_published_number_has_its_cell() -> None:
    cells = [cell for row in TABLES["table1"].rows for cell in row.cells.values()]
    found = {cell.experiment: cell.published for cell in cells if cell.published is not None}
    expected = {
        f"{column}-{row}": published
        for row, columns in TABLE1.items()
        for column, published in columns.items()
    }
    assert found == expected
    assert len(expected) == 40
    for name, published in expected.items():
        assert get(name).published == published


def test_every_cell_names_an_experiment() -> None:
    for table in TABLES.values():
        for row in table.rows:
            assert set(row.cells) <= set(table.columns)
            for cell in row.cells.values():
                get(cell.experiment)


def test_tables_two_three_and_ablation() -> None:
    errors = [row.cells["cifar10"].published.mean for row in TABLES["table3"].rows]
    assert errors == [12.56, 12.55, 11.59, 11.73, 11.38, 11.60]
    aucs = [row.cells["higgs"].published.mean for row in TABLES["table2"].rows[:4]]
    assert aucs == [0.802, 0.803, 0.803, 0.804]
    assert TABLES["table2"].rows[1].cells["higgs"].members == 5
    replaced = [row.cells["replaced"].published.mean for row in TABLES["ablation"].rows]
    assert replaced == [50.75, 48.1, 0.544]


@pytest.mark.parametrize(
    ("name", "activation", "net"),
    [
        ("cifar10-cnn-apl", "apl:5", "cifar-cnn"),
        ("cifar100-cnn-apl", "apl:2", "cifar-cnn-100"),
        ("cifar10-nin-apl", "apl:2", "nin"),
        ("cifar100-nin-apl", "apl:1", "nin"),
        ("higgs-dnn-apl", "apl:2", "higgs-dnn"),
        ("cifar10-cnn-leaky", "leaky:0.05", "cifar-cnn"),
        ("cifar100-cnn-leaky", "leaky:-0.05", "cifar-cnn-100"),
        ("cifar100-nin-leaky", "leaky:0.2", "nin"),
        ("cifar10-cnn-apl-s1-frozen", "apl:1:unit:frozen", "cifar-cnn"),
    ],
)
def test_the_authors_choices(name: str, activation: str, net: str) -> None:
    experiment = get(name)
    assert (str(experiment.activation), experiment.net) == (activation, net)
    assert (experiment.width, experiment.start, experiment.batch_size) == (1.0, "authors", 100)
    assert experiment.optim.kind == "caffe-sgd"
    assert experiment.optim.curve_decay == 1e-3


def test_leaky_slopes_are_the_eight_of_the_paper() -> None:
    choices = get("cifar10-cnn-leaky").choices
    slopes = {float(choice.removeprefix("activation=leaky:")) for choice in choices}
    assert slopes == {sign * k for sign in (1, -1) for k in (0.01, 0.05, 0.1, 0.2)}


def test_unknown_names_are_explained() -> None:
    with pytest.raises(ValueError, match="did you mean cifar10-cnn-relu"):
        get("cifar10-cnn-rleu")
    with pytest.raises(ValueError, match="scale must be one of paper, lab, smoke, got 'tiny'"):
        scaled(get("cifar10-cnn-relu"), "tiny")
