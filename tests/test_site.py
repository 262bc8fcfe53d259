"""The documentation site builds without a warning and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from browser import chromium, complaints_of

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
    # Not --quiet: it hides warnings, also from --strict.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class Silent(SimpleHTTPRequestHandler):
    """Serves files without a line on stderr for each."""

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


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
    # Modules are inside: a browser loads none from disk.
    assert {path.name for path in (site / "unit").iterdir()} == {"index.html", "unit.css"}
    assert "unit/" in (site / "mathematics" / "index.html").read_text(encoding="utf-8")
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
@pytest.mark.browser
def test_mathematics_search_and_the_way_to_the_unit(address: str) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(0)
        complaints = complaints_of(page)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))

        page.goto(f"{address}/mathematics/")
        assert page.locator(".arithmatex .katex").count() > 10
        assert page.locator(".katex-error").count() == 0
        page.click("[data-md-component=search-query]")
        page.keyboard.type("hardtanh")
        page.wait_for_selector(".md-search-result__item")
        page.goto(f"{address}/mathematics/")
        page.get_by_role("link", name="interactive page").click()
        page.wait_for_selector("#value")
        assert page.inner_text("#value") != ""
    assert complaints == []
    assert all(url.startswith((address, "data:")) for url in requests), requests


@pytest.mark.slow
@pytest.mark.browser
def test_copied_code_has_no_prompts_and_wide_tables_scroll(address: str) -> None:
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        # However busy the machine: pytest has a limit of its own.
        context.set_default_timeout(0)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        page = context.new_page()
        page.goto(f"{address}/start/")
        # One with outputs and a traceback; the button is there when the pointer is.
        code = page.locator(".highlight", has_text="APL(128)(")
        code.hover()
        code.locator("button").click()
        copied = page.wait_for_function("navigator.clipboard.readText()").json_value()
        assert [line.partition("(")[0] for line in copied.splitlines() if line] == [
            "block = nn.Sequential",
            "block",
            "APL",
        ]
        page.goto(f"{address}/performance/")
        widths = "e => [e.scrollWidth > e.clientWidth, getComputedStyle(e).overflowX]"
        wide = page.locator(".md-typeset__scrollwrap").evaluate_all(f"all => all.map({widths})")
        assert [True, "auto"] in wide
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation, page
