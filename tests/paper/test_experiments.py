from __future__ import annotations

from dataclasses import replace

import pytest

from torchapl.paper.config import differences
from torchapl.paper.experiments import EXPERIMENTS, SCALES, TABLES, Key, estimate, get, scaled
from torchapl.paper.experiments.published import TABLE1
from torchapl.paper.nets import NETWORKS


@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_exists_at_every_scale(scale: str) -> None:
    for experiment in EXPERIMENTS.entries.values():
        small = scaled(experiment, scale)
        assert small.net in NETWORKS
        assert small.scale == scale
        assert small.cost == estimate(small)
        assert small.name == experiment.name


def test_a_network_without_a_recipe_is_an_error_that_names_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = replace(NETWORKS.get("nin"), name="other", family="transformer")
    monkeypatch.setitem(NETWORKS.entries, "other", other)
    with pytest.raises(
        ValueError, match=r"lab scale has no recipe .* 'transformer', such as other"
    ):
        scaled(replace(get("cifar10-nin-relu"), net="other"), "lab")
    with pytest.raises(ValueError, match="unknown network 'nim', did you mean 'nin'"):
        scaled(replace(get("cifar10-nin-relu"), net="nim"), "lab")


def test_paper_scale_says_what_its_schedule_was_made_for() -> None:
    assert get("cifar10-cnn-apl").made_for_steps == 90_000
    assert get("higgs-dnn-apl").made_for_steps == 45_500_000
    assert scaled(get("higgs-dnn-apl"), "lab").made_for_steps is None


def test_paper_scale_changes_nothing() -> None:
    for experiment in EXPERIMENTS.entries.values():
        assert differences(experiment, scaled(experiment, "paper")) == {}


def test_every_published_number_has_its_cell() -> None:
    rows = {row.title: row.cells for row in TABLES["table1"].rows}
    found = [
        (cell.experiment, cell.published)
        for cells in rows.values()
        for cell in cells.values()
        if cell.published is not None
    ]
    expected = [
        (Key(column, False, network, "" if row == "stollenga" else row).name, published)
        for (network, row), columns in TABLE1.items()
        for column, published in columns.items()
    ]
    assert len(found) == 40
    assert sorted(found, key=str) == sorted(expected, key=str)
    for name, published in found:
        assert published in (get(name).published, *TABLE1["maxout", "stollenga"].values())


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
        ("cifar10-cnn-apl-s1-frozen", "apl:1:frozen", "cifar-cnn"),
    ],
)
def test_the_authors_choices(name: str, activation: str, net: str) -> None:
    experiment = get(name)
    assert (str(experiment.activation), experiment.net) == (activation, net)
    assert (experiment.width, experiment.start, experiment.batch_size) == (1.0, "authors", 100)
    assert experiment.optim.kind == "caffe-sgd"
    assert experiment.optim.curve_decay == 1e-3


def test_leaky_slopes_are_the_eight_of_the_paper() -> None:
    choices = next(
        cell.choices for cell in TABLES["table1"].cells if cell.experiment == "cifar10-cnn-leaky"
    )
    slopes = {float(choice.removeprefix("activation=leaky:")) for choice in choices}
    assert slopes == {sign * k for sign in (1, -1) for k in (0.01, 0.05, 0.1, 0.2)}


def test_unknown_names_are_explained() -> None:
    with pytest.raises(ValueError, match="did you mean 'cifar10-cnn-relu'"):
        get("cifar10-cnn-rleu")
    with pytest.raises(ValueError, match="unknown scale 'tiny', there are paper, lab, smoke"):
        scaled(get("cifar10-cnn-relu"), "tiny")
