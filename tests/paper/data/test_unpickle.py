from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny import pickled

from torchapl.paper.data import DataError
from torchapl.paper.data.unpickle import read_pickled

PIXELS = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_reads_what_numpy_wrote(protocol: int) -> None:
    content = pickle.dumps({b"data": PIXELS, b"labels": [3, 1]}, protocol=protocol)
    if protocol > 2:
        # Newer protocols hold the array's bytes as they are, so nothing but the three names occurs.
        pixels, labels = read_pickled(content, "labels")
        assert np.array_equal(pixels, PIXELS)
        assert labels == [3, 1]
    else:
        # Python 3 writes bytes at protocol 2 through a codec call, which no official file contains.
        with pytest.raises(DataError, match=r"_codecs\.encode"):
            read_pickled(content, "labels")


def test_reads_an_official_looking_file() -> None:
    """The opcodes of the published files, which Python 2 wrote: strings instead of codec calls."""
    raw = PIXELS[:1].tobytes()
    content = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + raw
        + b"tb"
        b"U\x06labels]K\x07au."
    )
    pixels, labels = read_pickled(content, "labels")
    assert pixels.tobytes() == raw
    assert labels == [7]


class _Evil:
    def __init__(self, call: object, *arguments: object) -> None:
        self.call = call, arguments

    def __reduce__(self) -> object:
        return self.call


@pytest.mark.parametrize("where", ["data", "labels", "elsewhere"])
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, where: str) -> None:
    victim = tmp_path / "victim"
    batch = {b"data": PIXELS, b"labels": [0, 0], where.encode(): _Evil(os.mkdir, str(victim))}
    with pytest.raises(DataError, match=r"refused: the pickle asks for .*mkdir"):
        read_pickled(pickle.dumps(batch, protocol=4), "labels")
    assert not victim.exists()


@pytest.mark.parametrize("call", [eval, getattr, np.load, np.frombuffer])
def test_not_even_builtins_or_numpy_functions_are_reachable(call: object) -> None:
    with pytest.raises(DataError, match="refused"):
        read_pickled(pickle.dumps({b"data": _Evil(call, "1")}, protocol=4), "labels")


@pytest.mark.parametrize("content", [b"]r\n\t\n\x7f.", b"]p999999999\n.", b"]q\xff."])
def test_a_few_bytes_do_not_ask_for_all_memory(content: bytes) -> None:
    """Found by the fuzzer: the unpickler makes room for as many objects as a number says."""
    with pytest.raises(DataError, match=r"refused: the pickle of .* bytes numbers an object"):
        read_pickled(content, "labels")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickled(PIXELS, [1, 2])[:100],
        pickle.dumps([1, 2]),
        pickle.dumps({b"labels": [1]}),
        pickle.dumps({b"data": PIXELS, b"labels": ["a"]}, protocol=4),
        pickle.dumps({b"data": PIXELS.astype(np.float32), b"labels": [1]}, protocol=4),
        pickle.dumps({b"data": PIXELS[:, :5].copy(), b"labels": [1]}, protocol=4),
        pickle.dumps({b"data": np.array([None, 1]), b"labels": [1]}, protocol=4),
    ],
    ids=["empty", "text", "cut", "list", "no data", "text labels", "floats", "narrow", "objects"],
)
def test_anything_else_is_a_clear_error(content: bytes) -> None:
    with pytest.raises(DataError):
        read_pickled(content, "labels")
