from __future__ import annotations

import errno
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from torchapl.runs.atomic import WriteError
from torchapl.runs.records import (
    DamagedError,
    append_line,
    read_json,
    read_lines,
    read_tensors,
    write_json,
    write_tensors,
)

VALUES: dict[str, Any] = {"a": 0.1, "b": [1, None], "c": {"d": float("inf")}, "e": "\u00e9"}


def test_json_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, VALUES)
    assert read_json(path).values == VALUES
    assert read_json(path).is_sealed
    # Layout is nobody's business.
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_json(path).values == VALUES


def test_json_without_a_checksum_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": 1}))
    record = read_json(path)
    assert (record.values, record.is_sealed) == ({"a": 1}, False)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 0.2, "checksum": "0123456789abcdef"}', "does not match its checksum"),
        (b'{"a": 0.2', "is not JSON"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"[1]", "holds list, not an object"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "limit"),
        (b"", "is not JSON"),
    ],
)
def test_other_content_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=f"{path} .*{reason}") as caught:
        read_json(path)
    assert caught.value.path == path


def test_a_folder_in_a_file_s_place_is_named(tmp_path: Path) -> None:
    for read in (read_json, read_lines, read_tensors):
        with pytest.raises(DamagedError, match="cannot be read: Is a directory"):
            read(tmp_path)


def lines_file(path: Path, count: int = 3) -> None:
    after = ""
    for epoch in range(1, count + 1):
        _, after = append_line(path, {"epoch": epoch, "loss": 1 / epoch}, after)


def test_lines_come_back_but_for_one_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert read_lines(path) == []
    lines_file(path)
    assert [line["epoch"] for line in read_lines(path)] == [1, 2, 3]
    path.write_bytes(path.read_bytes()[:-5])
    assert [line["epoch"] for line in read_lines(path)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda lines: [lines[0].replace(b"1.0", b"1.1"), *lines[1:]], 1),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[1], lines[0], lines[2]], 1),
        (lambda lines: [lines[0], b"7\n", lines[2]], 2),
        (lambda lines: [lines[0], b"\xff\n", lines[2]], 2),
        (lambda lines: [*lines[:2], lines[2][:9] + b"\n"], 3),
    ],
)
def test_lines_that_are_not_as_written_are_named(tmp_path: Path, change: Any, number: int) -> None:
    path = tmp_path / "a.jsonl"
    lines_file(path)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(DamagedError, match=f"{path} line {number}: "):
        read_lines(path)


def test_lines_of_older_versions_and_new_ones_after_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"epoch": 1}\n')
    append_line(path, {"epoch": 2}, "")
    assert read_lines(path) == [{"epoch": 1}, {"epoch": 2}]


def test_every_changed_byte_of_tensors_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"x/y": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)}
    write_tensors(path, tensors)
    content = path.read_bytes()
    read = read_tensors(path)
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            read = read_tensors(path)
        except DamagedError:
            continue
        # A blank or the order of names may change; what they say may not.
        assert read.keys() == tensors.keys(), place
        assert all(torch.equal(read[name], tensors[name]) for name in tensors), place


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"12345678{}", b"\x02" + b"\0" * 7 + b"{}x"])
def test_no_tensors_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=str(path)):
        read_tensors(path)


def test_errors_travel_between_processes(tmp_path: Path) -> None:
    full = WriteError(tmp_path, OSError(errno.ENOSPC, "No space left on device"))
    for error in (DamagedError(tmp_path, "is damaged"), full):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
    assert copy.errno == errno.ENOSPC
