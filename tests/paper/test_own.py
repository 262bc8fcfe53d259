"""One's own data, network and activation, each by one registration, from training to the report."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchapl.cli import main
from torchapl.paper import loading
from torchapl.paper.data import DataError, open_data
from torchapl.paper.data.content import EventData, ImageData
from torchapl.paper.data.events import ArrayRows
from torchapl.paper.data.own import arrays, check_parts, image_folder, table
from torchapl.paper.own import (
    ACTIVATIONS,
    ADAMW,
    DATA_SETS,
    EXPERIMENTS,
    NETWORKS,
    Activation,
    Data,
    DataSet,
    Experiment,
    Network,
)
from torchapl.paper.report.payload import build_payload
from torchapl.paper.sweep import Sweep
from torchapl.paper.sweep.comparison import Comparison
from torchapl.paper.sweep.jobs import read_results
from torchapl.paper.sweep.pool import Workspace, attempt
from torchapl.paper.sweep.statistics import summarise

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_experiments.py"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogues that forget what a test registers."""
    for catalogue in (ACTIVATIONS, DATA_SETS, EXPERIMENTS, NETWORKS):
        monkeypatch.setattr(catalogue, "entries", dict(catalogue.entries))


def small_net(
    activation: Activation, input_shape: tuple[int, ...], num_classes: int, width: float
) -> nn.Module:
    hidden = nn.Linear(input_shape[0], 8), activation.build((8,))
    return nn.Sequential(*hidden, nn.Linear(8, num_classes))


@pytest.mark.usefixtures("own")
def test_a_rival_a_network_and_a_data_set_by_one_registration_each(tmp_path: Path) -> None:
    @ACTIVATIONS.register
    @dataclass(frozen=True)
    class Power(Activation):
        kind = "power"
        title = "Power of ReLU"
        exponent: float = 2.0

        def build(self, unit_shape: tuple[int, ...]) -> nn.Module:
            module = nn.ReLU()
            module.register_forward_hook(lambda unit, inputs, output: output**self.exponent)
            return module

    random = np.random.default_rng(0)
    inputs = random.standard_normal((300, 5))
    load = arrays(inputs, (inputs[:, 0] > 0).astype(int))
    DATA_SETS.register(DataSet("toy", "Toy", "of a test", load=load))
    NETWORKS.register(Network("small", "small", "own", small_net))
    EXPERIMENTS.register(
        Experiment("mine", "small", data=Data("toy", "standard"), optim=ADAMW, epochs=2)
    )

    comparison = Comparison("mine", ("relu", "power:3.0"), rates=(1.0, 2.0))
    sweep = comparison.sweep(seeds=2)
    assert isinstance(sweep, Sweep)
    comparison.save(tmp_path)
    cells, results = comparison.table().cells, read_results(tmp_path)
    while jobs := [job for cell in cells for job in sweep.next_jobs(cell, results)]:
        for job in jobs:
            assert attempt(job, Workspace(tmp_path, None, "cpu")).error is None
        results = read_results(tmp_path)

    rows = [s for s in summarise(comparison.table(), sweep, results) if s.metric.name == "test_auc"]
    assert [summary.row for summary in rows] == ["ReLU", "power:3.0"]
    assert [summary.n for summary in rows] == [2, 2]
    assert rows[1].difference is not None
    # Every activation had the same learning rates to choose from.
    assert [summary.choices[0].candidates for summary in rows] == [
        ("optim.lr=0.002", "optim.lr=0.004")
    ] * 2
    payload: Any = build_payload(tmp_path)
    assert [table["title"] for table in payload["tables"]] == [
        "activations compared, test error, %",
        "activations compared, AUC",
    ]
    # What only chose a rate is not drawn.
    assert payload["learning"]
    assert not any("data.validation" in line["name"] for line in payload["learning"])


def test_compare_on_a_csv_of_ones_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchapl.cli", "compare", "flowers", "--load", EXAMPLE]
    options = ["--activations", "relu,bent,apl", "--seeds", "2", "--rates", "1", "--device", "cpu"]
    short = ["--set", "epochs=2", "--runs", tmp_path, "--json", "--workers", "2"]
    done = subprocess.run([*command, *options, *short], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["flowers"]
    found = {cell["row"]: cell for cell in cells if cell["metric"] == "test_error"}
    assert {row: cell["n"] for row, cell in found.items()} == {
        "ReLU": 2,
        "Bent identity": 2,
        "APL": 2,
    }
    assert found["APL"]["difference"]["n"] == 2
    assert "9 runs to do" not in done.stderr
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert "Traceback" not in done.stderr


def test_a_comparison_by_held_out_rows_leaves_the_test_rows_alone() -> None:
    comparison = Comparison("atlas-dnn-relu", ("relu", "apl"), "smoke", rates=(), held_out=True)
    cell = comparison.table().cells[1]
    jobs = comparison.sweep(seeds=2).next_jobs(cell, {})
    assert [job.selects for job in jobs] == [True, True]
    assert [metric.name for metric in cell.metrics] == ["valid_error", "valid_auc"]


@pytest.mark.usefixtures("own")
def test_a_loaded_file_registers_once_and_its_mistakes_are_named(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'loaded-net'\n")
    (tmp_path / "mine.py").write_text(
        "from helper import NAME\n"
        "from torchapl.paper.own import NETWORKS, Network, nn\n"
        "NETWORKS.register(Network(NAME, NAME, 'own', nn.Identity))\n"
    )
    loading.load([tmp_path / "mine.py"])
    loading.load([tmp_path / "mine.py"])
    assert "loaded-net" in NETWORKS
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ValueError, match=r"broken.py failed: ZeroDivisionError"):
        loading.load([tmp_path / "broken.py"])
    with pytest.raises(ValueError, match="--load needs a Python file, got"):
        loading.load([tmp_path / "nothing.py"])


def test_a_mistake_in_load_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--load", "nowhere.py"]) == 2
    assert capsys.readouterr().err == "error: --load needs a Python file, got nowhere.py\n"


def test_tables_of_text_and_numbers(tmp_path: Path) -> None:
    lines = [f"{i},{'red' if i % 3 else 'blue'},{'abc'[i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("size,colour,kind\n" + "\n".join(lines) + "\n")
    data = table("t.csv", label="kind", test_share=0.25)(tmp_path)
    assert isinstance(data, EventData)
    assert data.features == ("size", "colour=blue", "colour=red")
    assert (data.training_rows, data.test_rows, data.classes) == (45, 15, 3)
    with pytest.raises(DataError, match="no column 'sort'; it has size, colour, kind"):
        table("t.csv", label="sort")(tmp_path)
    with pytest.raises(DataError, match="there is no file"):
        table("u.csv", label="sort")(tmp_path)


def write_csv(path: Path, header: str, lines: Iterable[str]) -> None:
    path.write_text("\n".join([header, *lines]) + "\n")


def refusal(path: Path, **options: Any) -> str:
    """Return why a table is refused, which names its file."""
    with pytest.raises(DataError) as caught:
        table(path, label="y", **options)(path.parent)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("classes", ["ab", "01", ("true", "false")])
def test_rows_without_a_label_are_refused(tmp_path: Path, classes: Sequence[str]) -> None:
    labels = [classes[number % 2] if number % 10 else "" for number in range(60)]
    # An empty line is no row, and a cell may have two lines: it is the file's lines that count.
    lines = ["", *(f'"{i}\n",{label}' for i, label in enumerate(labels[1:], start=1))]
    write_csv(tmp_path / "t.csv", "x,y", lines)
    message = refusal(tmp_path / "t.csv")
    assert "5 of 59 rows have no label in column 'y', the first in line 21" in message
    assert "fill these cells, or remove the rows" in message


def test_a_parquet_file_counts_rows_where_a_csv_file_counts_lines(tmp_path: Path) -> None:
    labels = [None if number in (6, 8) else number % 2 for number in range(60)]
    write_parquet(tmp_path / "t.parquet", x=[0.5] * 60, y=labels)
    message = refusal(tmp_path / "t.parquet")
    assert "2 of 60 rows have no label in column 'y', the first in row 7" in message


def write_parquet(path: Path, **columns: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)


def test_decimals_dates_and_times_are_numbers(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    start = datetime.datetime(2020, 1, 1, 12)
    hours = [start + datetime.timedelta(hours=number) for number in range(40)]
    write_parquet(
        tmp_path / "t.parquet",
        price=[None, *(Decimal(f"{number}.50") for number in range(1, 40))],
        day=[hour.date() for hour in hours],
        at=hours,
        # Seconds since 1970 would not fit 32 bits: here, one millisecond does.
        instant=pyarrow.array(range(1_700_000_000_000, 1_700_000_000_040), pyarrow.timestamp("ms")),
        clock=[hour.time() for hour in hours],
        duration=[None, *(hour - start for hour in hours[1:])],
        known=[None, *[True, False, True] * 13],
        y=["a", "b"] * 20,
    )
    data = table("t.parquet", label="y")(tmp_path)
    assert isinstance(data, EventData)
    assert isinstance(data.source, ArrayRows)
    names = ("price", "day", "at", "instant", "clock", "duration", "known")
    assert data.features == names
    columns = dict(zip(names, data.source.table.T, strict=False))
    rows = np.argsort(columns["at"])
    columns = {name: column[rows] for name, column in columns.items()}
    assert columns["price"][1:4].tolist() == [1.5, 2.5, 3.5]
    assert columns["day"][[0, 11, 12, 39]].tolist() == [0, 0, 1, 2]
    assert columns["at"][[0, 12, 24]].tolist() == [0, 0.5, 1]
    assert len(set(columns["instant"].tolist())) == 40
    assert columns["clock"][[0, 12, 18]].tolist() == [0.5, 0, 0.25]
    assert columns["duration"][[13, 25]].tolist() == [0.5, 1]
    assert columns["known"][1:3].tolist() == [1, 0]
    assert data.missing
    assert all(np.isnan(columns[name][0]) for name in ("price", "duration", "known"))


def test_a_column_of_lists_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", x=[[1, 2]] * 40, y=["a", "b"] * 20)
    message = refusal(tmp_path / "t.parquet")
    assert "column 'x' holds list" in message
    assert "leave it out by features=" in message


@pytest.mark.parametrize("value", ["inf", "-inf", "1e300"])
def test_numbers_that_32_bits_do_not_hold_are_refused(tmp_path: Path, value: str) -> None:
    lines = [f"{value if number == 3 else number},{'ab'[number % 2]}" for number in range(60)]
    write_csv(tmp_path / "t.csv", "x,y", lines)
    message = refusal(tmp_path / "t.csv")
    assert f"column 'x' has {float(value)} in line 5" in message
    assert "correct the cell, or leave it empty" in message
    with pytest.raises(ValueError, match=r"inputs must be finite .* got -?inf in row 2"):
        arrays([[0.0], [1.0], [float(value)], [3.0]] * 5, [0, 1, 0, 1] * 5)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("twice", ["x", "y"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, suffix: str, twice: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"t.{suffix}"
    columns = [[1.5] * 40, [2.5] * 40, [3.5] * 40, ["a", "b"] * 20]
    if suffix == "csv":
        write_csv(path, f"z,x,{twice},y", (f"{i},{i},{i},{'ab'[i % 2]}" for i in range(40)))
    else:
        parquet.write_table(pyarrow.table(columns, names=["z", "x", twice, "y"]), path)
    assert f"has column {twice!r} 2 times: rename all but one" in refusal(path)
    if twice == "x":
        data = table(path, label="y", features=["z"])(tmp_path)
        assert isinstance(data, EventData)
        assert data.features == ("z",)


def test_two_features_of_one_name_are_refused(tmp_path: Path) -> None:
    lines = (f"{number},{'bc'[number % 2]},{'ab'[number % 2]}" for number in range(40))
    write_csv(tmp_path / "t.csv", "a=b,a,y", lines)
    assert "two features would be called 'a=b': rename a column" in refusal(tmp_path / "t.csv")


def test_a_table_with_nothing_to_learn_from_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", "y", ["a", "b"] * 20)
    assert "no column beside the label 'y': add columns" in refusal(tmp_path / "t.csv")
    write_csv(tmp_path / "t.csv", "x,y", [])
    assert "has no rows" in refusal(tmp_path / "t.csv")


def test_a_part_with_one_class_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", "x,y", (f"{i},{'b' if i == 5 else 'a'}" for i in range(120)))
    message = refusal(tmp_path / "t.csv")
    assert "24 of 24 test rows are of class 'a'" in message
    assert "give more rows of class 'b'" in message
    with pytest.raises(ValueError, match="4 of 4 training rows are of class 1"):
        arrays(np.zeros((4, 2)), [1] * 4, test=(np.zeros((2, 2)), [0, 1]))


def test_parts_that_an_auc_measures_need_both_classes() -> None:
    rows = np.array([[0, 1]] * 10 + [[0, 0], [0, 1]] * 5, dtype=np.float32)
    content = EventData.of_table(rows, ("x",), 10)
    with pytest.raises(DataError, match=r"3 of 3 held-out rows .* are of one class"):
        check_parts(content, 3, None)
    check_parts(content, 0, None)
    with pytest.raises(DataError, match="10 of 10 test rows are of one class"):
        check_parts(EventData.of_table(rows[::-1], ("x",), 10), 0, None)
    # More classes than two are measured by the error alone.
    check_parts(EventData.of_table(rows, ("x",), 10, classes=3), 3, None)


@pytest.mark.parametrize("missing", [None, float("nan"), " "])
def test_targets_that_are_missing_are_refused(missing: object) -> None:
    targets = np.array([missing, "a", missing, "b"] * 5, dtype=object)
    with pytest.raises(ValueError, match="10 of 20 targets are missing, the first in row 0"):
        arrays(np.zeros((20, 2)), targets)


def test_training_rows_sorted_by_class_are_mixed() -> None:
    inputs = np.arange(200.0).reshape(100, 2)
    test = (inputs[::10], [0, 1] * 5)
    data = arrays(inputs, np.arange(100) // 50, test=test)(Path())
    assert isinstance(data, EventData)
    assert isinstance(data.source, ArrayRows)
    # The last tenth is what is held out.
    assert set(data.source.table[90:100, -1]) == {0, 1}
    assert np.array_equal(data.source.table[100:, :2], test[0])


@pytest.mark.usefixtures("own")
def test_many_classes_are_whole_numbers() -> None:
    inputs = torch.arange(120.0).reshape(60, 2)
    load = arrays(inputs, ["x", "y", "z"] * 20, test=(inputs[:6], ["x", "y", "z"] * 2))
    DATA_SETS.register(DataSet("three", "Three", "classes", load=load))
    bundle = open_data("three", batch_size=20, seed=0, preprocessing="standard", validation=0.1)
    features, labels = next(iter(bundle.train.epoch(0)))
    assert (bundle.num_classes, bundle.input_shape) == (3, (2,))
    assert labels.dtype == torch.int64
    assert features.shape == (20, 2)
    assert len(next(iter(bundle.test.epoch(0)))[0]) == 6


def test_a_folder_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cats", (255, 0, 0)), ("dogs", (0, 0, 255))):
        for number in range(5):
            (tmp_path / name).mkdir(exist_ok=True)
            image.new("RGB", (9, 7), colour).save(tmp_path / name / f"{number}.png")
    data = image_folder(tmp_path, size=(8, 6))(tmp_path)
    assert isinstance(data, ImageData)
    assert data.train.images.shape == (8, 3, 8, 6)
    assert data.train.images.dtype == torch.uint8
    assert data.classes == 2
    for picture, label in zip(data.train.images, data.train.labels, strict=True):
        assert picture[0, 0, 0] == (255 if label == 0 else 0)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (np.zeros((4, 2, 2)), [0, 1, 0, 1], r"inputs must be \(N, F\) or \(N, C, H, W\)"),
        (np.zeros((4, 2)), [0, 1], "got"),
        (np.zeros((10, 2)), [1] * 10, "at least two classes"),
        (np.zeros((2, 2)), [0, 1], "give more rows"),
    ],
)
def test_arrays_that_do_not_fit(inputs: np.ndarray, targets: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays(inputs, targets)
