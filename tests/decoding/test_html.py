"""`transduce translate` with HTML: tags stay, texts are translated, files are whole or not there."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import run_job

from transduce.cli import main
from transduce.decoding import files
from transduce.decoding.options import Request
from transduce.decoding.translator import Translation, Translator

PAGE = '<!DOCTYPE html>\r\n<p class="a">{}</p>\n<style>p {{color: red}}</style>\n<ul><li>{}</li></ul>'
TEXTS = ("two euros", "nine dollars")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Two texts with tags around them."""
    path = tmp_path / "page.HTML"
    path.write_bytes(PAGE.format(*TEXTS).encode())
    return path


@pytest.fixture
def expected(translator: Translator) -> str:
    """The page with translations in it."""
    return PAGE.format(*(found.text for found in translator.translate(TEXTS)))


def test_a_file_is_known_by_its_name(tiny: Path, page: Path, expected: str, capfd: pytest.CaptureFixture[str]):
    out = page.with_name("out.html")
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 0
    assert out.read_bytes().decode() == expected
    assert sorted(path.name for path in page.parent.iterdir()) == ["out.html", "page.HTML"]
    capfd.readouterr()
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 1
    assert "is there already" in capfd.readouterr().err
    assert run_job(tiny, "--input", str(page), "--no-html", source=page) == 0
    assert capfd.readouterr().out.count("\n") == PAGE.count("\n") + 1  # a line for each line
    assert run_job(tiny, "--input", str(page), "--json", source=page) == 2
    assert "--no-html takes HTML as lines" in capfd.readouterr().err


def test_texts_and_pipes_may_be_html_too(
    tiny: Path,
    translator: Translator,
    expected: str,
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    assert main(["translate", str(tiny), "--html", "--device", "cpu", "--text", "two <b>euros</b>"]) == 0
    said = capsys.readouterr().out
    assert said.count("<b>") == said.count("</b>")
    assert said.replace("<b>", "").replace("</b>", "").strip() == translator.translate("two euros").text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(page.read_bytes())))
    assert main(["translate", str(tiny), "--html", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == expected


def test_a_file_that_was_interrupted_goes_on(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """With what it has said before, which is not translated again; and what is there at the end is as in one go."""
    page, out, whole = tmp_path / "page.html", tmp_path / "out.html", tmp_path / "whole.html"
    page.write_text("\n".join(f"<p>{word} <b>euros</b> {number}</p>" for number, word in enumerate(["two"] * 40)))
    monkeypatch.setattr(files, "FIRST_TEXTS", 8)
    command = ["translate", str(tiny), "--device", "cpu", "--input", str(page)]
    assert main([*command, "--out", str(whole)]) == 0
    usual, asked = Translator.stream, list[str]()

    def stream(self: Translator, texts: list[Request], *rest: Any, **more: Any) -> Iterator[Translation]:
        if len(asked) == 16:
            raise KeyboardInterrupt
        asked.extend(request.text for request in texts)
        yield from usual(self, texts, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "stream", stream)
        assert main([*command, "--out", str(out)]) == 130
    assert not out.exists()
    assert len(asked) == len((tmp_path / "out.html.partial").read_text().splitlines()) == 16
    before = page.read_text()
    page.write_text(before.replace("two", "nine", 1))
    assert main([*command, "--out", str(out)]) == 1
    assert "its 16 texts are not the first of this HTML" in capfd.readouterr().err
    assert main([*command, "--out", str(out), "--beam", "1"]) == 1
    assert "was begun with beam = 2, not 1" in capfd.readouterr().err
    page.write_text(before)
    asked = ["another"]
    monkeypatch.setattr(Translator, "stream", stream)
    assert main([*command, "--out", str(out)]) == 0
    assert "out.html: 16 texts are there from before; going on" in capfd.readouterr().err
    assert len(asked) == 1 + 24
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "page.html", "whole.html"]


def test_what_is_not_utf8_is_named(tiny: Path, page: Path, capfd: pytest.CaptureFixture[str]):
    page.write_bytes(b"<p>\n<b>Stra\xdfe</b>")
    out = page.with_name("out.html")
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 1
    assert f"{page}:2: not UTF-8" in capfd.readouterr().err
    assert not out.exists()
