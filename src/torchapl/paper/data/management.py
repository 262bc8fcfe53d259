"""What the command ``torchapl data`` does: fetch, verify and describe sets by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from torchapl.paper.data import cifar, fetch
from torchapl.paper.data.catalogue import DATA_SETS, EventSet, ImageForm, ImageSet, image_files
from torchapl.paper.data.convert import find_file, make_store, open_store
from torchapl.paper.data.files import DataError, check_writable, digest, make_folder
from torchapl.paper.data.layouts import Layout
from torchapl.paper.data.sets import atlas
from torchapl.paper.data.store import INDEX, EventStore, is_whole, store_folder

# Called with a task, and how much of how much of it is done.
Report = Callable[[str, float, float | None], None]


def fetch_set(
    name: str,
    root: Path,
    *,
    form: str | None = None,
    file: Path | None = None,
    report: Report = lambda task, done, total: None,
) -> Path:
    """Make a set usable below ``root``; return where it is.

    Args:
        name: One of ``DATA_SETS``.
        root: Data folder.
        form: Of image sets: ``"binary"`` or ``"python"``; by default that of ``file`` or of what is
            there already, else binary.
        file: Take this file instead of downloading: an image archive, or an event table as CSV,
            CSV.gz, Parquet, HDF5 or NPY.
        report: Called as things progress.
    """
    files = DATA_SETS.get(name).files
    if files is None:
        raise ValueError(f"{name} needs no files, there is nothing to fetch")
    make_folder(root)
    if isinstance(files, ImageSet):
        return _fetch_images(name, root, form, file, report)
    folder = store_folder(root, name)
    if is_whole(folder):
        if file is not None:
            _check_source(EventStore(folder), file)
        return folder
    item = files.download
    path = file or find_file(name, root)
    if path is None:
        if item is None:
            open_store(name, root)  # says how to make it
            return folder
        path = fetch.download(item, root, lambda done, total: report(item.name, done, total))
    task = f"{path.name} -> store"
    make_store(name, path, root, lambda share: report(task, share, 1))
    return folder


def _check_source(store: EventStore, file: Path) -> None:
    """Refuse a file other than the one that a finished store was made from."""
    if not file.is_file():
        raise DataError(f"{file} is not a file")
    if store.source.get("bytes") != file.stat().st_size:
        made = store.source.get("file", "another source")
        raise DataError(
            f"{store.folder} is there already, made from {made}: remove it to make it from {file}"
        )


def _form_at_hand(name: str, root: Path, file: Path | None) -> ImageForm:
    """Return the form of the archive that was given, or of what is in the folder, else binary."""
    known = image_files(name).forms
    if file is not None:
        size = file.stat().st_size if file.is_file() else None
        return next((form for form in known if form.archive.size == size), known[0])
    for form in known:
        if (root / form.folder).is_dir() or (root / form.archive.name).is_file():
            return form
    return known[0]


def _fetch_images(
    name: str, root: Path, form: str | None, file: Path | None, report: Report
) -> Path:
    forms = {known.kind: known for known in image_files(name).forms}
    if form is not None and form not in forms:
        raise ValueError(f"form must be one of {', '.join(forms)}; got {form!r}")
    chosen = _form_at_hand(name, root, file) if form is None else forms[form]
    folder = root / chosen.folder
    if folder.is_dir():
        try:
            return verify_images(chosen, root)
        except DataError as error:
            raise DataError(f"{error}. Remove {folder} and run the same command again") from error
    if folder.exists():
        raise DataError(f"{folder} is a file where a folder is needed; move it away")
    check_writable(root)
    archive = file or fetch.download(
        chosen.archive, root, lambda done, total: report(chosen.archive.name, done, total)
    )
    fetch.check_file(archive, chosen.archive)
    return fetch.unpack(archive, chosen, root)


def verify_images(form: ImageForm, root: Path) -> Path:
    """Check every file of an image set; return its folder."""
    for file in (*form.train, *form.test):
        cifar.read_checked(root / form.folder / file.name, file)
    return root / form.folder


def verify_set(name: str, root: Path, report: Report = lambda task, done, total: None) -> str:
    """Check every byte of a set; return what was checked, or raise :class:`DataError`."""
    files = DATA_SETS.get(name).files
    if name == "atlas-higgs-embedded":
        with resources.as_file(atlas.EMBEDDED_FILE) as path:
            if digest(path, "sha256") != atlas.EMBEDDED_SHA256:
                raise DataError(f"{path} is damaged: install the package again")
        return "embedded file"
    if files is None:
        return "made in memory, nothing to check"
    if isinstance(files, ImageSet):
        return str(verify_images(cifar.find_form(files, name, root), root))
    where = present(name, root)
    if where is not None and where.is_file():
        raise DataError(
            f"{where} is not converted yet, and has no checksums of its own: "
            f"run `torchapl data fetch {name} --root {root}` first"
        )
    store = open_store(name, root)
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        report(name, done, store.rows)

    store.verify(advance)
    return str(store.folder)


def present(name: str, root: Path) -> Path | None:
    """Return where a set is below the root, if it is there."""
    files = DATA_SETS.get(name).files
    if isinstance(files, ImageSet):
        folders = [root / form.folder for form in files.forms]
        return next((folder for folder in folders if folder.is_dir()), None)
    if isinstance(files, EventSet):
        folder = store_folder(root, name)
        return folder if (folder / INDEX).exists() else find_file(name, root)
    return None


def describe(name: str, root: Path) -> dict[str, Any]:
    """Return what is known of a set, as plain JSON: source, size, whether it is here, columns."""
    known = DATA_SETS.get(name)
    if known.files is None:
        return {"name": name, "about": known.about, "here": "always"}
    where = present(name, root)
    record: dict[str, Any] = {
        "name": name,
        "about": known.about,
        "here": str(where) if where else None,
        "citation": known.citation,
    }
    if isinstance(known.files, ImageSet):
        items = [form.archive for form in known.files.forms]
    else:
        items = [known.files.download] if known.files.download else []
    record["files"] = [
        {"url": item.url, "bytes": item.size, "checksum": item.checksum} for item in items
    ]
    if isinstance(known.files, EventSet) and where is not None and where.is_dir():
        record["store"] = _describe_store(EventStore(where), known.files.layout)
    return record


def _describe_store(store: EventStore, layout: Layout) -> dict[str, Any]:
    statistics = store.statistics()
    train, test = layout.split(store.rows)
    return {
        "rows": store.rows,
        "training_rows": train,
        "test_rows": test,
        "bytes": store.rows * store.row_bytes,
        "checksum": store.checksum,
        "source": store.source,
        "columns": [
            {
                "name": column,
                "missing": int(store.rows - statistics.count[number]),
                "mean": float(statistics.mean[number]),
                "deviation": float(statistics.deviation[number]),
                "minimum": float(statistics.minimum[number]),
                "maximum": float(statistics.maximum[number]),
            }
            for number, column in enumerate(store.columns)
        ],
    }
