from __future__ import annotations

from dataclasses import replace

import pytest

from torchapl.paper.config import differences
from torchapl.paper.experiments import EXPERIMENTS, SCALES, TABLES, Key, estimate, get, scaled
from torchapl.paper.experiments.published import TABLE1
from torchapl.paper.experiments.rivals import RIVALS
from torchapl.paper.nets import NETWORKS
from torchapl.paper.schedule import learning_rate, momentum


@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_exists_at_every_scale(scale: str) -> None:
    for experiment in EXPERIMENTS.entries.values():
        families = SCALES[scale].recipes
        if families and NETWORKS.get(experiment.net).family not in families:
            assert scale == "study"
            continue
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
    with pytest.raises(ValueError, match="'tiny', there are paper, lab, study, smoke"):
        scaled(get("cifar10-cnn-relu"), "tiny")


def test_every_rival_says_where_its_recipe_comes_from() -> None:
    for network, recipes in RIVALS.items():
        for column, recipe in recipes.items():
            experiment = get(f"{column}-{network}")
            assert experiment.net == recipe.net
            assert len(experiment.provenance) > 60
            assert (experiment.data.name, experiment.data.augment) == (
                column.removesuffix("-aug"),
                column.endswith("-aug"),
            )


@pytest.mark.parametrize(
    ("name", "rates", "momenta"),
    [
        # By epoch of 391 iterations.
        (
            "cifar10-maxout",
            {0: 0.17, 250: 0.08585, 500: 0.0017, 784: 0.0017},
            {125: 0.55, 300: 0.6},
        ),
        ("cifar10-aug-maxout", {500: 0.0017}, {0: 0.5, 250: 0.65}),
        ("cifar10-nin-lin", {199: 0.1, 200: 0.01, 230: 0.001, 259: 0.001}, {0: 0.9}),
        ("cifar100-nin-lin", {199: 0.02, 200: 0.002}, {0: 0.9}),
        # 0.05 * 3 at first, at least 0.05 * 0.05.
        ("cifar10-channel-out", {0: 0.15, 10: 0.15 * 0.94**10, 399: 0.0025}, {200: 0.5}),
    ],
)
def test_rates_of_the_rivals(name: str, rates: dict[int, float], momenta: dict[int, float]) -> None:
    optim = get(name).optim
    for epoch, rate in rates.items():
        assert learning_rate(optim, epoch * 391, 10**9) == pytest.approx(rate)
    for epoch, value in momenta.items():
        assert momentum(optim, epoch * 391) == pytest.approx(value)


def test_phases_of_deep_supervision() -> None:
    experiment = get("cifar10-nin-dsn")
    assert (experiment.epochs, experiment.batch_size) == (400, 100)
    steps = {0: 0.025, 149_999: 0.025, 150_000: 0.00125, 170_000: 1e-4, 199_999: 1e-4}
    for step, rate in steps.items():
        assert learning_rate(experiment.optim, step, 200_000) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "decay", "preprocessing", "padding"),
    [
        ("cifar10-maxout", 785, 128, 0.0, "gcn-zca", 4),
        ("cifar10-aug-maxout", 474, 128, 0.0, "gcn-zca", 8),
        ("cifar10-probout", 785, 128, 0.0, "gcn-zca", 4),
        ("cifar10-nin-lin", 260, 128, 1e-4, "gcn-zca", 4),
        ("cifar100-nin-lin", 260, 128, 5e-4, "gcn-zca", 4),
        ("cifar10-nin-dsn", 400, 100, 5e-4, "gcn", 4),
        ("cifar10-channel-out", 400, 128, 0.0, "gcn-zca", 4),
        ("cifar10-dropout-cnn", 300, 128, 0.0, "gcn-zca", 4),
    ],
)
def test_recipes_of_the_rivals(
    name: str, epochs: int, batch_size: int, decay: float, preprocessing: str, padding: int
) -> None:
    experiment = get(name)
    assert (experiment.epochs, experiment.batch_size) == (epochs, batch_size)
    assert experiment.optim.weight_decay == decay
    assert experiment.optim.kind == "caffe-sgd"
    assert (experiment.data.preprocessing, experiment.data.padding) == (preprocessing, padding)


def test_stored_results_at_lab_scale_still_count() -> None:
    """New settings have defaults, and networks that were not run may have new names."""
    for name in ("cifar10-maxout", "cifar100-maxout"):
        assert scaled(get(name), "lab").net == "maxout"


def test_study_scale_keeps_the_authors_recipe_in_shape() -> None:
    small, whole = scaled(get("cifar10-cnn-apl"), "study"), get("cifar10-cnn-apl")
    kept = ("kind", "lr", "schedule", "momentum", "momentum_start", "weight_decay", "curve_decay")
    for setting in kept:
        assert getattr(small.optim, setting) == getattr(whole.optim, setting)
    assert (small.start, small.dropout, small.data) == ("authors", 1.0, whole.data)
    assert (small.batch_size, small.activation) == (100, whole.activation)
    for part in (0.0, 0.3, 0.66, 0.67, 0.9, 0.99):
        rate = learning_rate(small.optim, int(part * 500 * small.epochs), 1)
        assert rate == pytest.approx(learning_rate(whole.optim, int(part * 90_000), 1))


@pytest.mark.parametrize(
    "name", ["cifar10-dropout-cnn", "cifar10-nin-lin", "cifar10-nin-dsn", "cifar10-nin-relu"]
)
def test_study_scale_shortens_every_schedule(name: str) -> None:
    small, whole = scaled(get(name), "study"), get(name)
    steps, whole_steps = (50_000 * one.epochs // one.batch_size for one in (small, whole))
    for share in (0.01, 0.25, 0.6, 0.99):
        step, whole_step = int(share * steps), int(share * whole_steps)
        rate = learning_rate(whole.optim, whole_step, whole_steps)
        assert learning_rate(small.optim, step, steps) == pytest.approx(rate, rel=0.01)
        assert momentum(small.optim, step) == pytest.approx(
            momentum(whole.optim, whole_step), rel=0.01
        )


def test_the_default_row_moves_by_segments_at_every_scale() -> None:
    for name in ("cifar10-cnn-apl-default", "atlas-dnn-apl-default"):
        for scale in ("paper", "lab", "smoke"):
            assert scaled(get(name), scale).activation.steps == "segments"
    assert scaled(get("cifar10-cnn-apl"), "lab").activation.steps == "slopes"
