from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import Tiny

from torchapl.paper.data import (
    DATA_SETS,
    Bundle,
    DataError,
    EventStoreWriter,
    Plan,
    open_data,
    store_folder,
)
from torchapl.paper.data.batches import Batches
from torchapl.paper.data.content import ImageData, Images
from torchapl.paper.data.toy import toy_events


def opened(name: str, root: Path | None = None, **options: object) -> Bundle:
    settings = {
        "batch_size": 100,
        "seed": 0,
        "preprocessing": "mean-image" if "images" in name or "tiny" in name else "physics",
    }
    return open_data(name, root, **{**settings, **options})


def everything(batches: Batches | None, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    assert batches is not None
    parts = list(batches.epoch(epoch))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


@pytest.fixture
def tiny_root(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with the tiny set under the name of CIFAR-10."""
    entry = replace(DATA_SETS.get("cifar10"), files=tiny.images)
    monkeypatch.setitem(DATA_SETS.entries, "cifar10", entry)
    tiny.unpack("binary", tmp_path)
    return tmp_path


def test_images(tiny: Tiny, tiny_root: Path) -> None:
    data = opened("cifar10", tiny_root, preprocessing="mean-image", validation=6, batch_size=8)
    assert data.input_shape == (3, 32, 32)
    assert data.num_classes == 4
    pixels = torch.from_numpy(tiny.pixels).float()
    mean = pixels[:34].mean(0)  # neither validation nor test rows
    images, labels = everything(data.validation)
    torch.testing.assert_close(images, pixels[34:40] - mean)
    assert torch.equal(labels, torch.from_numpy(tiny.labels[34:40]))
    images, labels = everything(data.test)
    torch.testing.assert_close(images, pixels[40:] - mean)
    images, labels = everything(data.train)
    assert len(images) == 34
    assert labels.dtype == torch.int64
    assert torch.equal(labels.sort()[0], torch.from_numpy(tiny.labels[:34]).sort()[0])


@pytest.mark.parametrize("preprocessing", ["mean-image", "standard", "gcn", "gcn-zca"])
@pytest.mark.parametrize("augment", [False, True])
def test_every_preprocessing(
    preprocessing: str, augment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The eigenvectors of 3072 x 3072 would take 20 s.
    small = ImageData(Images(*small_images(2000)), Images(*small_images(500)), classes=10)
    entry = replace(DATA_SETS.get("toy-images"), load=lambda root: small)
    monkeypatch.setitem(DATA_SETS.entries, "toy-images", entry)
    data = opened("toy-images", preprocessing=preprocessing, augment=augment, validation=100)
    train, _ = everything(data.train)
    test, _ = everything(data.test)
    assert train.shape == (1900, 3, 8, 8)
    assert train.dtype == test.dtype == torch.float32
    assert train.isfinite().all()
    if preprocessing == "gcn" and not augment:
        lengths = train.flatten(1).norm(dim=1)
        torch.testing.assert_close(lengths, torch.full((1900,), 55.0))
    if preprocessing == "standard" and not augment:
        torch.testing.assert_close(train.std(), torch.tensor(1.0), atol=1e-3, rtol=0)


def test_padding_decides_where_crops_may_lie() -> None:
    borders = []
    for padding in (2, 8):
        data = opened("toy-images", preprocessing="standard", augment=True, padding=padding)
        images, _ = everything(data.train)
        empty = (images == 0).all(1).all(-1)
        borders.append(int(empty.sum(1).max()))
    assert borders == [2, 8]


def small_images(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    images = torch.randint(0, 256, (rows, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 10, (rows,), generator=generator)


def test_splits_do_not_depend_on_the_seed_or_each_other() -> None:
    first = opened("toy-images", seed=0, validation=300, limit=500)
    second = opened("toy-images", seed=9, validation=300, limit=500)
    assert len(first.train) == 5
    for one, other in ((first.validation, second.validation), (first.test, second.test)):
        assert torch.equal(everything(one)[0], everything(other)[0])
    images, _ = everything(first.train)
    others, _ = everything(second.train)
    assert not torch.equal(images, others)
    # The same rows in another order.
    assert torch.equal(images.sum((1, 2, 3)).sort()[0], others.sum((1, 2, 3)).sort()[0])


def test_toy_classes_can_be_learned() -> None:
    data = opened("toy-images", preprocessing="standard")
    images, labels = everything(data.train)
    centres = torch.stack([images[labels == label].mean(0) for label in range(10)]).flatten(1)
    test_images, test_labels = everything(data.test)
    nearest = torch.cdist(test_images.flatten(1), centres).argmin(1)
    assert (nearest == test_labels).float().mean() > 0.9


def test_toy_events_and_their_split() -> None:
    data = opened("toy-events", validation=200)
    assert data.input_shape == (25,)
    assert data.num_classes == 1
    features, labels = everything(data.train)
    assert features.shape == (3000, 25)
    assert labels.dtype == torch.float32
    assert 0.4 < labels.mean() < 0.6
    assert everything(data.validation)[0].shape == (200, 25)
    assert everything(data.test)[0].shape == (800, 25)


def test_the_embedded_sample_needs_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    data = opened("atlas-higgs-embedded")
    features, labels = everything(data.train)
    tested, test_labels = everything(data.test)
    assert len(features) + len(tested) == 22_889
    assert labels.sum() + test_labels.sum() == 7_817
    assert features.shape[1:] == data.input_shape == (30,)
    assert features.isfinite().all()
    # -999 is gone: it would lie far below the mean of any feature.
    assert features.min() > -10
    assert not (tmp_path / "nothing").exists()


def test_embedded_and_official_file_agree(data_root: Path, tmp_path: Path) -> None:
    (tmp_path / "higgs-tautau").symlink_to(data_root / "higgs-tautau")
    official = opened("atlas-higgs-2014", tmp_path)
    embedded = opened("atlas-higgs-embedded")
    for one, other in zip(everything(official.test), everything(embedded.test), strict=True):
        torch.testing.assert_close(one, other)


def test_an_event_store_on_disk(tmp_path: Path) -> None:
    table = toy_events(1000)
    plan = Plan((*(f"x{number}" for number in range(25)), "label"))
    with EventStoreWriter(store_folder(tmp_path, "htautau"), plan) as writer:
        for part in np.array_split(table, 3):
            writer.append(part)
        writer.finish()
    data = opened("htautau", tmp_path, preprocessing="standard", batch_size=64, validation=75)
    # The last eighth is the test set.
    assert [len(everything(part)[1]) for part in (data.train, data.validation, data.test)] == [
        800,
        75,
        125,
    ]
    features, _ = everything(data.test)
    mean, deviation = table[:800, :25].mean(0), table[:800, :25].std(0)
    expected = torch.from_numpy((table[875:, :25] - mean) / deviation)
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)


def test_events_of_one_class_are_refused(tmp_path: Path) -> None:
    table = toy_events(1000)
    table = table[np.argsort(table[:, -1])]
    plan = Plan((*(f"x{number}" for number in range(25)), "label"))
    with EventStoreWriter(store_folder(tmp_path, "htautau"), plan) as writer:
        writer.append(table)
        writer.finish()
    with pytest.raises(DataError, match="one class only"):
        opened("htautau", tmp_path, limit=100)


def test_ranks_together_see_what_one_process_sees() -> None:
    for name in ("toy-images", "toy-events"):
        whole, _ = everything(opened(name).train, 3)
        ranks = [opened(name, rank=rank, world_size=2).train.epoch(3) for rank in range(2)]
        joined = [torch.cat([part[0] for part in step]) for step in zip(*ranks, strict=True)]
        assert torch.equal(torch.cat(joined), whole)


def test_a_share_of_the_rows_that_are_there_is_held_out() -> None:
    data = opened("toy-events", validation=0.1)
    assert len(everything(data.validation)[0]) == 320
    data = opened("toy-events", validation=0.1, limit=500)
    assert (len(everything(data.train)[0]), len(everything(data.validation)[0])) == (500, 50)
    # The same rows whatever the limit leaves to train on: the last ones.
    last = everything(opened("toy-events", validation=50).validation)[1]
    assert torch.equal(everything(data.validation)[1], last)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar11", {}, "unknown data set 'cifar11', did you mean 'cifar10'"),
        (
            "toy-images",
            {"preprocessing": "physics"},
            "must be one of mean-image, standard, gcn, gcn-zca",
        ),
        ("toy-events", {"preprocessing": "mean-image"}, "must be one of physics, standard"),
        ("toy-events", {"augment": True}, "augment is for images"),
        ("toy-images", {"batch_size": 0}, "batch_size must be at least 1"),
        ("toy-images", {"validation": 2000}, r"validation must lie in 0\.\.1999"),
        ("toy-images", {"validation": -1}, "validation"),
        ("toy-images", {"limit": 0}, "limit must be at least 1"),
        ("toy-images", {"rank": 2, "world_size": 2}, "rank"),
        ("toy-images", {"limit": 201, "world_size": 2}, "fewer than world_size"),
    ],
)
def test_arguments_that_do_not_fit(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        opened(name, **options)


def test_all_names_are_known() -> None:
    expected = {"cifar10", "cifar100", "atlas-higgs-2014", "atlas-higgs-embedded", "uci-higgs"}
    assert expected | {"uci-susy", "htautau", "toy-images", "toy-events"} == set(DATA_SETS)
