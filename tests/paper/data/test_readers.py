from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from torchapl.paper.data import DataError, EventStore, convert, readers, store_folder
from torchapl.paper.data.layouts import Layout
from torchapl.paper.data.readers import read_table
from torchapl.paper.data.sets import atlas, uci

SUSY = uci.SUSY
ATLAS = atlas.LAYOUT


def events(rows: int = 300) -> np.ndarray:
    """Features, then the label, as a store has them."""
    table = np.random.default_rng(1).normal(0, 3, (rows, len(SUSY.columns))).astype(np.float32)
    table[:, -1] = table[:, -1] > 0
    return table


def label_first(table: np.ndarray) -> np.ndarray:
    return np.roll(table, 1, axis=1)


def arrow(table: np.ndarray, order: tuple[str, ...] = SUSY.columns) -> pa.Table:
    columns = dict(zip(SUSY.columns, table.T, strict=True))
    return pa.table({name: np.ascontiguousarray(columns[name]) for name in order})


def write_text(path: Path, table: np.ndarray, header: bool = False) -> None:
    options = csv.WriteOptions(include_header=header)
    csv.write_csv(arrow(table, (SUSY.label, *SUSY.features)), path, options)


def write_gzip(path: Path, table: np.ndarray) -> None:
    plain = path.with_suffix("")
    write_text(plain, table)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()


def write_columns(path: Path, table: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        for name, column in zip(SUSY.columns, table.T, strict=True):
            file[f"events/{name}"] = column


def write_pair(path: Path, table: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["features"], file["truth"] = table[:, :-1], table[:, -1].astype(np.int8)


def write_matrix(path: Path, table: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["all"] = label_first(table)


def write_named(path: Path, table: np.ndarray) -> None:
    np.save(path, np.rec.fromarrays(table.T, names=list(SUSY.columns)))


WRITERS: dict[str, tuple[str, Callable[[Path, np.ndarray], None]]] = {
    "csv": ("t.csv", write_text),
    "csv-header": ("t.csv", lambda path, table: write_text(path, table, header=True)),
    "csv.gz": ("t.csv.gz", write_gzip),
    "parquet": (
        "t.parquet",
        lambda path, table: parquet.write_table(
            arrow(table, SUSY.columns[::-1]), path, row_group_size=64
        ),
    ),
    "hdf5-columns": ("t.h5", write_columns),
    "hdf5-pair": ("t.hdf5", write_pair),
    "hdf5-matrix": ("t.h5", write_matrix),
    "npy": ("t.npy", lambda path, table: np.save(path, label_first(table).astype(np.float64))),
    "npy-named": ("t.npy", write_named),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_gives_the_same_store(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SHARD_ROWS", 100)
    name, write = WRITERS[kind]
    write(tmp_path / name, events())
    seen: list[float] = []
    store = convert.convert(tmp_path / name, "uci-susy", tmp_path / "a.events", seen.append)
    assert np.array_equal(store.table(), events())
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)
    store.verify()
    digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert store.source["sha256"] == digest
    assert len(store.statistics().mean) == 19


@pytest.mark.parametrize("kind", WRITERS)
def test_an_interrupted_conversion_is_resumed(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SHARD_ROWS", 70)
    name, write = WRITERS[kind]
    write(tmp_path / name, events())

    def interrupt(share: float) -> None:
        if len(list((tmp_path / "a.events.partial").glob("*.parquet"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert.convert(tmp_path / name, "uci-susy", tmp_path / "a.events", interrupt)
    read: list[int] = []
    plain = readers.read_blocks
    monkeypatch.setattr(
        convert,
        "read_blocks",
        lambda path, layout, skip: (read.append(skip), plain(path, layout, skip))[1],
    )
    store = convert.convert(tmp_path / name, "uci-susy", tmp_path / "a.events")
    assert read == [140]
    assert np.array_equal(store.table(), events())


def test_a_changed_source_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    np.save(path, label_first(events()))

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert.convert(path, "uci-susy", tmp_path / "a.events", interrupt)
    np.save(path, label_first(events()) + 1)
    with pytest.raises(DataError, match="another source"):
        convert.convert(path, "uci-susy", tmp_path / "a.events")


def cut(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind not in ("csv", "csv-header")])
@pytest.mark.parametrize("damage", [cut, lambda content: b"garbage" * 99, lambda content: b""])
def test_damaged_files_leave_no_store(
    tmp_path: Path, kind: str, damage: Callable[[bytes], bytes]
) -> None:
    name, write = WRITERS[kind]
    path = tmp_path / name
    write(path, events())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        convert.convert(path, "uci-susy", tmp_path / "a.events")
    assert not (tmp_path / "a.events").exists()


def test_no_flipped_bit_of_packed_text_changes_an_event(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    write_gzip(path, events())
    content = path.read_bytes()
    places = [*range(0, 200, 3), *range(200, len(content), len(content) // 60)]
    noticed = 0
    for number, place in enumerate(places):
        changed = bytearray(content)
        changed[place] ^= 1 << number % 8
        path.write_bytes(changed)
        try:
            store = convert.convert(path, "uci-susy", tmp_path / f"{number}.events")
        except DataError:
            noticed += 1
        else:  # such as the time in its header
            assert np.array_equal(store.table(), events())
    assert noticed > len(places) - 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "Expected 19 columns|label|conversion"),
        (lambda text: "", "is empty"),
        (lambda text: text.replace("1,", "maybe,", 1), "lacks|invalid"),
        (lambda text: text + "3" + ",1" * 18 + "\n", "label 'label' is 3.0 in row 300"),
        (lambda text: text + "1" + ",x" * 18 + "\n", "invalid value 'x'"),
        (lambda text: text + "1" + ",inf" * 18 + "\n", "'lepton_1_pT' is inf in row 300"),
        (lambda text: text + "1" + ",nan" * 18 + "\n", "'lepton_1_pT' is nan in row 300"),
        (lambda text: text + "1" + ",1e300" * 18 + "\n", "'lepton_1_pT' is inf in row 300"),
        (lambda text: text + "1,2,3\n", "Expected 19 columns, got 3"),
    ],
    ids=["cut", "empty", "header", "label", "text", "inf", "nan", "overflow", "short"],
)
def test_bad_text(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    path = tmp_path / "t.csv"
    write_text(path, events())
    text = change(path.read_text())
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        convert.convert(path, "uci-susy", tmp_path / "a.events")
    assert "t.csv" in str(caught.value)
    assert not (tmp_path / "a.events").exists()


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("t.npy", np.zeros((5, 7)), r"shape \(5, 7\)"),
        ("t.npy", np.zeros(5), r"shape \(5,\)"),
        ("t.npy", np.array([["a"] * 19]), "expected numbers"),
        ("t.npy", np.array([[None] * 19]), "damaged|pickle"),
        ("t.txt", np.zeros((5, 19)), "unknown kind of table"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, name: str, table: np.ndarray, message: str) -> None:
    with (tmp_path / name).open("wb") as file:
        np.save(file, table)
    with pytest.raises(DataError, match=message):
        convert.convert(tmp_path / name, "uci-susy", tmp_path / "a.events")


def test_a_damaged_header_of_an_array_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    np.save(path, np.zeros((5, 19)))
    # Cut off within the shape, where NumPy's own reader raises an error of the tokenizer.
    path.write_bytes(path.read_bytes().replace(b"(5, 19)", b"(5, \0\0\0"))
    with pytest.raises(DataError, match=r"t\.npy: has a damaged header"):
        convert.convert(path, "uci-susy", tmp_path / "a.events")


def atlas_text(labels: str = "sb", missing: str = "-999.0") -> str:
    names = ["EventId", *ATLAS.features, "Weight", "Label", "KaggleSet", "KaggleWeight"]
    rows = [
        ",".join([str(100_000 + row), missing, *["1.5"] * 29, "0.25", label, "t", "0.5"])
        for row, label in enumerate(labels)
    ]
    return "\n".join([",".join(names), *rows]) + "\n"


def test_atlas_text_labels_missing_values_and_weights(tmp_path: Path) -> None:
    path = tmp_path / "atlas.csv"
    path.write_text(atlas_text())
    store = convert.convert(path, "atlas-higgs-2014", tmp_path / "a.events")
    assert store.table()[:, store.label].tolist() == [1, 0]
    assert np.isnan(store.table()[:, 0]).all()
    assert store.columns[-2:] == ("Weight", "KaggleWeight")
    assert store.table()[:, -2:].tolist() == [[0.25, 0.5]] * 2
    statistics = store.statistics()
    assert statistics.count[:2].tolist() == [0, 2]


def test_atlas_with_an_unknown_label_or_without_a_column(tmp_path: Path) -> None:
    path = tmp_path / "atlas.csv"
    path.write_text(atlas_text("sx"))
    with pytest.raises(DataError, match="label 'x' in row 1 is none of b, s"):
        convert.convert(path, "atlas-higgs-2014", tmp_path / "a.events")
    path.write_text(atlas_text().replace("DER_mass_MMC", "other"))
    with pytest.raises(DataError, match="lacks DER_mass_MMC"):
        convert.convert(path, "atlas-higgs-2014", tmp_path / "b.events")


def test_any_names_will_do_for_simulated_events(tmp_path: Path) -> None:
    names = [f"mine_{number}" for number in range(25)]
    table = np.random.default_rng(0).normal(size=(50, 26)).astype(np.float32)
    table[:, 7] = np.arange(50) % 2
    parquet.write_table(
        pa.table(dict(zip([*names[:7], "label", *names[7:]], table.T, strict=True))),
        tmp_path / "t.parquet",
    )
    store = convert.convert(tmp_path / "t.parquet", "htautau", tmp_path / "a.events")
    assert np.array_equal(store.table()[:, 25], table[:, 7])
    assert np.array_equal(store.table()[:, :25], np.delete(table, 7, axis=1))


def test_finds_the_file_or_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"put it into .*|fetch uci-susy"):
        convert.open_store("uci-susy", tmp_path)
    with pytest.raises(DataError, match="data simulate htautau"):
        convert.open_store("htautau", tmp_path)
    write_gzip(tmp_path / "SUSY.csv.gz", events())
    store = convert.open_store("uci-susy", tmp_path)
    assert store.folder == store_folder(tmp_path, "uci-susy")
    (tmp_path / "SUSY.csv.gz").unlink()
    assert convert.open_store("uci-susy", tmp_path).rows == 300


def test_processes_that_open_a_set_at_once_wait_for_the_one_that_converts(tmp_path: Path) -> None:
    write_gzip(tmp_path / "SUSY.csv.gz", events(20_000))
    with ThreadPoolExecutor(3) as pool:  # locks hold between threads as between processes
        stores = list(pool.map(lambda _: convert.open_store("uci-susy", tmp_path), range(3)))
    assert [store.rows for store in stores] == [20_000] * 3


def test_the_real_samples(data_root: Path, tmp_path: Path) -> None:
    path = next((data_root / "higgs-tautau").glob("*.csv.gz"))
    store = convert.convert(path, "atlas-higgs-2014", tmp_path / "atlas.events")
    statistics = store.statistics()
    assert store.rows == 22_889
    assert statistics.mean[store.label] * store.rows == pytest.approx(7_817)
    # 15 % to 71 % of the rows miss a value in 11 features, the others are complete.
    missing = 1 - statistics.count[:30] / store.rows
    assert (missing > 0).sum() == 11
    assert 0.14 < missing[missing > 0].min() < missing.max() < 0.72
    assert statistics.minimum[:30].min() > -20  # no -999 among the values
    path = next((data_root / "higgs-uci").glob("*.csv.gz"))
    store = convert.convert(path, "uci-higgs", tmp_path / "uci.events")
    assert store.rows == 15_980
    assert store.statistics().mean[28] * store.rows == pytest.approx(8_489)
    assert json.loads((store.folder / "index.json").read_text())["columns"][0] == "lepton_pT"
    assert isinstance(store, EventStore)


def test_names_with_blanks_quotes_and_a_byte_order_mark(tmp_path: Path) -> None:
    table = events(20)
    write_text(tmp_path / "plain.csv", table, header=True)
    first, _, rest = (tmp_path / "plain.csv").read_text().partition("\n")
    first = ", ".join(first.split(","))
    (tmp_path / "a.csv").write_text(f"\ufeff{first}\r\n{rest}", encoding="utf-8")
    store = convert.convert(tmp_path / "a.csv", "uci-susy", tmp_path / "a.events")
    assert np.array_equal(store.table(), table)


def test_atlas_as_the_challenge_had_it(tmp_path: Path) -> None:
    """Its training.csv has weights, but neither KaggleSet nor KaggleWeight."""
    lines = [line.rsplit(",", 2)[0] for line in atlas_text().splitlines()]
    (tmp_path / "training.csv").write_text("\n".join(lines))
    store = convert.convert(tmp_path / "training.csv", "atlas-higgs-2014", tmp_path / "a.events")
    assert store.table()[:, store.label].tolist() == [1, 0]
    assert store.columns[-2:] == ("Label", "Weight")
    assert store.table()[:, -1].tolist() == [0.25, 0.25]


def test_hdf5_groups_with_equal_names_are_not_mixed_up(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train/x"], file["test/x"] = label_first(events(9)), label_first(events(3))
    with pytest.raises(DataError, match="has 'x' twice: /test/x and /train/x"):
        convert.convert(tmp_path / "a.h5", "uci-susy", tmp_path / "a.events")


def test_hdf5_text_labels(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ATLAS.features:
            file[name] = np.ones(2)
        file["Label"] = ["s", "b"]
    store = convert.convert(tmp_path / "a.h5", "atlas-higgs-2014", tmp_path / "a.events")
    assert store.table()[:, store.label].tolist() == [1, 0]


def test_the_published_file_comes_before_a_sample_of_it(tmp_path: Path) -> None:
    for name in ("SUSY-sample.csv.gz", "SUSY.csv.gz"):
        write_gzip(tmp_path / name, events(5))
    assert convert.find_file("uci-susy", tmp_path) == tmp_path / "SUSY.csv.gz"


def test_a_damaged_file_is_not_in_the_way_of_a_better_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SHARD_ROWS", 70)
    for damage in ("0,1.5\n", "0" + ",inf" * 18 + "\n"):
        write_text(tmp_path / "a.csv", events())
        whole = (tmp_path / "a.csv").read_text()
        (tmp_path / "a.csv").write_text(whole + damage)
        with pytest.raises(DataError, match=r"a\.csv"):
            convert.convert(tmp_path / "a.csv", "uci-susy", tmp_path / "a.events")
        assert not (tmp_path / "a.events.partial").exists()
    (tmp_path / "a.csv").write_text(whole)
    assert convert.convert(tmp_path / "a.csv", "uci-susy", tmp_path / "a.events").rows == 300


def test_numbers_of_columns_are_not_taken_for_an_event(tmp_path: Path) -> None:
    write_text(tmp_path / "a.csv", events(5))
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(",".join(map(str, range(19))) + "\n" + text)
    with pytest.raises(DataError, match="has the numbers of its columns"):
        convert.convert(tmp_path / "a.csv", "uci-susy", tmp_path / "a.events")


def test_a_table_without_rows_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.empty((0, 3), np.float32))
    with pytest.raises(DataError, match=r"empty\.npy has no rows"):
        read_table(tmp_path / "empty.npy", Layout(("mass", "angle"), names_fixed=False))
