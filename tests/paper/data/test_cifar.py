from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import Tiny

from torchapl.paper.data import DataError, cifar


@pytest.mark.parametrize("kind", ["binary", "python"])
def test_both_forms_hold_the_same_images(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    tiny.unpack(kind, tmp_path)
    data = cifar.load_set(tiny.images, "tiny", tmp_path)
    assert torch.equal(data.train.images, torch.from_numpy(tiny.pixels[:40]))
    assert torch.equal(data.train.labels, torch.from_numpy(tiny.labels[:40]))
    assert torch.equal(data.test.images, torch.from_numpy(tiny.pixels[40:]))
    assert data.train.images.dtype == torch.uint8
    assert data.classes == 4


@pytest.mark.parametrize("kind", ["binary", "python"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "truncated"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "too long"),
        (lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]), "damaged: its"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.unlink(), path.mkdir()), "should be a file"),
    ],
    ids=["truncated", "longer", "changed", "missing", "folder"],
)
def test_damaged_files(tiny: Tiny, tmp_path: Path, kind: str, damage: object, message: str) -> None:
    folder = tiny.unpack(kind, tmp_path)
    damage(folder / tiny.form(kind).train[1].name)
    with pytest.raises(DataError, match=message):
        cifar.load_set(tiny.images, "tiny", tmp_path)


def test_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        cifar.load("cifar10", tmp_path)
    for part in (
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        str(tmp_path),
        "data fetch cifar10",
    ):
        assert part in str(caught.value)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cifar-100-binary").write_bytes(b"")
    with pytest.raises(DataError, match="is a file; a folder"):
        cifar.load("cifar100", tmp_path)


def test_labels_out_of_range(tiny: Tiny, tmp_path: Path) -> None:
    tiny.unpack("binary", tmp_path)
    with pytest.raises(DataError, match="there are 2 classes"):
        cifar.load_set(replace(tiny.images, classes=2), "tiny", tmp_path)


def test_the_fine_label_is_the_last_label_byte() -> None:
    record = bytes([7, 42]) + bytes(range(256)) * 12
    images, labels = cifar.read_records(record * 2, label_bytes=2)
    assert labels.tolist() == [42, 42]
    assert images[1, 0, 1, 0] == 32  # the second row of the first channel


def test_half_a_record() -> None:
    with pytest.raises(DataError, match="no whole number of records"):
        cifar.read_records(bytes(5000), label_bytes=1)


@pytest.mark.parametrize(
    ("name", "mean"),
    # Means of the training pixels over 255, as widely published for the two sets.
    [("cifar10", (0.49140, 0.48216, 0.44653)), ("cifar100", (0.50708, 0.48655, 0.44092))],
)
def test_the_real_sets(data_root: Path, name: str, mean: tuple[float, ...]) -> None:
    data = cifar.load(name, data_root)
    assert data.train.images.shape == (50_000, 3, 32, 32)
    assert data.test.images.shape == (10_000, 3, 32, 32)
    counts = torch.bincount(data.train.labels)
    assert counts.tolist() == [50_000 // data.classes] * data.classes
    measured = data.train.images.view(50_000, 3, -1).float().mean((0, 2)) / 255
    torch.testing.assert_close(measured, torch.tensor(mean), atol=1e-5, rtol=0)
