"""Run as a program: coverage-guided fuzzing of everything that parses, with atheris.

    python tests/long/fuzz.py --inputs 1000000
    python tests/long/fuzz.py --inputs 50000 --target settings

Each target is given bytes and reads them as what its name says; it may refuse them only by the
errors that the program explains. What is accepted must also survive being written and read again,
where there is a way to. Prints a line for each target; anything else that is raised is kept in
``--findings``, one input for each place, and is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import math
import os
import re
import sys
import tarfile
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import atheris
import numpy as np
import torch

# What is followed branch by branch; torch and others would only be slow.
FOLLOWED = ["torchapl.paper", "torchapl.runs", "torchapl.surgery.report"]
# It names every module that it instruments.
with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=FOLLOWED):
    from torchapl.paper.activations import Activation
    from torchapl.paper.config import Experiment, from_dict, override, to_dict
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
    from torchapl.paper.runs import experiment_of
    from torchapl.paper.sweep.jobs import read_results
    from torchapl.paper.train import checkpoint
    from torchapl.runs.curves import Layer, RunCurves, add_curves
    from torchapl.runs.folder import (
        CONFIG,
        CURVES,
        METRICS,
        RESULT,
        RunConfig,
        RunResult,
        read_config,
        read_result,
        write_config,
        write_result,
    )
    from torchapl.runs.records import DamagedError, append_line, read_lines, sealed
    from torchapl.surgery.report import Left, Rewrite, Swap, SwapReport


@dataclass(frozen=True)
class Target:
    """Reads bytes; ``seeds`` are inputs to begin with, ``refusals`` what it may raise."""

    read: Callable[[bytes, Path], None]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[Path], list[bytes]]
    share: int = 1


TARGETS: dict[str, Target] = {}


def target(
    *refusals: type[Exception], seeds: Callable[[Path], list[bytes]], share: int = 1
) -> Callable[[Callable[[bytes, Path], None]], None]:
    def register(read: Callable[[bytes, Path], None]) -> None:
        TARGETS[read.__name__] = Target(read, refusals, seeds, share)

    return register


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def resealed(content: bytes) -> bytes:
    """Return JSON with the checksum that fits it, so that what comes after the check is met too."""
    try:
        values = json.loads(content)
        values.pop("checksum", None)
        return json.dumps(sealed(values)).encode()
    except (ValueError, AttributeError, RecursionError):
        return content


# Settings and names.

MINE = Experiment("mine", net="nin", activation=Activation.parse("apl:2"))


def text_of(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def are_finite(value: object) -> bool:
    return all(
        math.isfinite(getattr(value, field.name))
        for field in fields(value)  # type: ignore[arg-type]
        if isinstance(getattr(value, field.name), float)
    )


@target(
    ValueError,
    share=20,
    seeds=lambda _: [
        b"optim.lr=0.02",
        b"optim.factors=((60000, 1.0), (80000, 0.1))",
        b"activation=apl:5:channel:leaky",
        b"activation.num_hinges=3",
        b"data.validation=0.1",
        b"data.limit=none",
        b"width=0.5",
        b"data.augment=true",
    ],
)
def settings(content: bytes, folder: Path) -> None:
    changed = override(MINE, text_of(content))
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    assert are_finite(changed)
    assert are_finite(changed.optim)
    assert are_finite(changed.data)


@target(
    ValueError,
    share=20,
    seeds=lambda _: [b"relu", b"leaky:0.05", b"apl:2:channel:leaky", b"apl:1:frozen:bound=0.5"],
)
def activations(content: bytes, folder: Path) -> None:
    activation = Activation.parse(text_of(content))
    assert Activation.parse(str(activation)) == activation
    assert are_finite(activation)


# Descriptions of swaps.

REPORT = SwapReport(
    (Swap("1", "ReLU", (8,), 1, 8, 128, 0.0, (-1.0, 2.0), aliases=("a",)),),
    (Rewrite("block", (("relu", "act"),), (("flag", True),)),),
    (Left("2", "GELU", "model.py:3", "in place"),),
    1e-3,
    2.0,
)


@target(ValueError, share=10, seeds=lambda _: [REPORT.to_json().encode()])
def swap_descriptions(content: bytes, folder: Path) -> None:
    report = SwapReport.from_json(text_of(content))
    # NaN differs from itself.
    assert str(SwapReport.from_json(report.to_json())) == str(report)


# Files of runs.


def result_seeds(folder: Path) -> list[bytes]:
    result = RunResult("atlas-dnn-relu", "smoke", 0, "finished", {"test_error": 24.5}, ("width=1",))
    write_result(folder, result)
    return [(folder / RESULT).read_bytes()]


@target(DamagedError, share=8, seeds=result_seeds)
def results(content: bytes, folder: Path) -> None:
    for text in (content, resealed(content)):
        written(folder, RESULT, text)
        read_result(folder)


def config_seeds(folder: Path) -> list[bytes]:
    write_config(folder, RunConfig(to_dict(MINE), "smoke", 0, ("width=1",), {"threads": 1}))
    return [(folder / CONFIG).read_bytes()]


@target(DamagedError, share=8, seeds=config_seeds)
def configs(content: bytes, folder: Path) -> None:
    for text in (content, resealed(content)):
        written(folder, CONFIG, text)
        config = read_config(folder)
        if config is not None:
            _ = config.name, config.data
            experiment_of(folder, config)


def metrics_seeds(folder: Path) -> list[bytes]:
    path, after = folder / METRICS, ""
    for epoch in (1, 2):
        _, after = append_line(path, {"epoch": epoch, "train_loss": 0.5}, after)
    return [path.read_bytes()]


@target(DamagedError, share=8, seeds=metrics_seeds)
def metrics(content: bytes, folder: Path) -> None:
    read_lines(written(folder, METRICS, content))


@target(DamagedError, share=4, seeds=result_seeds)
def stored_results(content: bytes, folder: Path) -> None:
    read_results(written(folder, "results.jsonl", content))


def curve_seeds(folder: Path) -> list[bytes]:
    layer = Layer("act", torch.full((1, 2), -0.25), torch.zeros(1, 2))
    for moment in ("initial", "learned"):
        add_curves(folder, moment, {"act": layer})
    content = (folder / CURVES).read_bytes()
    return [content, re.sub(rb'"__metadata__":\{[^}]*\},', b"", content)]


@target(DamagedError, share=4, seeds=curve_seeds)
def curves(content: bytes, folder: Path) -> None:
    written(folder, CURVES, content)
    recorded = RunCurves(folder)
    for layers in recorded.moments.values():
        for layer in layers.values():
            layer.statistics(None)


def checkpoint_seeds(folder: Path) -> list[bytes]:
    path = checkpoint.save(folder, "last", 3, {"a": torch.ones(2)}, {"step": 3}, keep=1)
    return [path.read_bytes()]


@target(DamagedError, share=4, seeds=checkpoint_seeds)
def checkpoints(content: bytes, folder: Path) -> None:
    """A checkpoint that nobody wrote is one that the name's checksum does not fit."""
    written(folder, f"last-000000003.{'0' * 16}.safetensors", content)
    assert checkpoint.load(folder, "last") is None


# Data.


def pickle_seeds(folder: Path) -> list[bytes]:
    import pickle

    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 3]}
    return [pickle.dumps(batch, protocol=protocol) for protocol in (0, 2, 4)]


@target(DataError, share=6, seeds=pickle_seeds)
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


@target(DataError, share=2, seeds=archive_seeds)
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
    DataError, share=2, seeds=lambda _: [TEXT, TEXT.split(b"\n", 1)[1], b'"a b",x,label\n1,2,0']
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


@target(DataError, share=2, seeds=array_seeds)
def arrays(content: bytes, folder: Path) -> None:
    read_table(written(folder, "events.npy", content), LAYOUT)


PLAN = Plan(("mass", "label"))


def shard_seeds(folder: Path) -> list[bytes]:
    table = np.array([[91, 0], [125, 1]], dtype=np.float32)
    return [write_shard(folder, PLAN, 0, table).read_bytes()]


@target(DataError, share=1, seeds=shard_seeds)
def shards(content: bytes, folder: Path) -> None:
    path = written(folder, "00000-c45d89cd3bf31dc1.parquet", content)
    mass, label = read_shard(path, PLAN.columns)
    assert (mass.tolist(), label.tolist()) == ([91.0, 125.0], [0.0, 1.0])


def index_seeds(folder: Path) -> list[bytes]:
    with EventStoreWriter(folder / "seed.events", PLAN) as writer:
        writer.append(toy_events(20, features=1))
        writer.finish()
    return [(folder / "seed.events" / INDEX).read_bytes()]


@target(DataError, share=4, seeds=index_seeds)
def store_indexes(content: bytes, folder: Path) -> None:
    written(folder, INDEX, content)
    EventStore(folder)


def fuzz(name: str, runs: int, findings: Path) -> None:
    """Fuzz one target; ends the process."""
    chosen = TARGETS[name]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        folder, corpus, made = (Path(place, part) for part in ("work", "corpus", "seeds"))
        for part in (folder, corpus, made):
            part.mkdir()
        for number, seed in enumerate(chosen.seeds(made)):
            written(corpus, str(number), seed)
        known: set[str] = set()

        def read(content: bytes) -> None:
            try:
                chosen.read(content, folder)
            except chosen.refusals:
                pass
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                found = f"{name}-{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"
                if found not in known:
                    known.add(found)
                    written(findings, found, content)

        options = [f"-runs={runs}", "-max_len=4096", "-timeout=60", "-rss_limit_mb=4000"]
        options += [f"-artifact_prefix={findings}/{name}-", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], read)
        atheris.Fuzz()


def forked(name: str, runs: int, findings: Path) -> tuple[int, str]:
    """Fuzz one target in a child process, which the fuzzer ends; return its code and report."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 2)
            try:
                fuzz(name, runs, findings)
            finally:
                traceback.print_exc()
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        return code, file.read().decode(errors="replace")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="over all targets")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    args = parser.parse_args(arguments)
    args.findings.mkdir(parents=True, exist_ok=True)
    names = [args.target] if args.target else list(TARGETS)
    whole = sum(TARGETS[name].share for name in names)
    faults = 0
    print("| target | inputs | branches reached | found |\n|---|---|---|---|", flush=True)
    for name in names:
        runs = max(1, args.inputs * TARGETS[name].share // whole)
        code, report = forked(name, runs, args.findings)
        executed = re.search(r"number_of_executed_units: (\d+)", report)
        covered = re.findall(r"cov: (\d+)", report)
        found = sorted(args.findings.glob(f"{name}-*"))
        if executed is None or (code and not found):
            print(report[-2000:], file=sys.stderr)
        counts = f"{executed[1] if executed else 0} | {covered[-1] if covered else '?'}"
        print(f"| {name} | {counts} | {len(found)} |", flush=True)
        for path in found:
            print(f"  {path}", file=sys.stderr)
        faults += len(found) + (executed is None)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
