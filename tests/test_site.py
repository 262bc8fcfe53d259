"""The documentation site builds without a warning and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What a browser fetches by itself; links to read on are fine.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Fetched(HTMLParser):
    """Collects the addresses that a page fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag == "link" and values.get("rel") in ("canonical", "prev", "next"):
            return
        address = values.get(FETCHED.get(tag, ""))
        if address:
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.mark.slow
def test_everything_fetched_is_part_of_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses
        for address in parser.addresses:
            assert not re.match(r"(https?:)?//", address), (page, address)
            # The 404 page is served anywhere, so its addresses start at the root.
            if not address.startswith(("/", "data:")):
                assert (page.parent / address.split("?")[0].split("#")[0]).exists(), (page, address)
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", text), style


@pytest.mark.slow
def test_docstrings_are_written_as_the_site_expects(site: Path) -> None:
    for page in (site / "api").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        left = re.findall(r":(?:math|class|func|mod):|\.\. \w+::", text)
        assert left == [], page
    units = (site / "api" / "units" / "index.html").read_text(encoding="utf-8")
    assert r"\sum_{s=1}^{S}" in units
    assert "torch.Size([8, 96, 32, 32])" in re.sub(r"<[^>]+>", "", units)


@pytest.mark.slow
def test_the_interactive_page_is_in_it(site: Path) -> None:
    for name in ("index.html", "unit.js", "model.js", "draw.js", "presets.js", "unit.css"):
        assert (site / "unit" / name).exists()
    assert "unit/" in (site / "mathematics" / "index.html").read_text(encoding="utf-8")
    assert not list(site.rglob("*.py"))


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation, page
