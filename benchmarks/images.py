"""Throughput of the image batches, as ratios to a DataLoader and a memory copy.

python benchmarks/images.py

Events: benchmarks/formats.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchapl.paper.data.batches import Slicing
from torchapl.paper.data.images import ImageBatches
from torchapl.paper.data.preprocess import mean_image


def median_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeats // 2]


class PerImage(Dataset[tuple[Tensor, Tensor]]):
    """The same preprocessing and augmentation, an image at a time, as DataLoader wants it."""

    def __init__(self, images: Tensor, labels: Tensor, mean: Tensor) -> None:
        self.images, self.labels, self.mean = images, labels, mean

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        image = F.pad(self.images[row].float() - self.mean, (4,) * 4)
        top, left = torch.randint(0, 9, (2,)).tolist()
        image = image[:, top : top + 32, left : left + 32]
        return image.flip(-1) if torch.rand(()) < 0.5 else image, self.labels[row]


def images(batch: int) -> None:
    rows = 50_000
    pixels = torch.randint(0, 256, (rows, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (rows,))
    fitted = mean_image(pixels)
    ours = ImageBatches(pixels, labels, Slicing(batch), fitted, seed=0, augment=True)

    def epoch() -> None:
        for _ in ours.epoch(0):
            pass

    source, target = torch.rand(batch, 3, 32, 32), torch.empty(batch, 3, 32, 32)

    def copy() -> None:
        for _ in range(rows // batch):
            target.copy_(source)

    few = 5_000
    dataset = PerImage(pixels[:few], labels[:few], fitted.shift)

    def loader(workers: int) -> Callable[[], None]:
        def run() -> None:
            for _ in DataLoader(dataset, batch, shuffle=True, num_workers=workers):
                pass

        return run

    own = rows / median_seconds(epoch)
    memory = rows / median_seconds(copy)
    print(f"threads {torch.get_num_threads()}, batch {batch}, torch {torch.__version__}")
    print(f"{'resident batches':28}{own:12,.0f} images/s")
    print(f"{'copy of the float32 batches':28}{memory:12,.0f} images/s{own / memory:9.2f} of it")
    for workers in (0, 2):
        rival = few / median_seconds(loader(workers), 3)
        name = f"DataLoader, {workers} workers"
        print(f"{name:28}{rival:12,.0f} images/s{own / rival:9.1f} x it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=100)
    images(parser.parse_args().batch)


if __name__ == "__main__":
    main()
