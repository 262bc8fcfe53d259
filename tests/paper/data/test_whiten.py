from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchapl.paper.data import whiten


@pytest.fixture
def images() -> torch.Tensor:
    smooth = torch.randn(6000, 3, 2, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    noisy = smooth * 40 + torch.randn(6000, 3, 4, 4) * 25 + 128
    return noisy.round().clamp(0, 255).byte()


def test_contrast() -> None:
    images = torch.randint(0, 256, (7, 3, 4, 4), dtype=torch.uint8)
    images[3] = 9
    rows = whiten.normalise_contrast(images)
    torch.testing.assert_close(rows.mean(1), torch.zeros(7), atol=1e-4, rtol=0)
    lengths = torch.full((7,), 55.0)
    lengths[3] = 0
    torch.testing.assert_close(rows.norm(dim=1), lengths)


def test_training_images_become_white(images: torch.Tensor) -> None:
    train, test = whiten.whitened([images[:5000], images[5000:]], "key", None)
    assert test.shape == (1000, 3, 4, 4)
    rows = whiten.normalise_contrast(images[:5000]).double()
    rows = rows - rows.mean(0)
    covariance = rows.T @ rows / 5000
    values, vectors = torch.linalg.eigh(covariance)
    # What (C + 0.1 I)^(-1/2) makes of C, by definition.
    expected = (vectors * (values / (values + 0.1))) @ vectors.T
    flat = train.flatten(1).double()
    torch.testing.assert_close(flat.T @ flat / 5000, expected, atol=1e-4, rtol=0)


def test_the_fit_sees_training_rows_only(images: torch.Tensor) -> None:
    first = whiten.whitened([images[:5000], images[5000:]], "key", None)[0]
    second = whiten.whitened([images[:5000], 255 - images[5000:]], "key", None)[0]
    assert torch.equal(first, second)


def test_cache_is_used_and_a_damaged_one_replaced(
    images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whiten.whitened([images], "key", tmp_path)[0]
    (cached,) = (tmp_path / "whitening").iterdir()
    content = cached.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(whiten, "fit_whitening", lambda images: pytest.fail("the cache was not used"))
        assert torch.equal(whiten.whitened([images], "key", tmp_path)[0], expected)
    for damaged in (content[:-5], content[:100] + b"x" + content[101:], b""):
        cached.write_bytes(damaged)
        assert torch.equal(whiten.whitened([images], "key", tmp_path)[0], expected)
        assert cached.read_bytes() == content
    assert torch.equal(whiten.whitened([images[:99]], "other", tmp_path)[0][:0], expected[:0])
    assert len(list((tmp_path / "whitening").iterdir())) == 2
