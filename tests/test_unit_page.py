"""The interactive page of the documentation: what it shows is what torchapl computes."""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import torch

from browser import chromium, complaints_of
from torchapl import APL, apl, curves

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

FOLDER = Path(__file__).parent.parent / "docs" / "unit"
MINUS = "\N{MINUS SIGN}"
# The page shows four decimals.
SHOWN = 6e-5
UNITS = {
    "one": ([0.75], [1.25]),
    "two at one place": ([-0.3, 0.45], [-1.0, -1.0]),
    "beside zero": ([-1.0, 0.2, 2.0], [0.0, 0.5, -2.5]),
    "five": ([0.31, -0.72, 1.2, -0.05, 0.4], [-2.9, 4.2, 0.35, -0.6, 1.0]),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def program(name: str) -> ModuleType:
    """Return one of the programs that make the page."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page as the site has it."""
    folder = tmp_path_factory.mktemp("unit")
    shutil.copy(FOLDER / "unit.css", folder)
    path = folder / "index.html"
    path.write_text(program("make_page").with_modules(FOLDER), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Browser, built: Path) -> Iterator[Page]:
    """Open the page from disk; whatever it complains about fails the test."""
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.set_default_timeout(0)
    complaints = complaints_of(page)
    page.goto(built.as_uri())
    yield page
    page.close()
    assert complaints == []


def enter(page: Page, slope: list[float], offset: list[float], x: float) -> None:
    page.click(f"#count button[value='{len(slope)}']")
    for s, (a, b) in enumerate(zip(slope, offset, strict=True), start=1):
        page.fill(f"#a{s}", str(a))
        page.fill(f"#b{s}", str(b))
    page.fill("#probe", str(x))


def number(text: str) -> float:
    return float(text.replace(MINUS, "-"))


def numbers(locator: Locator) -> list[float]:
    return [number(text) for text in locator.all_inner_texts()]


def settings(page: Page) -> tuple[list[float], list[float]]:
    count = int(page.get_attribute("#count button[aria-pressed=true]", "value") or 0)
    slope, offset = (
        [float(page.input_value(f"#{key}{s}")) for s in range(1, count + 1)] for key in "ab"
    )
    return slope, offset


def expected(slope: list[float], offset: list[float], x: float) -> float:
    dtype = torch.float64
    a, b = torch.tensor(slope, dtype=dtype), torch.tensor(offset, dtype=dtype)
    return apl(torch.tensor([x], dtype=dtype), a, b).item()


def unit_of(slope: list[float], offset: list[float]) -> APL:
    unit = APL((), num_hinges=len(slope), dtype=torch.float64)
    with torch.no_grad():
        unit.slope.copy_(torch.tensor(slope, dtype=torch.float64))
        unit.offset.copy_(torch.tensor(offset, dtype=torch.float64))
    return unit


def pieces(page: Page, name: str) -> list[tuple[float, float]]:
    """Return slopes and intercepts of the lines in a table."""
    lines = page.locator(f"#{name} tbody td:first-child").all_inner_texts()
    found = []
    for line in lines:
        text = line.replace(MINUS, "-").replace(" ", "")
        match = re.fullmatch(r"(?:(-?[\d.]*)x)?([+-]?[\d.]+)?", text)
        assert match is not None, line
        factor = match[1]
        slope = 0.0 if factor is None else float(f"{factor}1" if factor in ("", "-") else factor)
        found.append((slope, float(match[2] or 0)))
    return found


@pytest.mark.browser
@pytest.mark.parametrize("name", UNITS)
def test_numbers_are_those_of_the_library(page: Page, name: str) -> None:
    slope, offset = UNITS[name]
    enter(page, slope, offset, 0.0)
    for x in (-4.0, -1.0, -0.05, 0.4, 5.5):
        page.fill("#probe", str(x))
        value = expected(slope, offset, x)
        assert number(page.inner_text("#value")) == pytest.approx(value, abs=SHOWN)
        assert numbers(page.locator("#network tfoot td:last-child")) == [
            pytest.approx(value, abs=SHOWN)
        ]
        terms = page.inner_text("#difference").replace(f" {MINUS} ", " ").replace("= ", "")
        first, second, difference = map(number, terms.split())
        assert difference == pytest.approx(value, abs=SHOWN)
        assert first - second == pytest.approx(value, abs=2 * SHOWN)


@pytest.mark.browser
@pytest.mark.parametrize("name", UNITS)
def test_tables_describe_the_curve(page: Page, name: str) -> None:
    slope, offset = UNITS[name]
    enter(page, slope, offset, 0.4)
    x = torch.linspace(-6, 6, 49, dtype=torch.float64)
    curve = curves.sample(unit_of(slope, offset), x)

    expected_slopes = curves.to_piecewise_linear(unit_of(slope, offset)).slopes.tolist()
    assert numbers(page.locator("#segments tbody td:nth-child(2)")) == [
        pytest.approx(value, abs=SHOWN) for value in expected_slopes
    ]

    def largest(name: str) -> torch.Tensor:
        lines = [a * x + b for a, b in pieces(page, name)]
        return torch.stack(lines).amax(0)

    # Rounded slopes err by up to 6 times as much at x = 6.
    torch.testing.assert_close(largest("convex") - largest("concave"), curve, atol=8e-4, rtol=0)

    cells = [numbers(page.locator(f"#network tbody td:nth-child({k})")) for k in (2, 3, 5)]
    weight, bias, output = (torch.tensor(values, dtype=torch.float64) for values in cells)
    hidden = torch.relu(weight[:, None] * x + bias[:, None])
    torch.testing.assert_close((output[:, None] * hidden).sum(0), curve, atol=1e-9, rtol=0)


@pytest.mark.browser
def test_code_gives_the_value_on_the_page(page: Page) -> None:
    enter(page, *UNITS["five"], -0.75)
    names: dict[str, torch.Tensor] = {}
    exec(page.inner_text("#code"), names)
    assert names["y"].item() == pytest.approx(number(page.inner_text("#value")), abs=SHOWN)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("label", "dx", "dy", "key", "change"),
    [
        # 1280 pixels wide, the plot shows 6 units across; the slope's handle is 0.75 left of the
        # hinge, so that moving it up by 0.3 adds 0.4.
        ("Position of hinge 1", 0.5, 0.0, "b1", 0.5),
        ("Position of hinge 2", -0.4, 0.7, "b2", -0.4),
        ("Slope of hinge 2", 0.2, 0.3, "a2", 0.4),
        ("Slope of hinge 1", 0.0, -0.3, "a1", -0.4),
        ("Probe x", 1.0, 0.0, "probe", 1.0),
    ],
)
def test_dragging(page: Page, label: str, dx: float, dy: float, key: str, change: float) -> None:
    fields = ("a1", "b1", "a2", "b2", "probe")
    before = {field: float(page.input_value(f"#{field}")) for field in fields}
    box = page.get_by_role("slider", name=label).locator(".mark").bounding_box()
    assert box is not None
    # Labels of the axes are 1 apart, those of y from the bottom up.
    scale = page.evaluate(
        """["middle", "end"].map((anchor) => {
             const [first, second] = document.querySelectorAll(
               `#plot text[text-anchor=${anchor}]:not([class])`);
             const at = (text) => text.getAttribute(anchor === "end" ? "y" : "x");
             return at(second) - at(first);
           })"""
    )
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx * scale[0], y + dy * scale[1], steps=3)
    page.mouse.up()
    # A drag ends with the button: what the pointer does on the handle afterwards must not count.
    page.mouse.move(x + dx * scale[0] + 6, y + dy * scale[1] - 6)
    after = {field: float(page.input_value(f"#{field}")) for field in fields}
    assert after == pytest.approx(before | {key: before[key] + change}, abs=0.011)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("label", "field", "limit"),
    [
        ("Position of hinge 2", "b2", 6.0),
        ("Slope of hinge 1", "a1", 3.0),
        ("Probe x", "probe", 6.0),
    ],
)
def test_keys(page: Page, label: str, field: str, limit: float) -> None:
    handle = page.get_by_role("slider", name=label)
    start = float(page.input_value(f"#{field}"))
    handle.focus()
    for key, change in (("ArrowRight", 0.05), ("ArrowDown", 0.0), ("PageUp", 0.5)):
        page.keyboard.press(key)
        assert float(page.input_value(f"#{field}")) == pytest.approx(start + change)
        assert float(handle.get_attribute("aria-valuenow") or "nan") == pytest.approx(
            start + change
        )
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    assert float(page.input_value(f"#{field}")) == limit
    assert handle.evaluate("element => element === document.activeElement")
    assert handle.locator(".ring").evaluate("ring => getComputedStyle(ring).stroke") != "none"


@pytest.mark.browser
def test_every_control_is_reached_by_tab(page: Page) -> None:
    wanted = page.locator("button, input:visible, select, .handle:visible").count()
    reached = set()
    page.keyboard.press("Tab")
    for _ in range(wanted + 12):
        reached.add(
            page.evaluate(
                "(e => e.matches('button, input, select, .handle') &&"
                " (e.id || e.ariaLabel || e.textContent))(document.activeElement)"
            )
        )
        page.keyboard.press("Tab")
    assert len(reached - {False}) == wanted
    unnamed = page.locator("input, select, .handle").evaluate_all(
        "all => all.filter(e => !e.ariaLabel && !e.labels?.length).length"
    )
    assert unnamed == 0


@pytest.mark.browser
def test_presets(page: Page) -> None:
    x = torch.linspace(-6, 6, 25)
    for name, function, error in (
        ("relu", torch.relu, 0.0),
        ("leaky", lambda x: torch.nn.functional.leaky_relu(x, 0.25), 0.0),
        ("abs", torch.abs, 0.0),
        ("silu", torch.nn.functional.silu, 0.025),
        ("gelu", torch.nn.functional.gelu, 0.016),
    ):
        page.click(f"#presets button[value={name}]")
        assert page.get_attribute(f"#presets button[value={name}]", "aria-pressed") == "true"
        slope, offset = (torch.tensor(values) for values in settings(page))
        assert float((apl(x, slope, offset) - function(x)).abs().max()) <= error + 1e-6


@pytest.mark.browser
def test_random_start_is_the_authors(page: Page) -> None:
    page.click("#count button[value='4']")
    seen = set()
    for _ in range(5):
        page.click("#presets button[value=random]")
        slope, offset = settings(page)
        assert max(map(abs, slope)) <= 0.25
        assert max(map(abs, offset)) < 3.5
        seen.add((*slope, *offset))
    assert len(seen) == 5


@pytest.mark.browser
def test_more_hinges_leave_the_curve_as_it_is(page: Page) -> None:
    before = number(page.inner_text("#value"))
    page.click("#count button[value='5']")
    assert page.locator(".handle:visible").count() == 11
    assert number(page.inner_text("#value")) == before
    page.click("#count button[value='1']")
    assert page.locator("#hinges tr:visible").count() == 1


@pytest.mark.browser
def test_unusable_numbers_are_corrected(page: Page) -> None:
    page.fill("#a1", "40")
    page.locator("#a1").blur()
    assert page.input_value("#a1") == "3"
    page.fill("#b1", "")
    page.locator("#b1").blur()
    assert page.input_value("#b1") == "0"
    assert math.isfinite(number(page.inner_text("#value")))


@pytest.mark.browser
def test_phone_and_themes(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("#presets button[value=silu]")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_stored_presets_are_what_fit_gives() -> None:
    # Another processor may round a fit's last digit the other way.
    digits = re.compile(r"-?\d+\.\d+")
    stored = (FOLDER / "presets.js").read_text(encoding="utf-8")
    made = program("make_presets").text()
    assert digits.sub("#", stored) == digits.sub("#", made)
    numbers = [[float(number) for number in digits.findall(text)] for text in (stored, made)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1.001e-3)
