"""The examples in docstrings and pages run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest
import torch
from torch import nn

import torchapl

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]
# Modules whose import has effects or needs what is not always there.
SKIPPED = (
    "torchapl.cli.__main__",
    "torchapl.ops._C",
    "torchapl.ops._autograd",
    "torchapl.ops.triton",
)
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(torchapl.__path__, "torchapl.")
    if not info.name.startswith(SKIPPED)
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Examples may write files.
    monkeypatch.chdir(tmp_path)


def names() -> dict[str, object]:
    return {
        "torch": torch,
        "nn": nn,
        **{name: getattr(torchapl, name) for name in torchapl.__all__},
    }


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, extraglobs=names(), optionflags=FLAGS)
    assert results.failed == 0


def test_the_front_page_runs() -> None:
    # Without prompts, to be copied.
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = page.split("```python\n")[1:]
    assert blocks
    for block in blocks:
        exec(compile(block.split("```")[0], "README.md", "exec"), {})


def test_the_front_page_has_narrow_tables() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert max(line.count("|") - 1 for line in lines if line.startswith("|")) <= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    results = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert results.failed == 0
