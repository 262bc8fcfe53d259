from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

# A shell that starts the tests in the background makes them ignore SIGINT, and what they start too;
# some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def nan_filled_outputs() -> Iterator[None]:
    """Fill memory that torch allocates with NaN, so that an element nobody writes shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def past() -> Iterator[Callable[[bool], None]]:
    """Yield what lets maps of any size, or none, be written past the caches."""
    from torchapl.ops import _C

    before = _C.past_from()
    yield lambda wanted: _C.set_past_from(0 if wanted else 2**62)
    _C.set_past_from(before)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder with the official files of the data sets; skip where there is none."""
    root = os.environ.get("TORCHAPL_DATA")
    if not root:
        pytest.skip("real data: set TORCHAPL_DATA to a folder with cifar-10-batches-bin and so on")
    return Path(root)
