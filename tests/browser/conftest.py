"""Chromium, and pages opened in it that must log nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from install import folder
from playwright.sync_api import Browser, Page, sync_playwright
from samples import Open

LOCAL = ("file:", "data:", "blob:")


@pytest.fixture(scope="module")  # and not longer: while Playwright runs, other tests could not use asyncio
def browser() -> Iterator[Browser]:
    """The Chromium of install.py with its own libraries and font; on other systems than Linux, Playwright's."""
    own = folder()
    there = (own / "chromium").exists()
    environment = {"LD_LIBRARY_PATH": f"{own}/lib", "FONTCONFIG_PATH": str(own)} if there else {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=own / "chromium" if there else None,
            args=["--no-sandbox"],  # which a machine may not allow; it shows nothing but our own pages
            env={**os.environ, **environment},
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a page from its text, as a file; whatever it logs, and any error or request, fails the test."""
    wrong: list[str] = []
    pages: list[Page] = []

    def open_page(text: str, *, width: int = 1200, height: int = 900, **context: Any) -> Page:
        path = tmp_path / f"page-{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": height}, **context)
        page.set_default_timeout(5_000)
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda request: None if request.url.startswith(LOCAL) else wrong.append(request.url))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert wrong == []
