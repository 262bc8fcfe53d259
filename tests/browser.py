"""Chromium for the tests of pages; skips, with the reason, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        # A busy machine takes its time, for this and for every page.
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS), timeout=0)
        yield browser
        browser.close()


def complaints_of(page: Page) -> list[str]:
    """Return a list that fills with what the page writes to the console or cannot load."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    return complaints
