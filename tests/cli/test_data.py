from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from torchapl import cli
from torchapl.paper.data import DATA_SETS, simulate, store_folder


@pytest.fixture(autouse=True)
def _this_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "COMMANDS", ("data",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def susy(tmp_path: Path) -> Path:
    table = np.random.default_rng(0).normal(2, 1, (500, 19))
    table[:, 0] = np.arange(500) % 2
    lines = [",".join(f"{value:.6f}" for value in row) for row in table]
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def run(*arguments: object) -> int:
    return cli.main(["data", *map(str, arguments)])


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(DATA_SETS)
    assert [line.split()[1] for line in lines].count("here") == 3
    assert run("list", "--json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(DATA_SETS)


def test_fetch_verify_and_info_of_a_local_file(
    susy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    assert run("fetch", "uci-susy", "--root", root, "--from", susy) == 0
    output = capsys.readouterr()
    assert output.out == f"{store_folder(root, 'uci-susy')}\n"
    assert run("fetch", "uci-susy", "--root", root) == 0  # it is there
    assert run("verify", "uci-susy", "--root", root) == 0
    assert "uci-susy: ok" in capsys.readouterr().out
    assert run("info", "uci-susy", "--root", root, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["store"]["rows"] == 500
    assert record["store"]["test_rows"] == 100
    assert len(record["store"]["columns"]) == 19
    assert record["store"]["columns"][18]["mean"] == 0.5
    assert run("info", "uci-susy", "--root", root) == 0
    assert "lepton_1_pT" in capsys.readouterr().out


def test_verify_a_damaged_store(
    susy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fetch", "uci-susy", "--root", tmp_path, "--from", susy)
    shard = next(store_folder(tmp_path, "uci-susy").glob("*.parquet"))
    with shard.open("r+b") as file:
        file.seek(1000)
        file.write(b"!!")
    capsys.readouterr()
    assert run("verify", "uci-susy", "--root", tmp_path) == 2
    output = capsys.readouterr()
    assert not output.out
    assert "is damaged" in output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch", "nothing"), "unknown data set 'nothing'"),
        (("info", "nothing"), "unknown data set 'nothing'"),
        (("verify", "cifar10"), "no folder cifar-10-batches-bin"),
        (("verify", "htautau"), "data simulate htautau"),
        (("fetch", "htautau"), "data simulate htautau"),
        (("fetch", "toy-images"), "needs no files"),
        (("fetch", "uci-higgs", "--from", "/nowhere.csv"), "is not a file"),
        (("fetch", "cifar10", "--from", "/nowhere.tar.gz"), "should be a file"),
    ],
)
def test_errors(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert not output.out


def test_sets_without_files_verify(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "atlas-higgs-embedded") == 0
    assert run("verify", "toy-images") == 0
    assert capsys.readouterr().out.count(": ok") == 2


def test_an_image_archive_of_ones_own_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fake.tar.gz").write_bytes(b"not CIFAR")
    assert run("fetch", "cifar100", "--root", tmp_path, "--from", tmp_path / "fake.tar.gz") == 2
    assert "168513733 were published" in capsys.readouterr().err


def test_real_images_verify(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "cifar100", "--root", data_root) == 0
    assert run("info", "cifar100", "--root", data_root) == 0
    assert "cifar-100-binary" in capsys.readouterr().out


def test_simulate_passes_its_arguments_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}

    def fake(path: Path, **options: object) -> None:
        asked.update(options, path=path)
        options["advance"](10)

    monkeypatch.setattr(simulate, "simulate", fake)
    assert run("simulate", "htautau", "--events", 10, "--seed", 4, "--root", tmp_path) == 0
    assert asked["path"] == store_folder(tmp_path, "htautau")
    assert (asked["events"], asked["workers"], asked["seed"]) == (10, 1, 4)
    assert asked["hadronization"] is True
    assert asked["multiple_interactions"] is True
    assert capsys.readouterr().out == f"{tmp_path / 'htautau.events'}\n"
