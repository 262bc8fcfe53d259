from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import Server, Tiny

from torchapl.paper.data import DataError, cifar, management
from torchapl.paper.data.catalogue import DATA_SETS, ImageSet


@pytest.fixture
def served(tiny: Tiny, server: Server, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The tiny set as if it were CIFAR-10, its binary archive on the local server."""
    server.content = tiny.archives["binary"]
    images = tiny.served("binary", server.url)
    entry = replace(DATA_SETS.get("cifar10"), files=images)
    monkeypatch.setitem(DATA_SETS.entries, "cifar10", entry)
    return tiny


def test_fetches_unpacks_and_loads(served: Tiny, server: Server, tmp_path: Path) -> None:
    tasks: list[str] = []
    folder = management.fetch_set(
        "cifar10", tmp_path / "new", report=lambda task, done, total: tasks.append(task)
    )
    assert folder == tmp_path / "new" / "tiny-binary"
    assert set(tasks) == {"tiny-binary.tar.gz"}
    assert len(cifar.load("cifar10", tmp_path / "new").train.images) == 40
    # A second call checks what is there, and asks nobody.
    assert management.fetch_set("cifar10", tmp_path / "new") == folder
    assert len(server.asked) == 1


def test_offline_the_archive_is_put_in_place_by_hand(
    served: Tiny, server: Server, tmp_path: Path
) -> None:
    server.status = 404
    with pytest.raises(DataError) as caught:
        management.fetch_set("cifar10", tmp_path)
    where = tmp_path / "tiny-binary.tar.gz"
    assert str(where) in str(caught.value)
    where.write_bytes(served.archives["binary"])
    management.fetch_set("cifar10", tmp_path)
    assert len(cifar.load("cifar10", tmp_path).test.images) == 10


def test_the_python_form_from_a_file(served: Tiny, tmp_path: Path) -> None:
    archive = tmp_path / "elsewhere.tar.gz"
    archive.write_bytes(served.archives["python"])
    root = tmp_path / "root"
    management.fetch_set("cifar10", root, form="python", file=archive)
    assert cifar.load("cifar10", root).train.labels.tolist() == served.labels[:40].tolist()
    assert management.verify_set("cifar10", root) == str(root / "tiny-python")


def test_a_damaged_folder_is_not_accepted_as_fetched(served: Tiny, tmp_path: Path) -> None:
    folder = management.fetch_set("cifar10", tmp_path)
    (folder / "one.bin").write_bytes(b"short")
    with pytest.raises(DataError, match=r"truncated.*Remove .*tiny-binary and run the same"):
        management.fetch_set("cifar10", tmp_path)
    with pytest.raises(DataError, match="truncated"):
        management.verify_set("cifar10", tmp_path)


def test_a_full_disk_while_unpacking(
    served: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(DataError, match="No space left on device"):
            management.fetch_set("cifar10", tmp_path)
    assert not (tmp_path / "tiny-binary").exists()
    assert not (tmp_path / ".tiny-binary.partial").exists()
    management.fetch_set("cifar10", tmp_path)


def test_a_file_where_the_set_should_be(served: Tiny, tmp_path: Path) -> None:
    (tmp_path / "tiny-binary").write_text("")
    with pytest.raises(DataError, match="is a file where a folder is needed"):
        management.fetch_set("cifar10", tmp_path)


def test_unknown_form(served: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="form must be one of binary, python; got 'matlab'"):
        management.fetch_set("cifar10", tmp_path, form="matlab")


def test_official_numbers_are_complete() -> None:
    """Every published archive has a size and a checksum, every file inside a checksum."""
    for images in (entry.files for entry in DATA_SETS.entries.values()):
        for form in images.forms if isinstance(images, ImageSet) else ():
            assert form.archive.url.startswith("https://www.cs.toronto.edu/~kriz/cifar-")
            assert form.archive.size is not None
            assert form.archive.checksum is not None
            assert len(form.archive.checksum) == 32
            for file in (*form.train, *form.test):
                assert len(file.checksum) == {"binary": 64, "python": 32}[form.kind]


def test_the_form_at_hand_is_taken(served: Tiny, server: Server, tmp_path: Path) -> None:
    (tmp_path / "tiny-python.tar.gz").write_bytes(served.archives["python"])
    assert management.fetch_set("cifar10", tmp_path) == tmp_path / "tiny-python"
    elsewhere = tmp_path / "elsewhere.tar.gz"
    elsewhere.write_bytes(served.archives["python"])
    root = tmp_path / "root"
    assert management.fetch_set("cifar10", root, file=elsewhere) == root / "tiny-python"
    assert server.asked == []


def test_a_store_is_not_taken_for_that_of_another_file(tmp_path: Path) -> None:
    for rows in (20, 30):
        label = [f"{number % 2}" + ",1.5" * 18 for number in range(rows)]
        (tmp_path / f"{rows}.csv").write_text("\n".join(label) + "\n")
    folder = management.fetch_set("uci-susy", tmp_path, file=tmp_path / "20.csv")
    assert management.fetch_set("uci-susy", tmp_path, file=tmp_path / "20.csv") == folder
    with pytest.raises(DataError, match=r"made from 20.csv: remove it to make it from .*30.csv"):
        management.fetch_set("uci-susy", tmp_path, file=tmp_path / "30.csv")


def test_what_is_not_a_store_yet_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data fetch uci-susy"):
        management.verify_set("uci-susy", tmp_path)
    (tmp_path / "SUSY.csv").write_text("0,1\n")
    with pytest.raises(DataError, match="is not converted yet"):
        management.verify_set("uci-susy", tmp_path)


def test_the_folder_of_the_set_itself_is_told_from_the_one_above(
    served: Tiny, tmp_path: Path
) -> None:
    folder = management.fetch_set("cifar10", tmp_path)
    with pytest.raises(DataError, match=f"give the one above it, {tmp_path}"):
        cifar.load("cifar10", folder)
