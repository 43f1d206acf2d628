"""The site is complete: it builds strictly, loads nothing from elsewhere, shows source and equations as they are."""

import importlib
import inspect
import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from textwrap import dedent
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, fromstring

import pytest
from built import ROOT, build_site
from pages import PAGES, blocks


class Page(HTMLParser):
    """What a page links to and loads, its anchors, its equations, and the text of its code blocks."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self.code: list[str] = []
        self.text = ""
        self.within: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.within.append(tag)
        if tag == "pre":
            self.code.append("")
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag in ("link", "script", "img", "iframe", "source"):
            self.loads |= {given[name] for name in ("href", "src") if given.get(name)}

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "pre" in self.within:
            self.code[-1] += data
        elif "script" not in self.within and "code" not in self.within:
            self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build_site(folder)
    assert built.returncode == 0, built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """The pages by file, but for 404.html, which is laid out for the root of a server."""
    return {path.name: Page(path) for path in site.glob("*.html") if path.name != "404.html"}


def test_every_page_is_there(pages: dict[str, Page]) -> None:
    assert set(pages) == {f"{Path(page).stem}.html" for page in PAGES if page != "README.md"}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        for target in page.loads:
            if not target.startswith("data:"):
                assert not urlsplit(target).scheme, f"{name}: {target}"
                assert (site / unquote(urlsplit(target).path)).exists(), f"{name}: {target}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_links_lead_to_pages_and_anchors(site: Path, pages: dict[str, Page]) -> None:
    followed = 0
    for name, page in pages.items():
        for link in page.links:
            path, anchor = unquote(urlsplit(link).path), urlsplit(link).fragment
            if urlsplit(link).scheme:
                continue
            target = path or name
            assert (site / target).exists(), f"{name}: {link}"
            if anchor and target.endswith(".html"):
                assert anchor in pages[Path(target).name].anchors, f"{name}: {link}"
            followed += 1
    assert followed > 500


def test_source_is_what_python_says_it_is(pages: dict[str, Page]) -> None:
    named = [text.split() for language, text in blocks("docs/walk.md") if language == "source"]
    assert len(named) >= 20
    shown = {code.strip() for code in pages["walk.html"].code}
    for file, name in named:
        found = importlib.import_module(f"transduce.{file.removesuffix('.py').replace('/', '.')}")
        for part in name.split("."):
            found = getattr(found, part)
        assert dedent(inspect.getsource(found)).strip() in shown, f"{file} {name}"


def equations(site: Path) -> list[Element]:
    return [fromstring(math) for math in re.findall(r"<math.*?</math>", (site / "walk.html").read_text(), re.DOTALL)]


def test_equations_are_mathml(site: Path, pages: dict[str, Page]) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / "docs/walk.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    found = equations(site)
    assert len([math for math in found if math.get("display") == "block"]) == text.count("$$") / 2 > 8
    assert len(found) == text.count("$$") / 2 + text.replace("$$", "").count("$") / 2
    assert all("$" not in page.text for page in pages.values())
    # No command of LaTeX is left over as a word.
    assert not [math.get("alttext") for math in found if "\\" in "".join(math.itertext())]


def test_no_mark_of_markdown_is_left_over(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        left = re.search(r"^[-*] \S|\|-{2,}|\*\*|\]\(", page.text, re.MULTILINE)
        assert left is None, f"{name}: {page.text[left.start() - 40 : left.end() + 40]}"


def test_numbers_in_equations_are_those_of_the_paper(site: Path) -> None:
    scaled = next(math for math in equations(site) if (math.get("alttext") or "").startswith(r"\text{Attention}"))
    assert scaled.find(".//mfrac/mrow[2]//msqrt") is not None
    assert "".join(scaled.itertext()).replace(" ", "") == "Attention(Q,K,V)=softmax(QK⊤dk)V"


def test_pictures_are_what_their_script_draws() -> None:
    folder, number = ROOT / "docs" / "pictures", re.compile(r"-?\d+\.?\d*")
    for name, draw in runpy.run_path(str(folder / "walk.py"))["PICTURES"].items():
        drawn, kept = draw(), (folder / name).read_text(encoding="utf-8")
        assert number.sub("", drawn) == number.sub("", kept)
        # But for the last digit, which another machine may round the other way.
        numbers = [[float(found) for found in number.findall(some)] for some in (drawn, kept)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.11)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("[nowhere](nowhere.md)", "page does not exist"),
        ("[nowhere](format.md#nowhere)", "anchor does not exist"),
        ("```source\nmodel/attention.py nothing\n```", "there is no nothing in model/attention.py"),
    ],
)
def test_what_is_wrong_ends_the_build(tmp_path: Path, more: str, complaint: str) -> None:
    built = build_site(tmp_path, index=more)
    assert built.returncode != 0
    assert complaint in re.sub(r"\x1b\[[\d;]*m", "", built.stdout + built.stderr)
