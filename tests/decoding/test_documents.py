"""`transduce translate` with HTML and documents: texts are translated, all else stays, files are whole or absent."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import make_docx, make_epub, make_open, make_pptx, run, unpack
from jobs import run_job
from models import save_tiny

from transduce.cli import main
from transduce.decoding import files
from transduce.decoding.documents import translate_document
from transduce.decoding.options import Options, Request
from transduce.decoding.translation import Translation
from transduce.decoding.translator import Translator
from transduce.text import numbers
from transduce.text.markup import Markup
from transduce.text.office import ENDINGS
from transduce.text.subwords import Subwords, SubwordsConfig, learn

PAGE = '<!DOCTYPE html>\r\n<p class="a">{}</p>\n<style>p {{color: red}}</style>\n<ul><li>{}</li></ul>'
TEXTS = ("two euros", "nine dollars")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page of two texts with tags around them."""
    path = tmp_path / "page.HTML"
    path.write_bytes(PAGE.format(*TEXTS).encode())
    return path


@pytest.fixture
def expected(translator: Translator) -> str:
    """Return the page with translations in it."""
    return PAGE.format(*(found.text for found in translator.translate(TEXTS)))


def test_a_file_is_known_by_its_name(tiny: Path, page: Path, expected: str, capfd: pytest.CaptureFixture[str]):
    out = page.with_name("out.html")
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 0
    assert out.read_bytes().decode() == expected
    assert sorted(path.name for path in page.parent.iterdir()) == ["out.html", "page.HTML"]
    capfd.readouterr()
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 1
    assert "already exists" in capfd.readouterr().err
    assert run_job(tiny, "--input", str(page), "--no-html", source=page) == 0
    assert capfd.readouterr().out.count("\n") == PAGE.count("\n") + 1  # a line for each line
    assert run_job(tiny, "--input", str(page), "--json", source=page) == 2
    assert "--no-html treats HTML as lines" in capfd.readouterr().err


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


def learn_tagged() -> Subwords:
    """Learn subwords with two language tags."""
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    return Subwords(learn(lines, SubwordsConfig(size=330, coverage=1.0, symbols=(">>de<<", ">>fr<<"))))


def test_a_tag_that_is_written_in_a_document_counts_as_one_word_of_it(tmp_path: Path):
    """The words of later sentences have the markup that they have when the translator puts the tag there."""
    folder = save_tiny(tmp_path / "many", subwords=learn_tagged())
    texts = (
        "<p>{}<b>Two</b> euros. They <i>paid</i> nine <b>dollars</b>. It <i>is</i> ten <b>past</b> <u>three</u>.</p>"
    )
    pages: list[str] = []
    for tag, before in (("", "&gt;&gt;fr&lt;&lt; "), ("fr", "")):
        translator, page = Translator.load(folder, device="cpu", tag=tag), Markup(texts.format(before))
        found = translate_document(translator, page, Options(split="always"), {}, Request(""))
        assert all(links for _, links in found)
        pages.append(page.fill(found))
    assert pages[0] == pages[1]
    assert pages[0] != texts.format("")


@pytest.mark.parametrize(
    ("languages", "tag", "name"),
    [(["eng", "fra"], "", "fr"), ([], "de", "de"), (["en", "xx"], "", "en"), ([], "", "en")],
)
def test_a_page_names_the_language_of_its_translation(
    tmp_path: Path, languages: list[str], tag: str, name: str, capfd: pytest.CaptureFixture[str]
):
    """Which is known from the model or from the tag; if not, the page stays as it is."""
    folder = save_tiny(tmp_path / "many", subwords=learn_tagged(), about={"languages": languages})
    page = tmp_path / "page.html"
    page.write_text(shown := '<html lang="en"><p lang="fr">deux</p>two</html>')
    flags = ["--tag", tag] if tag else []
    assert run_job(folder, "--input", str(page), *flags, source=page) == 0
    said = Translator.load(folder, device="cpu", tag=tag).translate("two").text
    assert capfd.readouterr().out == shown.replace('"en"', f'"{name}"').replace("two", said)
    assert main(["translate", str(folder), *flags, "--html", "--device", "cpu", "--text", shown]) == 0
    assert capfd.readouterr().out.startswith(f'<html lang="{name}"><p lang="fr">deux</p>')


def write_long(path: Path, first: str) -> None:
    """Write a document of 40 texts."""
    words = [first, *["two"] * 39]
    if path.suffix == ".srt":
        seen = (
            f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{word} <i>euros</i> {n} here.\n"
            for n, word in enumerate(words)
        )
        path.write_text("\n".join(seen))
    elif path.suffix == ".html":
        path.write_text("\n".join(f"<p>{word} <b>euros</b> {number}</p>" for number, word in enumerate(words)))
    else:
        runs = (f"<w:p>{run(word)}{run(' euros', '<w:b/>')}{run(f' {n}')}</w:p>" for n, word in enumerate(words))
        path.write_bytes(make_docx("".join(runs)))


@pytest.mark.parametrize("ending", [".html", ".docx", ".srt"])
def test_a_file_that_was_interrupted_goes_on(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ending: str
):
    """With the lines already translated, which are not translated again; the result is as from one go."""
    page, out, whole = (tmp_path / f"{name}{ending}" for name in ("page", "out", "whole"))
    write_long(page, "two")
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
    assert len(asked) == len((tmp_path / f"{out.name}.partial").read_text().splitlines()) == 16
    write_long(page, "nine")
    assert main([*command, "--out", str(out)]) == 1
    assert "its 16 texts are not the first of this document" in capfd.readouterr().err
    assert main([*command, "--out", str(out), "--beam", "1"]) == 1
    assert "was started with beam = 2, not 1" in capfd.readouterr().err
    write_long(page, "two")
    asked = ["another"]
    monkeypatch.setattr(Translator, "stream", stream)
    assert main([*command, "--out", str(out)]) == 0
    assert f"{out}: resuming after 16 texts" in capfd.readouterr().err
    assert len(asked) == 1 + 24
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, page.name, whole.name]


def test_what_is_not_utf8_is_named(tiny: Path, page: Path, capfd: pytest.CaptureFixture[str]):
    page.write_bytes(b"<p>\n<b>Stra\xdfe</b>")
    out = page.with_name("out.html")
    assert run_job(tiny, "--input", str(page), "--out", str(out), source=page) == 1
    assert f"{page}:2: not UTF-8" in capfd.readouterr().err
    assert not out.exists()


SUBTITLES = "\ufeff{}1\r\n00:01.000 --> 00:02.000\r\n{{\\an8}}{}\r\n\r\n2\r\n00:05.000 --> 00:06.000\r\n<i>{}</i>"


@pytest.mark.parametrize("ending", [".srt", ".vtt"])
def test_subtitles(tiny: Path, translator: Translator, tmp_path: Path, capfd: pytest.CaptureFixture[str], ending: str):
    head = "WEBVTT\r\n\r\n" if ending == ".vtt" else ""
    source, out = tmp_path / f"in{ending.upper()}", tmp_path / f"out{ending}"
    source.write_bytes(SUBTITLES.format(head, *TEXTS).encode())
    assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0
    expected = SUBTITLES.format(head, *(translator.translate(text).text for text in TEXTS))
    assert out.read_bytes().decode() == expected
    assert f"{out}: translated" in capfd.readouterr().err
    assert run_job(tiny, "--input", str(source), source=source) == 0
    assert capfd.readouterr().out == expected


def test_a_sentence_over_cues_is_translated_whole(tmp_path: Path):
    """And each cue has the part of the translation that comes from its words."""
    source, out = tmp_path / "in.srt", tmp_path / "out.srt"
    seen = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:02,000 --> 00:00:03,000\n{}\n"
    cues = "If you had read this letter,", "you would have told me who wrote it."
    source.write_text(seen.format(*cues))
    assert run_job("en-de", "--input", str(source), "--out", str(out), source=source) == 0
    first, second = (cue.split("\n", 2)[2].split() for cue in out.read_text(encoding="utf-8").split("\n\n", 1))
    said = Translator.load("en-de", device="cpu").translate(" ".join(cues)).text.split()
    assert [*first, *second] == said
    assert first[-1].endswith(",")
    assert "Brief" in " ".join(first)


def test_documents_of_all_kinds(tiny: Path, translator: Translator, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    first, second = (translator.translate(text).text for text in TEXTS)
    slide = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"
    makers: dict[str, Callable[[str, str], bytes]] = {
        ".docx": lambda *texts: make_docx("".join(f"<w:p>{run(text)}</w:p>" for text in texts)),
        ".odt": lambda *texts: make_open("".join(f"<text:p>{text}</text:p>" for text in texts)),
        ".odp": lambda *texts: make_open("".join(f"<text:p>{text}</text:p>" for text in texts), "presentation"),
        ".pptx": lambda *texts: make_pptx(*map(slide.format, texts)),
        ".epub": lambda *texts: make_epub("".join(f"<p>{text}</p>" for text in texts)),
    }
    assert tuple(sorted(makers)) == tuple(sorted(ENDINGS))
    for ending, make in makers.items():
        source, out = tmp_path / f"in{ending.upper()}", tmp_path / f"out{ending}"
        source.write_bytes(make(*TEXTS))
        assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0
        assert unpack(out.read_bytes()) == unpack(make(first, second))
        assert f"{out}: translated" in capfd.readouterr().err
        empty, copy = tmp_path / f"empty{ending}", tmp_path / f"copy{ending}"
        empty.write_bytes(make("12", "") if ending != ".epub" else make("", ""))
        assert run_job(tiny, "--input", str(empty), "--out", str(copy), source=empty) == 0
        assert copy.read_bytes() == empty.read_bytes()
        assert f"{copy}: copied unchanged, as it has no text" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "flags", "code", "reason"),
    [
        ("a.docx", [], 2, "a.docx is translated into another .docx file; name it with --out, ending in .docx"),
        (
            "a.docx",
            ["--out", "b.odt"],
            2,
            "a.docx is translated into another .docx file; name it with --out, ending in .docx",
        ),
        ("a.docx", ["--out", "b.docx", "--json"], 2, ".docx files are translated as a whole"),
        ("a.pdf", ["--out", "b.pdf"], 1, "a.pdf: .pdf files are not supported; save it as .docx, .odt, "),
        ("a.ass", ["--out", "b.ass"], 1, "a.ass: .ass subtitles are not supported; save them as .srt or .vtt"),
        (
            "a.docx",
            ["--out", "b.docx"],
            1,
            "a.docx: damaged, or not a .docx document (File is not a zip file); download or",
        ),
        (
            "a.srt",
            ["--out", "b.vtt"],
            2,
            "a.srt is translated into another .srt file; name it with --out, ending in .srt",
        ),
        ("a.srt", ["--json"], 2, ".srt files are translated as a whole"),
        ("a.srt", ["--out", "b.srt"], 1, "a.srt:1: no line has times such as 00:00:01,000 --> 00:00:02,500"),
        ("none.docx", ["--out", "b.docx"], 1, "none.docx: cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    tiny: Path,
    tmp_path: Path,
    name: str,
    flags: list[str],
    code: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    for each in ("a.docx", "a.pdf", "a.srt"):
        Path(each).write_text("two")
    assert run_job(tiny, "--input", name, *flags, source=Path("a.docx")) == code
    error = capfd.readouterr().err
    assert reason in error
    assert "Traceback" not in error
    assert not list(tmp_path.glob("b.*"))


def test_a_document_in_another_language_is_noted(
    translator: Translator, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    source = tmp_path / "a.docx"
    source.write_bytes(make_docx(f"<w:p>{run('Das ist nicht das, was wir heute von Ihnen gelernt haben.')}</w:p>"))
    assert run_job("en-de", "--input", str(source), "--out", str(tmp_path / "b.docx"), source=source) == 0
    assert "note: this looks like German, but the model translates from English" in capfd.readouterr().err
