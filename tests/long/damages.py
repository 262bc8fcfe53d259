"""Damage to every kind of file that the program writes or reads, and the command repeated."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from outcomes import Table, answer_of, outcome_of, toy

sys.path.insert(0, str(Path(__file__).parents[1] / "paper" / "data"))

import tiny

from torchapl.paper.data.catalogue import DataFile, Download, ImageForm, ImageSet
from torchapl.paper.data.cifar import load_set
from torchapl.paper.data.fetch import unpack
from torchapl.paper.data.layouts import Layout
from torchapl.paper.data.readers import read_table
from torchapl.paper.data.sets.htautau import LAYOUT
from torchapl.paper.data.shards import Plan
from torchapl.paper.data.store import store_folder
from torchapl.paper.data.toy import toy_events
from torchapl.paper.data.writer import EventStoreWriter
from torchapl.paper.report.payload import build_payload
from torchapl.paper.sweep.jobs import read_results, write_results
from torchapl.paper.train import InterruptedRunError, train
from torchapl.runs.folder import CONFIG, CURVES, INPUTS, METRICS, RESULT, SCORES

SHOWN = (CONFIG, RESULT, METRICS, CURVES, INPUTS, SCORES)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])


def scramble(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.randrange(2000)))


def zero(path: Path, chance: random.Random) -> None:
    """Leave a hole where a block was, as some file systems do after a crash."""
    content = bytearray(path.read_bytes())
    start = chance.randrange(len(content) + 1)
    length = min(chance.choice((16, 512, 4096)), len(content) - start)
    content[start : start + length] = bytes(length)
    path.write_bytes(content)


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


def become_folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (flip, flip, cut, scramble, zero, remove, become_folder)


class Case:
    """A folder with files, and a command that reads them.

    Args:
        name: Of the kind.
        source: The folder, whole; it is copied for every damage.
        command: Given the copy, says how it ended.
    """

    def __init__(self, name: str, source: Path, command: Callable[[Path], str | None]) -> None:
        self.name, self.source, self.command = name, source, command

    def damaged(self, scratch: Path, chance: random.Random, table: Table) -> None:
        folder = shutil.copytree(self.source, scratch / "run" / "case")
        path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        kind = f"{self.name}: {_kind_of(path)}"
        before = path.read_bytes()
        chance.choice(DAMAGES)(path, chance)
        if path.is_file() and path.read_bytes() == before:
            outcome: str | None = "not damaged"
        else:
            outcome, told = answer_of(partial(self.command, folder), str(folder))
            if outcome is None:
                outcome = "SILENT DIFFERENCE" if not told else "left out, told"
            elif outcome in ("identical", "goes on") and told:
                outcome += ", told"
            elif outcome == "goes on":
                outcome = "SILENT DIFFERENCE"
        table[kind, str(outcome)] += 1
        shutil.rmtree(scratch / "run")


def _kind_of(path: Path) -> str:
    if path.name.startswith(("last-", "best-")):
        return path.name.split("-")[0]
    return "shard" if path.suffix == ".parquet" else path.name


def run_cases(root: Path) -> list[Case]:
    """Return a run that was stopped and is trained on, and a finished one that is reported."""
    whole, begun = root / "whole", root / "begun"
    train(toy.TOY, 0, whole, device="cpu")
    with contextlib.suppress(InterruptedRunError):
        train(toy.TOY, 0, begun, device="cpu", reporter=toy.StopAt(25))
    expected = _comparable(build_payload(whole))

    def train_again(folder: Path) -> str:
        # Where curves are lost, all numbers are as they were, which the warnings decide.
        train(toy.TOY, 0, folder, device="cpu")
        return outcome_of(whole, folder, ["curves lost"]).replace(", told", "")

    def report(folder: Path) -> str:
        if _comparable(build_payload(folder)) == expected:
            return "identical"
        # Without a file the page has one section less, says that the run is not finished, or
        # (without config.json) does not know the data set's name.
        missing = any(not (folder / name).exists() for name in SHOWN)
        return "shown without it" if missing else "SILENT DIFFERENCE"

    return [Case("unfinished", begun, train_again), Case("finished", whole, report)]


def _comparable(payload: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in payload.items() if key not in ("made", "title")}


def results_case(root: Path) -> Case:
    """Return a file of stored results, of which tables are made."""
    for seed in range(3):
        train(replace(toy.TOY, epochs=1), seed, root / "runs" / str(seed), device="cpu")
    expected = read_results(root / "runs")
    (root / "stored").mkdir()
    write_results(expected, root / "stored" / "results.jsonl")
    numbers = {job: run.metrics for job, run in expected.items()}

    def read(folder: Path) -> str | None:
        found = {job: run.metrics for job, run in read_results(folder / "results.jsonl").items()}
        if found == numbers:
            return "identical"
        if not found and not (folder / "results.jsonl").is_file():
            return "shown without it"
        changed = any(numbers.get(job) != metrics for job, metrics in found.items())
        return "SILENT DIFFERENCE" if changed else None

    return Case("stored results", root / "stored", read)


def store_case(root: Path) -> Case:
    """Return an event store, on which a network is trained."""
    events = toy_events(900, features=len(LAYOUT.features))
    with EventStoreWriter(store_folder(root / "data", "htautau"), Plan(LAYOUT.columns)) as writer:
        writer.append(events)
        writer.finish()
    experiment = replace(
        toy.TOY, epochs=1, data=replace(toy.TOY.data, name="htautau", limit=300, validation=50)
    )
    train(experiment, 0, root / "trained", device="cpu", data_root=root / "data")

    def train_on(data: Path) -> str:
        run = data.parent / "trained"
        train(experiment, 0, run, device="cpu", data_root=data)
        return outcome_of(root / "trained", run, [])

    return Case("event store", root / "data", train_on)


def csv_case(root: Path) -> Case:
    """Return a packed table as published, which is read to make a store of it."""
    layout = Layout(("mass", "angle"), rows=400)
    events = toy_events(400, features=2)
    lines = [",".join(("label", *layout.features))]
    lines += [f"{row[2]:.0f},{row[0]:.6f},{row[1]:.6f}" for row in events]
    (root / "table").mkdir()
    path = root / "table" / "events.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    expected = read_table(path, layout)

    def read(folder: Path) -> str:
        found = read_table(folder / path.name, layout)
        return "identical" if np.array_equal(found, expected) else "SILENT DIFFERENCE"

    return Case("table", root / "table", read)


def image_cases(root: Path) -> list[Case]:
    """Return both published forms of a small image set, unpacked and as archives."""
    random_ = np.random.default_rng(5)
    pixels = random_.integers(0, 256, (6, 3072), dtype=np.uint8)
    labels = random_.integers(0, 4, 6).astype(np.uint8)
    records = np.concatenate([labels[:, None], pixels], axis=1)
    contents = {
        "binary": {
            "one.bin": records[:4].tobytes(),
            "test.bin": records[4:].tobytes(),
        },
        "python": {
            "one": tiny.pickled(pixels[:4], labels[:4].tolist()),
            "test": tiny.pickled(pixels[4:], labels[4:].tolist()),
        },
    }
    cases = []
    for kind, members in contents.items():
        folder = f"tiny-{kind}"
        archive = tiny.tar_bytes({f"{folder}/{name}": data for name, data in members.items()})
        files = [
            DataFile(name, len(data), hashlib.sha256(data).hexdigest())
            for name, data in members.items()
        ]
        download = Download("", f"{folder}.tar.gz", len(archive), None)
        form = ImageForm(kind, download, folder, tuple(files[:1]), tuple(files[1:]))  # type: ignore[arg-type]
        images = ImageSet(4, 1, "labels", (form,))
        unpacked = root / f"unpacked-{kind}" / folder
        unpacked.mkdir(parents=True)
        for name, data in members.items():
            (unpacked / name).write_bytes(data)
        packed = root / f"packed-{kind}"
        packed.mkdir()
        (packed / download.name).write_bytes(archive)
        expected = load_set(images, "tiny", unpacked.parent)

        def load(place: Path, images=images, expected=expected) -> str:  # type: ignore[no-untyped-def]
            found = load_set(images, "tiny", place)
            same = all(
                torch.equal(getattr(getattr(found, split), name), getattr(whole, name))
                for split, whole in (("train", expected.train), ("test", expected.test))
                for name in ("pixels", "labels")
            )
            return "identical" if same else "SILENT DIFFERENCE"

        def fetch(place: Path, form=form, load=load) -> str:  # type: ignore[no-untyped-def]
            unpack(place / form.archive.name, form, place)
            return str(load(place))

        cases.append(Case(f"images, {kind}", unpacked.parent, load))
        cases.append(Case("archive", packed, fetch))
    return cases


def damage_files(root: Path, count: int, chance: random.Random, table: Table) -> None:
    """Damage files of all kinds, ``count`` times altogether."""
    makers: tuple[Callable[[Path], Case | list[Case]], ...] = (
        run_cases,
        results_case,
        store_case,
        csv_case,
        image_cases,
    )
    cases: list[Case] = []
    for maker in makers:
        folder = root / maker.__name__
        folder.mkdir()
        made = maker(folder)
        cases += made if isinstance(made, list) else [made]
    for number in range(count):
        cases[number % len(cases)].damaged(root, chance, table)
        if number % 100 == 99:
            print(f"damages: {number + 1} of {count}", file=sys.stderr)
