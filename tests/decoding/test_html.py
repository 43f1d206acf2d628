"""`transduce translate` with HTML: tags stay, texts are translated, files are whole or not there."""

import io
import sys
from pathlib import Path

import pytest
from jobs import run_job

from transduce.cli import main
from transduce.decoding.translator import Translator

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


def test_what_is_not_utf8_is_named(tiny: Path, page: Path, capfd: pytest.CaptureFixture[str]):
    page.write_bytes(b"<p>\n<b>Stra\xdfe</b>")
    out = page.with_name("out.html")
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 1
    assert f"{page}:2: not UTF-8" in capfd.readouterr().err
    assert not out.exists()
