"""Turns event tables of any format into stores, and finds or makes that of a named set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from torchapl.paper.data.catalogue import event_file
from torchapl.paper.data.content import EventData
from torchapl.paper.data.files import DataError, check_writable, digest, locked
from torchapl.paper.data.readers import SUFFIXES, read_blocks, stored_columns
from torchapl.paper.data.shards import Plan, Table, rows_of
from torchapl.paper.data.store import EventStore, is_whole, store_folder
from torchapl.paper.data.writer import EventStoreWriter

Report = Callable[[float], None]


def convert(path: Path, name: str, folder: Path, report: Report | None = None) -> EventStore:
    """Read an event table once and write it as a store; an interrupted call is resumed.

    Args:
        path: CSV, CSV.gz, Parquet, HDF5 or NPY file.
        name: Of the set whose layout the table has.
        folder: Of the store, see :func:`store_folder`.
        report: Called with the share of the file that has been read, 0 to 1.
    """
    layout = event_file(name).layout
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    source = {
        "layout": name,
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": digest(path, "sha256"),
    }
    plan = Plan(
        stored_columns(path, layout), layout.label, source, allow_missing=layout.missing is not None
    )
    with EventStoreWriter(folder, plan) as writer:
        row = sum(rows_of(shard) for shard in writer.leading)
        for table, share in _usable(read_blocks(path, layout, skip=row), writer):
            try:
                writer.append(table, row)
            except DataError:
                raise
            except ValueError as error:
                writer.discard()
                raise DataError(f"{path}: {error}") from error
            row += len(table)
            if report is not None:
                report(share)
        return writer.finish()


def _usable(
    blocks: Iterator[tuple[Table, float]], writer: EventStoreWriter
) -> Iterator[tuple[Table, float]]:
    """Pass tables on; when the file turns out to be damaged, what was made of it goes.

    It would be in the way of a better copy, and the same file would fail again.
    """
    try:
        yield from blocks
    except DataError:
        writer.discard()
        raise


def find_file(name: str, root: Path) -> Path | None:
    """Return the event table of a named set below the root, if there is one."""
    known = event_file(name)
    published = known.download.name if known.download is not None else ""
    for pattern in known.files:
        # The published file before a sample of it.
        for path in sorted(root.glob(pattern), key=lambda path: (path.name != published, path)):
            if path.is_file() and path.name.lower().endswith(SUFFIXES):
                return path
    return None


def make_store(name: str, path: Path, root: Path, report: Report | None = None) -> EventStore:
    """Convert a table to the store of a named set, unless another process has done so meanwhile.

    The processes of a distributed run all open their data at once: one converts, the others wait.
    """
    folder = store_folder(root, name)
    check_writable(root)
    with locked(root / f".{folder.name}.making"):
        if is_whole(folder):
            return EventStore(folder)
        return convert(path, name, folder, report)


def open_store(name: str, root: Path, report: Report | None = None) -> EventStore:
    """Open the store of a named set; make it first where only the published file is there."""
    folder = store_folder(root, name)
    if folder.exists():
        return EventStore(folder)
    path = find_file(name, root)
    if path is not None:
        return make_store(name, path, root, report)
    download = event_file(name).download
    if download is None:
        raise DataError(
            f"{name} is not in {root}: there is no {folder.name}. Run `torchapl data "
            f"simulate {name} --root {root}`"
        )
    raise DataError(
        f"{name} is not in {root}: there is neither {folder.name} nor {download.name}. Run "
        f"`torchapl data fetch {name} --root {root}`, or download {download.url} elsewhere and put "
        f"it into {root}"
    )


def load_events(name: str, root: Path) -> EventData:
    """Return the events of a named set below the root."""
    store, layout = open_store(name, root), event_file(name).layout
    training, test = layout.split(store.rows)
    missing = layout.missing is not None
    return EventData(store, store.features, len(store.columns), training, test, missing)
