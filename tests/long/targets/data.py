"""Files of data: archives, images, tables, event stores."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np

from targets import target, written
from torchapl.paper.data.catalogue import DataFile, Download, ImageForm
from torchapl.paper.data.cifar import read_records
from torchapl.paper.data.fetch import unpack
from torchapl.paper.data.files import DataError
from torchapl.paper.data.layouts import Layout
from torchapl.paper.data.readers import read_table
from torchapl.paper.data.shards import Plan, read_shard, write_shard
from torchapl.paper.data.store import INDEX, EventStore
from torchapl.paper.data.toy import toy_events
from torchapl.paper.data.unpickle import read_pickled
from torchapl.paper.data.writer import EventStoreWriter


def pickle_seeds(folder: Path) -> list[bytes]:
    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 3]}
    return [pickle.dumps(batch, protocol=protocol) for protocol in (0, 2, 4)]


@target(DataError, share=14, seeds=pickle_seeds)
def pickles(content: bytes, folder: Path) -> None:
    pixels, labels = read_pickled(content, "labels")
    assert pixels.dtype == np.uint8
    assert all(type(label) is int for label in labels)


@target(DataError, share=4, seeds=lambda _: [bytes(3073), bytes(3074)])
def image_records(content: bytes, folder: Path) -> None:
    read_records(content, 1)


IMAGES = ImageForm(
    "binary",
    Download("", "tiny.tar.gz", None, None),
    "tiny",
    (DataFile("one.bin", 4, hashlib.sha256(b"abcd").hexdigest()),),
    (),
)


def archive_seeds(folder: Path) -> list[bytes]:
    seeds = []
    for name in ("tiny/one.bin", "../one.bin"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"abcd"))
        seeds.append(buffer.getvalue()[:2048])
    return seeds


@target(DataError, share=3, seeds=archive_seeds)
def archives(content: bytes, folder: Path) -> None:
    # Packed here: the fuzzer would not get past a checksum of the packing.
    path = written(folder, "tiny.tar.gz", gzip.compress(content, compresslevel=0))
    unpack(path, IMAGES, folder)
    assert (folder / "tiny" / "one.bin").read_bytes() == b"abcd"
    (folder / "tiny" / "one.bin").unlink()
    (folder / "tiny").rmdir()


LAYOUT = Layout(("mass", "angle"), names_fixed=False)
TEXT = b"label,mass,angle\n1,0.5,2\n0,-1e3,nan\n"


@target(
    DataError, share=1, seeds=lambda _: [TEXT, TEXT.split(b"\n", 1)[1], b'"a b",x,label\n1,2,0']
)
def tables(content: bytes, folder: Path) -> None:
    table = read_table(written(folder, "events.csv", content), LAYOUT)
    assert table.shape[1] == 3
    assert set(table[:, 2].tolist()) <= {0.0, 1.0}


@target(DataError, share=1, seeds=lambda _: [gzip.compress(TEXT), gzip.compress(TEXT, 0)])
def packed_tables(content: bytes, folder: Path) -> None:
    read_table(written(folder, "events.csv.gz", content), LAYOUT)


def array_seeds(folder: Path) -> list[bytes]:
    seeds = []
    for array in (np.ones((2, 3)), np.ones(2, dtype=[("label", "f4"), ("x", "f4"), ("y", "f8")])):
        buffer = io.BytesIO()
        np.save(buffer, array)
        seeds.append(buffer.getvalue())
    return seeds


@target(DataError, share=3, seeds=array_seeds)
def arrays(content: bytes, folder: Path) -> None:
    read_table(written(folder, "events.npy", content), LAYOUT)


PLAN = Plan(("mass", "label"))


def shard_seeds(folder: Path) -> list[bytes]:
    table = np.array([[91, 0], [125, 1]], dtype=np.float32)
    return [write_shard(folder, PLAN, 0, table).read_bytes()]


@target(DataError, share=4, seeds=shard_seeds)
def shards(content: bytes, folder: Path) -> None:
    path = written(folder, "00000-c45d89cd3bf31dc1.parquet", content)
    mass, label = read_shard(path, PLAN.columns)
    assert (mass.tolist(), label.tolist()) == ([91.0, 125.0], [0.0, 1.0])


def index_seeds(folder: Path) -> list[bytes]:
    with EventStoreWriter(folder / "seed.events", PLAN) as writer:
        writer.append(toy_events(20, features=1))
        writer.finish()
    return [(folder / "seed.events" / INDEX).read_bytes()]


@target(DataError, share=10, seeds=index_seeds)
def store_indexes(content: bytes, folder: Path) -> None:
    written(folder, INDEX, content)
    EventStore(folder)
