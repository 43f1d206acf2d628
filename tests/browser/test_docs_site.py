"""The documentation site in Chromium: light and dark, on desktops and phones, with nothing loaded from elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from built import build_site
from playwright.sync_api import Browser, Page

LOCAL = ("file:", "data:", "blob:")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build_site(folder).returncode == 0
    return folder / "site"


@pytest.fixture(params=[("light", 1400), ("dark", 390)], ids=["desk", "phone"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    scheme, width = request.param
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda asked: None if asked.url.startswith(LOCAL) else wrong.append(asked.url))
    yield page
    page.close()
    assert wrong == []


@pytest.mark.parametrize("name", ["index", "quick-start", "walk", "faq", "format", "results"])
def test_pages_fit_their_window(site: Path, page: Page, name: str) -> None:
    page.goto((site / f"{name}.html").as_uri())
    wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window
    paper, ink = page.evaluate(
        "[...['background-color', 'color']].map(name => getComputedStyle(document.body).getPropertyValue(name))"
    )
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (brightness(paper) < brightness(ink)) == dark


def brightness(colour: str) -> float:
    """Return the brightness of a colour given as rgb(…)."""
    return sum(float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3])


def test_equations_are_seen(site: Path, page: Page) -> None:
    page.goto((site / "walk.html").as_uri())
    boxes = page.evaluate("[...document.querySelectorAll('math')].map(math => math.getBoundingClientRect().toJSON())")
    assert len(boxes) > 30
    assert all(box["width"] > 3 and box["height"] > 6 for box in boxes)
    # A fraction stands above its line: equations are laid out, not written in a row.
    tallest = max(box["height"] for box in boxes)
    assert tallest > 2 * min(box["height"] for box in boxes)


def test_search_finds_a_page(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("length penalty", delay=20)
    page.get_by_text("The paper in code").last.wait_for()  # above one of the results
    assert page.get_by_text("Beam search").count()
