"""In a notebook, a sentence is shown as its page, in a frame and with nothing from elsewhere."""

import html
import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

import transduce
from transduce.cli import main
from transduce.decoding.translator import Translator
from transduce.seeing.options import PictureConfig
from transduce.seeing.run import choose

TEXT = 'two euros & "nine" <b>dollars</b>'


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_sentence_is_shown_in_a_frame(translator: Translator):
    seen = transduce.see(translator, TEXT)
    ((tag, frame),) = Tags(seen._repr_html_()).found
    assert (tag, frame["title"]) == ("iframe", TEXT)
    assert frame["sandbox"] == "allow-scripts allow-downloads"  # not the notebook's own origin
    page = frame["srcdoc"] or ""
    assert page == seen.page()
    assert page.startswith("<!DOCTYPE html>")
    loaded = [value for _, attrs in Tags(page).found for name, value in attrs.items() if name in ("src", "href")]
    assert loaded == []
    assert "default-src 'none'" in page
    assert html.escape(TEXT) in page
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)


def test_a_picture_is_shown_as_svg(translator: Translator):
    picture = choose(transduce.see(translator, TEXT), PictureConfig())
    root = ElementTree.fromstring(picture._repr_svg_())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall(".//{http://www.w3.org/2000/svg}line"))


class NotebookOutput(io.StringIO):
    """Standard output as in ipykernel: text only, and no terminal."""


def test_a_verb_may_be_called_in_a_notebook(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    printed = NotebookOutput()
    monkeypatch.setattr(sys, "stdout", printed)
    assert not hasattr(printed, "buffer")
    arguments = ["translate", str(tiny), "--text", "two euros", "--engine", "torch", "--device", "cpu"]
    assert main(arguments) == 0
    monkeypatch.undo()
    assert printed.getvalue().endswith("\n")
