from __future__ import annotations

import gc
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from torchapl.paper.data import EventStoreWriter, Plan
from torchapl.paper.data.batches import Slicing
from torchapl.paper.data.events import ArrayRows, EventBatches
from torchapl.paper.data.standardise import Standardiser, fit
from torchapl.paper.data.statistics import Statistics

PLAIN = Standardiser(torch.zeros(2), torch.ones(2), None)


def numbered(rows: int) -> np.ndarray:
    """Rows whose features are their number, its square root, and a weight that must not appear."""
    number = np.arange(rows, dtype=np.float32)
    return np.stack([number, np.sqrt(number), number % 2, np.full(rows, -7)], 1).astype(np.float32)


def batches(
    rows: int, batch: int = 10, seed: int | None = 0, start: int = 0, **options: object
) -> EventBatches:
    settings = {"slicing": Slicing(batch), "block_rows": 8, "window_rows": 32, **options}
    slicing = settings.pop("slicing")
    source = ArrayRows(numbered(start + rows + 5), settings.pop("block_rows"))
    return EventBatches(source, 4, start, rows, slicing, PLAIN, seed, **settings)


def numbers(loader: EventBatches, epoch: int, start: int = 0) -> list[int]:
    return [int(row) for features, _ in loader.epoch(epoch, start) for row in features[:, 0]]


@pytest.mark.parametrize("rows", [1, 9, 10, 31, 32, 33, 100, 257])
@pytest.mark.parametrize("batch", [1, 7, 10, 64, 1000])
def test_every_row_once_an_epoch(rows: int, batch: int) -> None:
    loader = batches(rows, batch, start=3)
    parts = list(loader.epoch(4))
    assert len(parts) == len(loader) == -(-rows // batch)
    assert all(len(labels) == batch for _, labels in parts[:-1])
    assert sorted(numbers(loader, 4)) == list(range(3, 3 + rows))
    for features, labels in parts:
        assert features.shape == (len(labels), 2)
        assert torch.equal(labels, features[:, 0] % 2)


def test_order_depends_on_seed_and_epoch_alone() -> None:
    loader = batches(200)
    assert numbers(loader, 0) == numbers(batches(200), 0)
    assert numbers(loader, 0) != numbers(loader, 1)
    assert numbers(loader, 0) != numbers(batches(200, seed=1), 0)


@pytest.mark.parametrize("batch", [7, 10, 50])
def test_start_skips_exactly(batch: int) -> None:
    loader = batches(203, batch)
    whole = list(loader.epoch(1))
    for start in range(len(loader) + 1):
        rest = list(loader.epoch(1, start))
        assert len(rest) == len(whole) - start
        for mine, wanted in zip(rest, whole[start:], strict=True):
            assert torch.equal(mine[0], wanted[0])
            assert torch.equal(mine[1], wanted[1])


def test_skipped_windows_are_never_read() -> None:
    read: list[int] = []

    class Watched(ArrayRows):
        def read(self, start: int, out: np.ndarray) -> None:
            read.append(start)
            super().read(start, out)

    source = Watched(numbered(320), 8)
    loader = EventBatches(source, 4, 0, 320, Slicing(10), PLAIN, 0, "cpu", 32)
    list(loader.epoch(0, 30))
    # Batches 30 and 31 are rows 300 to 319 of the epoch: the last window alone.
    assert len(read) == 4


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_ranks_share_every_global_batch_without_overlap_or_loss(world_size: int) -> None:
    parts = [batches(207, 10, slicing=Slicing(10, rank, world_size)) for rank in range(world_size)]
    steps = zip(batches(207).epoch(2), *(part.epoch(2) for part in parts), strict=True)
    for (features, labels), *shares in steps:
        assert torch.equal(torch.cat([share for share, _ in shares]), features)
        assert torch.equal(torch.cat([share for _, share in shares]), labels)


def test_evaluation_keeps_the_order() -> None:
    assert numbers(batches(100, seed=None, start=5), 3) == list(range(5, 105))
    assert numbers(batches(100, seed=None), 3, start=9) == list(range(90, 100))


def test_a_table_of_one_window_is_shuffled_completely() -> None:
    """Position and row number are independent: chi-square, 81 degrees of freedom."""
    counts = np.zeros((10, 10))
    for epoch in range(50):
        order = np.array(numbers(batches(200, window_rows=200), epoch))
        np.add.at(counts, (np.arange(200) // 20, order // 20), 1)
    square = ((counts - 100) ** 2 / 100).sum()
    # 99.99 % of fair shuffles stay below 137; the seed is fixed, so this never fails by chance.
    assert square < 137


def test_the_block_shuffle_mixes_a_sorted_table() -> None:
    """The worst case: background first, then signal. Windows stray by 0.5 / sqrt(blocks) or so."""
    rows = 64 * 512
    table = np.zeros((rows, 4), dtype=np.float32)
    table[rows // 2 :, 2] = 1
    source = ArrayRows(table, 64)
    loader = EventBatches(source, 4, 0, rows, Slicing(64 * 64), PLAIN, 0, "cpu", 64 * 64)
    shares = [float(labels.mean()) for _, labels in loader.epoch(0)]
    assert len(shares) == 8
    assert max(abs(share - 0.5) for share in shares) < 4 * 0.5 / np.sqrt(64)


def test_rows_of_a_block_are_spread_over_the_window() -> None:
    order = numbers(batches(320, window_rows=160), 0)
    together = sum(after == before + 1 for before, after in pairwise(order))
    assert together < 12  # 319 neighbours, two of them adjacent by chance in a fair shuffle


def test_batches_outlive_their_window() -> None:
    parts = list(batches(200).epoch(0))
    gc.collect()
    assert sorted(int(row) for features, _ in parts for row in features[:, 0]) == list(range(200))
    assert all(features.is_contiguous() for features, _ in parts)


def test_leaving_an_epoch_early_leaves_no_thread() -> None:
    loader = batches(500).epoch(0)
    next(loader)
    loader.close()
    assert not [thread for thread in threading.enumerate() if "read-ahead" in thread.name]


_THREADS = """
import os, sys
import numpy as np, torch
from torchapl.paper.data.batches import Slicing
from torchapl.paper.data.events import ArrayRows, EventBatches
from torchapl.paper.data.standardise import Standardiser

torch.set_num_threads(3)
torch.ones(1_000_000).mul(2)
before = len(os.listdir("/proc/self/task"))
table = np.zeros((400_000, 27), dtype=np.float32)
scale = Standardiser(torch.zeros(25), torch.ones(25), None)
loader = EventBatches(ArrayRows(table), 27, 0, len(table), Slicing(100), scale, 0).epoch(0)
next(loader)
print(len(os.listdir("/proc/self/task")) - before, torch.get_num_threads())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux shows them")
def test_reading_ahead_takes_one_thread() -> None:
    """More of them than processors would make OpenMP's sleep after each piece of work."""
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "3"]


def test_a_failing_read_reaches_the_training_loop() -> None:
    class Broken(ArrayRows):
        def read(self, start: int, out: np.ndarray) -> None:
            raise OSError("the disk is gone")

    loader = EventBatches(Broken(numbered(50)), 4, 0, 50, Slicing(10), PLAIN, 0)
    with pytest.raises(OSError, match="the disk is gone"):
        next(loader.epoch(0))


def test_from_a_store_and_standardised(tmp_path: Path) -> None:
    table = numbered(1000)
    plan = Plan(("x", "root", "label", "weight"))
    with EventStoreWriter(tmp_path / "a.events", plan) as writer:
        for part in np.array_split(table, 7):
            writer.append(part)
        store = writer.finish()
    fitted = fit(store.statistics(0, 800), store.features, "standard")
    loader = EventBatches(store, 4, 0, 800, Slicing(64), fitted, 0, "cpu", 256)
    features = torch.cat([features for features, _ in loader.epoch(0)]).double()
    torch.testing.assert_close(features.mean(0), torch.zeros(2).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        features.std(0, correction=0), torch.ones(2).double(), atol=1e-5, rtol=0
    )


def test_missing_values_become_the_training_mean() -> None:
    rows = np.array([[-1, 4, 0.2], [3, np.nan, np.nan], [np.nan, 2, 0.4]], dtype=np.float32)
    fitted = fit(Statistics.of(rows), ["eta", "pt", "share"], "physics", missing=True)
    output = fitted.apply(torch.from_numpy(rows), torch.empty(3, 3))
    expected = torch.tensor([[-1.0, 4 / 3, 0.2], [1.0, 1.0, 0.3], [0.0, 2 / 3, 0.4]])
    torch.testing.assert_close(output, expected)


def test_the_physics_rule() -> None:
    rows = np.array(
        [[-2, 10, 0.5, 0, -3, 5], [4, 30, 1.0, 0, -3, 5]], dtype=np.float32
    )  # signed, energy, share, zeros, constant negative, constant positive
    fitted = fit(Statistics.of(rows), list("abcdef"), "physics")
    assert fitted.shift.tolist() == [1, 0, 0, 0, -3, 0]
    torch.testing.assert_close(fitted.scale, torch.tensor([1 / 3, 1 / 20, 1, 1, 1, 1 / 5]))


def test_a_column_without_a_value() -> None:
    rows = np.array([[np.nan, 1], [np.nan, 2]], dtype=np.float32)
    with pytest.raises(ValueError, match="no training row has a value for eta"):
        fit(Statistics.of(rows), ["eta", "pt"], "standard")
    with pytest.raises(ValueError, match="must be one of physics, standard; got 'zca'"):
        fit(Statistics.of(rows), ["eta", "pt"], "zca")


_MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
import torch
from torchapl.paper.data.batches import Slicing
from torchapl.paper.data.convert import convert
from torchapl.paper.data.events import EventBatches
from torchapl.paper.data.standardise import fit

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

folder, rows = Path(sys.argv[1]), int(sys.argv[2])
random = np.random.default_rng(0)
table = np.lib.format.open_memmap(
    folder / "t.npy", mode="w+", dtype=np.float32, shape=(rows, 26)
)
for first in range(0, rows, 65_536):
    piece = random.standard_normal(table[first : first + 65_536].shape, dtype=np.float32)
    piece[:, 0] = piece[:, 0] > 0
    table[first : first + 65_536] = piece
    table.flush()
    table._mmap.madvise(4)
del table
before = peak()
store = convert(folder / "t.npy", "htautau", folder / "t.events")
converted = peak()
scale = fit(store.statistics(), store.features, "physics")
seen = 0
batches = EventBatches(store, 26, 0, rows, Slicing(1000), scale, 0, "cpu", 65_536)
for _, labels in batches.epoch(0):
    seen += len(labels)
print(seen, before, converted, peak())
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """Convert and read 3 million events, 312 MB, within a few windows of 7 MB."""
    rows = 3_000_000
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(tmp_path), str(rows)],
        check=True,
        capture_output=True,
        text=True,
    )
    seen, before, converted, after = map(float, done.stdout.split())
    assert seen == rows
    assert converted - before < 120
    assert after - converted < 80
