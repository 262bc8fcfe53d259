from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import Server, Tiny, tar_bytes

from torchapl.paper.data import DataError, fetch
from torchapl.paper.data.catalogue import Download

CONTENT = bytes(range(256)) * 5000


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_PAUSE", 0.0)


def item(server: Server, content: bytes = CONTENT) -> Download:
    server.content = content
    return Download(server.url, "file.bin", len(content), hashlib.md5(content).hexdigest())


def test_downloads_and_reports(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch.download(item(server), tmp_path / "new", lambda *now: seen.append(now))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not (tmp_path / "new" / "file.bin.part").exists()


def test_resumes_where_the_connection_broke(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 200_000, None]
    path = fetch.download(item(server), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_resumes_after_a_crash(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:12345])
    assert fetch.download(item(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=12345-"]


def test_begins_again_when_the_server_ignores_ranges(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [300_000, None]
    assert fetch.download(item(server), tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_complete_already_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    unsized = replace(item(server), size=None)
    assert fetch.download(unsized, tmp_path).read_bytes() == CONTENT


def test_corrupt_bytes_are_never_kept(server: Server, tmp_path: Path) -> None:
    wanted = item(server)
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(DataError, match="damaged: its md5 is"):
        fetch.download(wanted, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".file.bin.lock"]
    server.content = CONTENT
    assert fetch.download(wanted, tmp_path).read_bytes() == CONTENT


def test_a_shorter_file_is_refused(server: Server, tmp_path: Path) -> None:
    wanted = item(server)
    server.content = CONTENT[:-7]
    with pytest.raises(DataError, match=r"has \d+ bytes, \d+ were published|cannot download"):
        fetch.download(wanted, tmp_path)
    assert not (tmp_path / "file.bin").exists()


@pytest.mark.parametrize("announced", [True, False])
def test_a_longer_file_is_not_taken(server: Server, tmp_path: Path, announced: bool) -> None:
    wanted = item(server)
    server.content = CONTENT * 3
    server.length = None if announced else ""
    with pytest.raises(DataError, match="is larger than the 1280000 bytes that were published"):
        fetch.download(wanted, tmp_path)
    assert not (tmp_path / "file.bin").exists()
    # Nothing of the wrong file is left to be resumed.
    assert not (tmp_path / "file.bin.part").exists()
    server.content, server.length = CONTENT, None
    assert fetch.download(wanted, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("length", ["many", "-5", "12.5"])
def test_a_length_that_is_no_number(server: Server, tmp_path: Path, length: str) -> None:
    wanted = item(server)
    server.length = length
    with pytest.raises(DataError, match=rf"cannot download .* announced '{length}' bytes"):
        fetch.download(wanted, tmp_path)


def test_a_folder_where_the_part_should_be(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").mkdir()
    with pytest.raises(DataError, match=r"file\.bin\.part should be a file"):
        fetch.download(item(server), tmp_path)


def test_an_existing_wrong_file_is_refused_not_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match="remove it and fetch again"):
        fetch.download(item(server), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == b"mine"


def test_offline_says_which_file_to_put_where(tmp_path: Path) -> None:
    unreachable = Download("http://127.0.0.1:9/file.bin", "file.bin", None, None)
    with pytest.raises(DataError) as caught:
        fetch.download(unreachable, tmp_path)
    assert unreachable.url in str(caught.value)
    assert str(tmp_path / "file.bin") in str(caught.value)


def test_a_missing_page_is_not_tried_again(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match="404"):
        fetch.download(item(server), tmp_path)
    assert len(server.asked) == 1


def test_a_dying_server_ends_in_an_error_and_a_part_to_resume(
    server: Server, tmp_path: Path
) -> None:
    server.cuts = [1000, 0, 0, 0, 0, 0, 0]
    with pytest.raises(DataError, match="broke after 1000"):
        fetch.download(item(server), tmp_path)
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:1000]


def _download(wanted: Download, folder: Path) -> None:
    fetch.download(wanted, folder)


@pytest.mark.slow
def test_two_processes_at_once(server: Server, tmp_path: Path) -> None:
    wanted = item(server)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_download, args=(wanted, tmp_path)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_full_disk(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(fetch.os, "write", full)
        with pytest.raises(DataError, match="No space left on device"):
            fetch.download(item(server), tmp_path)
    assert not (tmp_path / "file.bin").exists()
    assert fetch.download(item(server), tmp_path).read_bytes() == CONTENT


def test_a_file_where_a_folder_should_be(server: Server, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    with pytest.raises(DataError, match="is a file where a folder is needed"):
        fetch.download(item(server), tmp_path / "root" / "deeper")


def test_a_folder_where_the_file_should_be(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").mkdir()
    with pytest.raises(DataError, match="should be a file"):
        fetch.download(item(server), tmp_path)


def test_read_only_folder(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Permissions do not bind root, so the question itself is answered with no.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DataError, match="read-only"):
        fetch.download(item(server), tmp_path)
    assert not server.asked


@pytest.mark.parametrize("kind", ["binary", "python"])
def test_unpacks(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(tiny.archives[kind])
    folder = fetch.unpack(archive, tiny.form(kind), tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == tiny.members[kind]


def _symlink(info: tarfile.TarInfo) -> None:
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


def _hard_link(info: tarfile.TarInfo) -> None:
    info.type, info.linkname, info.size = tarfile.LNKTYPE, "../../outside", 0


def _device(info: tarfile.TarInfo) -> None:
    info.type, info.size = tarfile.CHRTYPE, 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("../escaped.bin", None),
        ("tiny-binary/../../escaped.bin", None),
        ("/tmp/escaped.bin", None),
        ("tiny-binary/one.bin", _symlink),
        ("tiny-binary/one.bin", _hard_link),
        ("tiny-binary/one.bin", _device),
    ],
)
def test_malicious_members_are_refused(
    tiny: Tiny, tmp_path: Path, name: str, change: object
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    archive = root / "archive.tar.gz"
    archive.write_bytes(tar_bytes({name: b"evil"}, change))
    with pytest.raises(DataError, match="refused"):
        fetch.unpack(archive, tiny.form("binary"), root)
    assert not (tmp_path / "escaped.bin").exists()
    assert not (root / "tiny-binary").exists()


@pytest.mark.parametrize("damage", ["truncated", "garbage", "wrong-member", "missing-member"])
def test_damaged_archives_leave_nothing_behind(tiny: Tiny, tmp_path: Path, damage: str) -> None:
    members = {f"tiny-binary/{name}": content for name, content in tiny.members["binary"].items()}
    if damage == "wrong-member":
        members["tiny-binary/two.bin"] = bytes(len(members["tiny-binary/two.bin"]))
    if damage == "missing-member":
        del members["tiny-binary/test.bin"]
    content = tar_bytes(members)
    content = {"truncated": content[: len(content) // 2], "garbage": b"\0" * 999}.get(
        damage, content
    )
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged|missing"):
        fetch.unpack(archive, tiny.form("binary"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".tiny-binary.lock",
        "archive.tar.gz",
    ]
