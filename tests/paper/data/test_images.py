from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torchapl.paper.data.augment import Cropper, Draws
from torchapl.paper.data.batches import Slicing, generator
from torchapl.paper.data.images import ImageBatches
from torchapl.paper.data.preprocess import Affine, mean_image, per_channel

IDENTITY = Affine(torch.zeros(1))


def numbered(rows: int, *, batch: int = 4, seed: int | None = 3, **options: object) -> ImageBatches:
    images = torch.randint(0, 256, (rows, 3, 6, 5), dtype=torch.uint8)
    slicing = options.pop("slicing", Slicing(batch))
    return ImageBatches(images, torch.arange(rows), slicing, IDENTITY, seed, **options)


def labels_of(batches: ImageBatches, epoch: int, start: int = 0) -> list[int]:
    return torch.cat([labels for _, labels in batches.epoch(epoch, start)]).tolist()


def test_every_row_once_an_epoch_in_another_order_each_time() -> None:
    batches = numbered(11)
    first, second = labels_of(batches, 0), labels_of(batches, 1)
    assert sorted(first) == sorted(second) == list(range(11))
    assert first != second != list(range(11))
    assert first == labels_of(batches, 0)
    assert [len(labels) for _, labels in batches.epoch(0)] == [4, 4, 3]
    assert len(batches) == 3


def test_seed_and_epoch_do_not_mix() -> None:
    draws = {
        torch.rand(1, generator=generator(seed, epoch)).item()
        for seed in range(9)
        for epoch in range(9)
    }
    assert len(draws) == 81


@pytest.mark.parametrize("start", [0, 1, 4, 5])
def test_start_skips_exactly(start: int) -> None:
    batches = numbered(18, augment=True)
    expected = list(batches.epoch(2))[start:]
    actual = list(batches.epoch(2, start))
    assert len(actual) == len(expected) == 5 - start
    for (images, labels), (wanted_images, wanted_labels) in zip(actual, expected, strict=True):
        assert torch.equal(images, wanted_images)
        assert torch.equal(labels, wanted_labels)


@pytest.mark.parametrize("start", [-1, 6])
def test_start_outside_the_epoch(start: int) -> None:
    with pytest.raises(ValueError, match=r"start must lie in 0\.\.5"):
        next(numbered(18).epoch(0, start))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_share_every_global_batch_without_overlap_or_loss(world_size: int) -> None:
    torch.manual_seed(1)
    whole = numbered(22, batch=8, augment=True)
    parts = [
        ImageBatches(
            whole.images, whole.labels, Slicing(8, rank, world_size), IDENTITY, 3, augment=True
        )
        for rank in range(world_size)
    ]
    steps = zip(whole.epoch(1), *(part.epoch(1) for part in parts), strict=True)
    for (images, labels), *shares in steps:
        assert torch.equal(torch.cat([share for share, _ in shares]), images)
        assert torch.equal(torch.cat([share for _, share in shares]), labels)
        sizes = [len(share) for _, share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_evaluation_keeps_order_and_the_last_part() -> None:
    batches = numbered(10, seed=None)
    assert labels_of(batches, 0) == labels_of(batches, 5) == list(range(10))
    assert labels_of(batches, 0, start=2) == [8, 9]


def test_a_rank_without_a_row_is_refused() -> None:
    Slicing(4, 0, 3).check_training(11)
    with pytest.raises(ValueError, match="end in a batch of 1, fewer than world_size=2"):
        Slicing(4, 0, 2).check_training(9)


@pytest.mark.parametrize(
    ("arguments", "message"), [((0,), "batch_size"), ((4, 2, 2), "rank"), ((4, -1, 2), "rank")]
)
def test_impossible_slicing(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Slicing(*arguments)


@pytest.mark.parametrize("shape", [(5, 3, 8, 8), (2, 1, 7, 3), (1, 4, 1, 1)])
@pytest.mark.parametrize("preprocessing", ["none", "mean-image", "standard"])
@pytest.mark.parametrize("padding", [4, 8])
def test_crops_equal_the_plain_definition(
    shape: tuple[int, ...], preprocessing: str, padding: int
) -> None:
    """Preprocess, mirror, pad with zeros, crop: an image at a time."""
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    fits = {"none": None, "mean-image": mean_image(images), "standard": per_channel(images)}
    preprocess = fits[preprocessing]
    rows = torch.randint(0, len(images), (20,))
    draws = Draws.sample(20, generator("test"), padding)
    source = images.float() if preprocess is None else images
    actual = Cropper(source, preprocess, padding)(rows, draws)
    assert actual.shape == (20, *shape[1:])
    for number, row in enumerate(rows):
        top, left = int(draws.top[number]), int(draws.left[number])
        image = images[row].float() if preprocess is None else preprocess(images[row])
        padded = F.pad(image.flip(-1) if draws.mirrored[number] else image, (padding,) * 4)
        expected = padded[:, top : top + shape[2], left : left + shape[3]]
        torch.testing.assert_close(actual[number], expected, atol=1e-5, rtol=1e-5)


def test_a_crop_needs_a_border() -> None:
    with pytest.raises(ValueError, match="padding must be at least 1 pixel, got 0"):
        Cropper(torch.zeros(1, 1, 2, 2), None, 0)


def test_draws_cover_all_choices_evenly() -> None:
    draws = Draws.sample(81_000, generator("cover"))
    counts = torch.bincount(draws.top * 9 + draws.left, minlength=81)
    # 1000 expected each; 5 standard deviations.
    assert counts.min() > 840
    assert counts.max() < 1160
    assert abs(int(draws.mirrored.sum()) - 40_500) < 720


def test_the_border_is_zero_after_the_mean_is_subtracted() -> None:
    """Not minus the mean, as padding the bytes would give."""
    images = torch.full((1, 3, 6, 5), 200, dtype=torch.uint8)
    batches = ImageBatches(
        images, torch.zeros(1).long(), Slicing(1), Affine(torch.full((3, 6, 5), 150.0)), 0, True
    )
    values = torch.cat([next(batches.epoch(epoch))[0] for epoch in range(20)])
    assert set(values.unique().tolist()) == {0.0, 50.0}


def test_channels_last() -> None:
    images, _ = next(numbered(8, channels_last=True).epoch(0))
    assert images.is_contiguous(memory_format=torch.channels_last)
    plain, _ = next(numbered(8).epoch(0))
    assert plain.is_contiguous()


def test_mean_image_is_that_of_the_training_rows() -> None:
    images = torch.randint(0, 256, (5000, 3, 4, 4), dtype=torch.uint8)
    fitted = mean_image(images)
    torch.testing.assert_close(fitted.shift, images.double().mean(0).float())
    torch.testing.assert_close(fitted(images[:2]), images[:2].float() - fitted.shift)


def test_per_channel_gives_mean_0_and_deviation_1() -> None:
    images = torch.randint(0, 256, (5000, 3, 4, 4), dtype=torch.uint8)
    images[:, 2] = 7
    output = per_channel(images)(images).double()
    torch.testing.assert_close(output.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    deviation = output.std((0, 2, 3), correction=0)
    torch.testing.assert_close(deviation, torch.tensor([1.0, 1.0, 0.0]).double(), atol=1e-5, rtol=0)
