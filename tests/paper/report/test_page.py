"""The page in a real browser."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from browser import chromium
from torchapl import APL, log_run
from torchapl.paper.experiments import TABLES
from torchapl.paper.report.html import write_report
from torchapl.paper.report.serve import make_server
from torchapl.paper.sweep import Sweep
from torchapl.paper.sweep.jobs import read_results
from torchapl.paper.sweep.statistics import summarise

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
PANEL = "report.sections.explorer.panels[0]"


# Of this module only: a second Playwright cannot start while another one runs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(runs, path)
    return path


def opened(browser: Browser, address: str, **options: Any) -> tuple[Page, list[str]]:
    # However busy the machine: pytest has a limit of its own.
    context = browser.new_context(**options)
    context.set_default_timeout(0)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1"))
            else wrong.append(request.url)
        ),
    )
    page.goto(address)
    page.wait_for_selector("#learning-chart .main-svg")
    return page, wrong


@pytest.fixture(scope="module")
def loaded(browser: Browser, report: Path) -> tuple[Page, list[str]]:
    options = {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"}
    return opened(browser, report.as_uri(), **options)


@pytest.fixture
def page(loaded: tuple[Page, list[str]]) -> Iterator[Page]:
    page, wrong = loaded
    yield page
    assert wrong == []


def choose(page: Page, name: str, **option: Any) -> None:
    page.locator(f"[data-control={name}]").first.select_option(**option)


def text(page: Page, name: str) -> str:
    return page.locator(f"[data-part={name}]").first.inner_text()


def curve(page: Page) -> list[float]:
    """Return the heights of the chosen curve, as drawn."""
    return page.evaluate("Array.from(document.querySelector('[data-chart=curve]').data.at(-2).y)")


def run_label(page: Page, experiment: str) -> str:
    options = page.locator("[data-control=run]").first.locator("option").all_inner_texts()
    return next(option for option in options if option.startswith(f"{experiment}, seed 0"))


def test_numbers_equal_those_of_the_results(page: Page, runs: Path) -> None:
    rows = page.locator("[data-table='table2/smoke']").first.locator("tbody tr").all()
    shown = {
        row.locator("td").first.inner_text(): row.locator("td").all_inner_texts() for row in rows
    }
    found = summarise(TABLES["table2"], Sweep("smoke", 3, 0), read_results(runs))
    # AUC is the first of the cells' metrics.
    summaries = {s.row: s for s in reversed(found) if s.column == "atlas"}
    for title in ("DNN + ReLU", "DNN + APL"):
        summary = summaries[title]
        assert shown[title][2] == str(summary.n) == "2"
        assert shown[title][3] == f"{summary.mean:.4f} ({summary.std:.4f})"
    difference = summaries["DNN + APL"].difference
    assert difference is not None
    assert shown["DNN + APL"][4] == f"{difference.mean:+.4f} ± {difference.half_width:.4f}"
    assert "0 + 1 failed" in page.locator("[data-table='table3/smoke']").inner_text()


def test_scripts_share_no_names(page: Page, tmp_path: Path) -> None:
    """What a script declares is its own: the page has one name for the console, and the library."""
    (tmp_path / "empty.html").write_text("<!doctype html>")
    empty = page.context.new_page()
    empty.goto((tmp_path / "empty.html").as_uri())
    known = set(empty.evaluate("Object.getOwnPropertyNames(window)"))
    empty.close()
    own = set(page.evaluate("Object.getOwnPropertyNames(window)")) - known
    # The last two are the library's as well.
    assert own == {"report", "Plotly", "PolyBool", "moduleName"}


def test_learning_controls(page: Page) -> None:
    lines = "#learning-chart .scatterlayer .trace"
    assert page.is_visible("#data")
    page.select_option("#data", "atlas-higgs-embedded")
    page.select_option("#metric", "test_auc")
    # One line for each setting: both seeds agree, so there are no bands.
    assert page.locator(lines).count() == 2
    page.get_by_label("atlas-dnn-relu").uncheck()
    assert page.locator(lines).count() == 1
    page.get_by_label("atlas-dnn-relu").check()
    assert page.locator(lines).count() == 2
    assert "Test AUC" in page.locator("#learning-chart .ytitle").text_content()
    page.check("#logarithmic")
    assert page.evaluate("document.getElementById('learning-chart').layout.yaxis.type") == "log"


def test_run_layer_and_unit(page: Page, runs: Path) -> None:
    choose(page, "run", label=run_label(page, "cifar10-cnn-apl-s2"))
    choose(page, "layer", index=1)
    assert text(page, "curve-title").startswith("layers.act2, channel 0, row 0, column 0")
    before = curve(page)
    choose(page, "channel", index=1)
    choose(page, "row", index=2)
    choose(page, "column", index=3)
    title = text(page, "curve-title")
    assert title.startswith("layers.act2, channel 1, row ")
    assert curve(page) != before
    page.locator("[data-control=next]").first.click()
    assert text(page, "curve-title") != title
    page.locator("[data-control=previous]").first.click()
    assert text(page, "curve-title") == title
    choose(page, "layer", index=3)
    assert page.locator("[data-part=channel]").first.is_hidden()
    choose(page, "unit", index=5)
    assert text(page, "curve-title").startswith("layers.act4, unit 5")
    choose(page, "layer", index=0)


def test_click_and_arrows_on_the_map(page: Page) -> None:
    choose(page, "run", label=run_label(page, "cifar10-cnn-apl-s2"))
    choose(page, "layer", index=0)
    chart = page.locator("[data-chart=map]").first
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    middle = page.evaluate(f"{PANEL}.cell()")
    rows, columns = page.evaluate(f"{PANEL}.grid()")
    assert abs(middle[0] - rows / 2) <= 1
    assert abs(middle[1] - columns / 2) <= 1
    assert text(page, "curve-title") == page.evaluate(
        f"`layers.act1, ${{{PANEL}.describe({PANEL}.state.unit)}}`"
    )
    chart.focus()
    for key, expected in (("ArrowRight", [0, 1]), ("ArrowDown", [1, 1]), ("ArrowUp", [0, 1])):
        page.keyboard.press(key)
        moved = page.evaluate(f"{PANEL}.cell()")
        assert [moved[0] - middle[0], moved[1] - middle[1]] == expected


def test_slider_moves_through_training(page: Page) -> None:
    choose(page, "run", label=run_label(page, "atlas-dnn-apl"))
    slider = page.locator("[data-control=moment]").first
    slider.focus()
    page.keyboard.press("End")
    assert text(page, "moment") == "end"
    end = curve(page)
    page.keyboard.press("ArrowLeft")
    assert text(page, "moment").startswith("epoch ")
    page.keyboard.press("Home")
    assert text(page, "moment") == "start"
    start = page.evaluate("Array.from(document.querySelector('[data-chart=curve]').data.at(-3).y)")
    assert curve(page) == start != end
    page.keyboard.press("End")


def test_class_filter(page: Page) -> None:
    choose(page, "run", label=run_label(page, "atlas-dnn-apl"))
    counts = page.evaluate(f"{PANEL}.frame.counts")
    boxes = page.locator("[data-part=classes] label").all()
    for box, count in zip(boxes, counts, strict=True):
        assert f"{count:,} (" in box.inner_text()
    # Not the chosen unit's class, so that another unit must be chosen.
    own = page.evaluate(f"{PANEL}.frame.classes[{PANEL}.state.unit]")
    kept = next(index for index, count in enumerate(counts) if count and index != own)
    for index, box in enumerate(boxes):
        box.locator("input").set_checked(index == kept)
    assert text(page, "all-title").startswith(f"{counts[kept]} of ")
    assert page.evaluate(f"{PANEL}.frame.classes[{PANEL}.state.unit]") == kept
    shown = page.evaluate("document.querySelector('[data-chart=map]').data[0].z.flat()")
    assert sum(value is not None for value in shown) == counts[kept]
    for box in boxes:
        box.locator("input").check()


def test_window_and_colour(page: Page) -> None:
    choose(page, "view", value="fixed")
    ranges = page.evaluate("document.querySelector('[data-chart=curve]').layout.xaxis.range")
    assert ranges == [-3, 3]
    choose(page, "view", value="inputs")
    before = text(page, "map-title")
    choose(page, "colour", value="left")
    assert text(page, "map-title") != before
    choose(page, "colour", value="minus-one")


def test_two_runs_side_by_side(page: Page) -> None:
    page.check("#compare")
    panels = page.locator(".panel")
    assert panels.count() == 2
    left, right = (panels.nth(i).bounding_box() for i in range(2))
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    # The first panel's charts become narrower with it.
    page.wait_for_function(
        """panel => {
            const chart = document.querySelector("[data-chart=curve] .main-svg");
            const { width } = chart.getBoundingClientRect();
            return 0.8 * panel < width && width < panel;
        }""",
        arg=left["width"],
    )
    choose(page, "unit", index=3)
    titles = page.locator("[data-part=curve-title]").all_inner_texts()
    assert "unit 3" in titles[0]
    assert titles[0].partition(" (")[0] == titles[1].partition(" (")[0]
    page.uncheck("#link")
    choose(page, "unit", index=7)
    assert "unit 3" in page.locator("[data-part=curve-title]").nth(1).inner_text()
    page.check("#link")
    assert "unit 7" in page.locator("[data-part=curve-title]").nth(1).inner_text()
    page.uncheck("#compare")
    assert panels.count() == 1


def test_theme(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate(ground) != light
    page.click("#theme")
    assert page.evaluate(ground) == light


def test_every_control_is_reached_by_tab_and_has_a_name(page: Page) -> None:
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.dataset.control ?? e.dataset.chart ?? e.id ?? '')(document.activeElement)"
            )
        )
    wanted = {"theme", "metric", "compare", "run", "layer", "moment", "previous", "next", "map"}
    assert wanted <= reached
    unnamed = page.evaluate(
        "[...document.querySelectorAll('select, input, button')].filter((e) =>"
        " !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).length"
    )
    assert unnamed == 0


def test_phone_and_dark(browser: Browser, report: Path) -> None:
    size = {"width": 360, "height": 740}
    page, wrong = opened(
        browser, report.as_uri(), viewport=size, has_touch=True, color_scheme="dark"
    )
    assert page.get_attribute("html", "data-theme") == "dark"
    page.check("#compare")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert wrong == []
    assert report.stat().st_size < 5_000_000


def test_a_loop_of_ones_own(browser: Browser, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 4), APL(4))
    with log_run(tmp_path / "mine", model, batch=torch.randn(50, 2)) as run:
        for epoch in range(3):
            run.epoch(train_loss=1.0 / (epoch + 1))
    write_report(tmp_path, tmp_path / "report.html")
    page, wrong = opened(browser, (tmp_path / "report.html").as_uri())
    assert page.inner_text("#metric") == "Training loss"
    # Nobody named the data.
    assert not page.is_visible("#data")
    choose(page, "unit", index=3)
    assert "unit 3" in text(page, "curve-title")
    assert wrong == []
    page.close()


def test_the_served_page_follows_a_run(browser: Browser, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "atlas-dnn-apl" / "smoke" / "0"
    shutil.copytree(runs / "atlas-dnn-apl" / "smoke" / "0", folder)
    (folder / "result.json").rename(tmp_path / "later.json")
    with make_server(tmp_path, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page, wrong = opened(browser, f"http://127.0.0.1:{server.server_port}/")
            assert "1 unfinished" in page.inner_text("#about")
            choose(page, "unit", index=4)
            (tmp_path / "later.json").rename(folder / "result.json")
            page.locator("#about", has_text="1 finished").wait_for()
            # News do not take the reader's place away.
            assert "unit 4" in text(page, "curve-title")
            assert wrong == []
            page.close()
        finally:
            server.shutdown()
            thread.join()
