"""The page of `transduce serve` in Chromium, with a real server behind it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import make_docx, run, unpack
from playwright.sync_api import Browser, Page, expect
from server import Running, running, translators

from transduce.decoding.options import Request
from transduce.decoding.translator import Translator
from transduce.seeing.branches import find_branches

TEXT = "two euros and nine dollars"
KEY = "0123456789abcdef"
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[Translator]:
    """English-German, German-English, English-French."""
    return translators(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(loaded: list[Translator]) -> Iterator[Running]:
    """A server of all three models."""
    with running(loaded) as server:
        yield server


@pytest.fixture
def visit(browser: Browser, server: Running) -> Iterator[Visit]:
    """Open the page; whatever it logs, and any error or request to another host, fails the test."""
    wrong: list[str] = []
    pages: list[Page] = []

    def visit(path: str = "/", *, at: Running = server, width: int = 1200, height: int = 900, **context: Any) -> Page:
        page = browser.new_page(viewport={"width": width, "height": height}, **context)
        page.set_default_timeout(5_000)
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        here = (f"{at.url}/", "data:", "blob:")
        page.on("request", lambda request: None if request.url.startswith(here) else wrong.append(request.url))
        page.goto(at.url + path)
        pages.append(page)
        return page

    yield visit
    for page in pages:
        page.close()
    assert wrong == []


def translate(page: Page, text: str) -> None:
    """Choose English to German, type a text, and wait for its translation."""
    expect(page.locator("#source option")).to_have_count(3)
    page.locator("#source").select_option("en")
    page.locator("#target").select_option("de")
    page.locator("#text").fill(text)


def test_what_is_typed_is_translated(visit: Visit, loaded: list[Translator]):
    page = visit()
    text = f"{TEXT}\n\n  nine <b>"
    translate(page, text)
    assert page.locator("#translation").get_attribute("aria-live") == "polite"
    expect(page.locator("#translation")).to_have_text(loaded[0].translate(text).text, use_inner_text=True)
    assert page.locator("#translation b").count() == 0
    page.locator("#target").select_option("fr")
    expect(page.locator("#translation")).to_have_text(loaded[2].translate(text).text, use_inner_text=True)
    page.locator("#text").fill("")
    expect(page.locator("#translation")).to_have_text("")


def test_terms_that_were_not_said_are_named(visit: Visit, loaded: list[Translator]):
    terms = {"two": "Groschen", "nine": "Kreuzer", "dollars": "Gulden"}
    ours = Translator(loaded[0].loaded, loaded[0].engine, terms)
    unsaid = ours.translate(f"{TEXT} and two").unsaid
    assert unsaid
    with running([ours, *loaded[1:]]) as server:
        page = visit(at=server)
        translate(page, f"{TEXT} and two")
        expect(page.locator("#status")).to_have_text(f"not said: {', '.join(unsaid)}")
        page.locator("#text").fill("and")
        expect(page.locator("#translation")).to_have_text(ours.translate("and").text, use_inner_text=True)
        expect(page.locator("#status")).to_have_text("")


def test_languages_are_found_out_and_swapped(visit: Visit, loaded: list[Translator]):
    page = visit()
    page.locator("#text").fill("das ist nicht gut")
    page.locator("#target").select_option("en")
    expect(page.locator("#status")).to_have_text("from German")
    translate(page, TEXT)
    text = loaded[0].translate(TEXT).text
    expect(page.locator("#translation")).to_have_text(text)
    page.get_by_role("button", name="swap").click()
    assert (page.locator("#source").input_value(), page.locator("#target").input_value()) == ("de", "en")
    assert page.locator("#text").input_value() == text
    expect(page.locator("#translation")).to_have_text(loaded[1].translate(text).text)
    page.locator("#source").select_option("en")
    page.locator("#target").select_option("fr")
    expect(page.locator("#swap")).to_be_hidden()  # nothing translates French


def test_the_target_follows_what_is_found_out_until_one_is_chosen(visit: Visit, loaded: list[Translator]):
    page = visit()
    english, german = "this is not what you think", "das ist nicht gut und ich will es nicht"
    for text, model, target in ((english, 0, "de"), (german, 1, "en"), (english, 0, "de")):
        page.locator("#text").fill(text)
        expect(page.locator("#translation")).to_have_text(loaded[model].translate(text).text)
        assert page.locator("#target").input_value() == target
        assert page.locator("#source").input_value() == "auto"
    page.locator("#target").select_option("fr")
    for text in (german, english):
        page.locator("#text").fill(text)
        expect(page.locator("#translation")).to_have_text(loaded[2].translate(text).text)
        assert page.locator("#target").input_value() == "fr"


def test_a_word_shows_how_it_might_go_on(visit: Visit, loaded: list[Translator]):
    page = visit()
    translate(page, f"nine\n{TEXT}")
    whole = loaded[0].translate(f"nine\n{TEXT}")
    expect(page.locator("#translation")).to_have_text(whole.text, use_inner_text=True)
    words = page.locator('#translation button[data-sentence="1"]')
    last = words.nth(words.count() - 1)
    index = int(last.get_attribute("data-index") or 0)
    prefix = whole.sentences[1].alternatives[0].text[:index].rstrip()
    last.click()
    expected = find_branches(loaded[0], Request(TEXT, prefix), loaded[0].search, 6)
    items = page.locator("#choices li button span")
    expect(items).to_have_count(len(expected))
    assert items.all_inner_texts() == [one.text for one in expected]
    assert items.first.locator("i").inner_text() == prefix
    # Another is taken: the sentence changes, the first one stays, and the attention is of what is there now.
    page.locator("#choices li button").nth(1).click()
    first = whole.sentences[0].alternatives[0].text
    expect(page.locator("#translation")).to_have_text(f"{first}\n{expected[1].text}", use_inner_text=True)
    expect(page.locator("#choices")).to_be_hidden()
    expect(page.locator("#seen .tree")).to_have_count(0)  # nothing was searched for
    expect(page.locator("#seen svg").first).to_be_visible()


def test_all_of_it_by_keyboard(visit: Visit):
    page = visit()
    translate(page, TEXT)
    words = page.locator("#translation button")
    expect(words.first).to_be_visible()
    words.first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement === document.querySelectorAll('#translation button')[1]")
    page.keyboard.press("Enter")
    expect(page.locator("#choices li button").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#choices")).to_be_hidden()
    expect(words.nth(1)).to_be_focused()


def test_attention_is_below_and_of_the_sentence_chosen(visit: Visit, loaded: list[Translator]):
    page = visit()
    translate(page, f"nine\n{TEXT}")
    expect(page.locator("#seen .word").first).to_be_visible()
    pieces = len(loaded[0].tokens("nine", "source"))
    expect(page.locator('#seen .word[data-side="key"]')).to_have_count(pieces)
    page.locator("#sentences button").nth(1).click()
    pieces = len(loaded[0].tokens(TEXT, "source"))
    expect(page.locator('#seen .word[data-side="key"]')).to_have_count(pieces)
    assert page.locator("#seen .tree").count() == 1
    page.locator('#seen .word[data-side="query"]').first.click()
    expect(page.locator("#seen .detail .who")).to_have_count(2)


def test_a_file_comes_back_translated(visit: Visit, loaded: list[Translator], tmp_path: Path):
    page = visit()
    translate(page, "")
    text = "".join(f"two euros and {number} dollars\r\n\n" for number in range(200))
    file = tmp_path / "letter.txt"
    file.write_bytes(text.encode())
    page.locator("#file").set_input_files(file)
    expect(page.locator("#save")).to_be_visible(timeout=20_000)
    expect(page.locator("#progress-text")).to_have_text("letter.txt: done")
    assert page.locator("#progress").evaluate("bar => bar.value") == 1
    with page.expect_download() as download:
        page.locator("#save").click()
    assert download.value.suggested_filename == "letter.de.txt"
    assert Path(download.value.path()).read_bytes().decode() == loaded[0].translate(text).text
    file.write_bytes(b"\xff\xfe\x00")
    page.locator("#file").set_input_files(file)
    expect(page.locator("#progress-text")).to_have_text("letter.txt is not UTF-8 text")


def test_a_document_comes_back_translated(visit: Visit, loaded: list[Translator], tmp_path: Path):
    page = visit()
    translate(page, TEXT)
    file = tmp_path / "letter.Docx"
    file.write_bytes(make_docx(f"<w:p>{run(TEXT)}</w:p>"))
    page.locator("#file").set_input_files(file)
    expect(page.locator("#progress-text")).to_have_text("letter.Docx: done")
    with page.expect_download() as download:
        page.locator("#save").click()
    assert download.value.suggested_filename == "letter.de.Docx"
    translated = make_docx(f"<w:p>{run(loaded[0].translate(TEXT).text)}</w:p>")
    assert unpack(Path(download.value.path()).read_bytes()) == unpack(translated)


def test_what_is_no_document_is_said(browser: Browser, server: Running, tmp_path: Path):
    page = browser.new_page()
    page.goto(server.url)
    translate(page, TEXT)
    file = tmp_path / "letter.odt"
    file.write_bytes(b"two")
    page.locator("#file").set_input_files(file)
    expect(page.locator("#progress-text")).to_contain_text("letter.odt: damaged, or not a .odt document")
    expect(page.locator("#stop")).to_be_hidden()
    assert page.locator("#progress").evaluate("bar => bar.value") == 0
    page.close()


def test_a_key_is_asked_for_where_one_is_needed(visit: Visit, browser: Browser, loaded: list[Translator]):
    with running(loaded, keys=[KEY]) as server:
        page = browser.new_page()
        page.goto(server.url)
        translate(page, TEXT)
        expect(page.locator("#status")).to_contain_text("an API key is required")
        page.locator("#key").fill(KEY)
        expect(page.locator("#translation")).to_have_text(loaded[0].translate(TEXT).text)
        page.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (820, "light"), (1200, "dark")])
def test_nothing_is_wider_than_the_screen(visit: Visit, width: int, scheme: str):
    page = visit(width=width, color_scheme=scheme)
    translate(page, f"{TEXT} {'nine' * 12}\n{TEXT}")
    expect(page.locator("#seen .word").first).to_be_visible()
    page.locator("#translation button").first.click()
    expect(page.locator("#choices li button").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_api_is_described(visit: Visit, server: Running):
    page = visit("/docs", width=360)
    paths = server.get("/openapi.json").json["paths"]
    for path in paths:
        expect(page.locator(f'[id="{path}"] h3')).to_contain_text(path)
    expect(page.locator('[id="/v1/translate"]')).to_contain_text("n_best")
    expect(page.locator('[id="/translate"] pre')).to_have_text(
        f'curl {server.url}/translate -d q="it is forty-two" -d source=en -d target=de'
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
