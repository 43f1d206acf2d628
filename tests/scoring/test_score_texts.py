"""Scored texts match line by line, and what does not match is named with its file and line."""

import gzip
import io
import lzma
import os
import sys
from pathlib import Path

import pytest
import zstandard
from systems import make_texts, write

from transduce.errors import DataError, UsageError
from transduce.scoring.texts import STANDARD_INPUT, find_oddities, read_lines, read_texts
from transduce.text.corpus import find_language

LINES = ["eins", "zwei  Äpfel ", "\u2028drei\x85", "vi\rer"]


def type_in(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """Put text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_files_are_read_as_they_are_compressed_or_not(tmp_path: Path, suffix: str):
    raw = "\n".join(LINES).encode()  # without a newline at the end
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[suffix]
    path = tmp_path / f"text.de{suffix}"
    path.write_bytes(pack(raw))
    assert read_lines(path) == LINES
    assert find_language(path) == "de"


def test_windows_lines_and_a_byte_order_mark_are_no_part_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    raw = b"\xef\xbb\xbfeins\r\nzwei\r\n"
    (tmp_path / "text").write_bytes(raw)
    assert read_lines(tmp_path / "text") == ["eins", "zwei"]
    type_in(monkeypatch, raw)
    assert read_lines(STANDARD_INPUT) == ["eins", "zwei"]


def test_a_hyphen_is_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reference = write(tmp_path / "reference", LINES)
    type_in(monkeypatch, "\n".join(LINES).encode())
    texts = read_texts([STANDARD_INPUT], [reference], None)
    assert [(system.name, system.lines) for system in texts.systems] == [("standard input", LINES)]
    type_in(monkeypatch, b"")
    with pytest.raises(DataError, match="standard input: it is empty"):
        read_texts([STANDARD_INPUT], [reference], None)
    with pytest.raises(UsageError, match=r"standard input \(-\) can be read once"):
        read_texts([STANDARD_INPUT], [reference], STANDARD_INPUT)


def test_files_of_different_lengths_are_named_with_their_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, other, source = (write(tmp_path / name, ["x"] * n) for name, n in (("a", 3), ("b", 1200), ("c", 3)))
    with pytest.raises(DataError, match=rf"^{one} has 3 lines but {other} has 1,200 lines; line n of one file"):
        read_texts([one], [other], None)
    with pytest.raises(DataError, match=rf"{one} has 3 lines but {source} has 3 lines but {other} has 1,200 lines"):
        read_texts([one, source], [other], None)
    with pytest.raises(DataError, match=rf"{one} has 3 lines but .* but {other} has 1,200 lines"):
        read_texts([one], [source], other)
    type_in(monkeypatch, b"x\n")
    with pytest.raises(DataError, match=rf"standard input has 1 lines but {one} has 3 lines"):
        read_texts([STANDARD_INPUT], [one], None)


def test_what_is_not_utf_8_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "text"
    path.write_bytes(b"ok\n\xe4pfel\nok\nab\xff\n")
    with pytest.raises(DataError) as caught:
        read_lines(path)
    assert str(caught.value).splitlines() == [
        f"{path}:2: not UTF-8 (byte 0xE4 at position 1)",
        f"{path}:4: not UTF-8 (byte 0xFF at position 3)",
        "convert the file to UTF-8",
    ]
    type_in(monkeypatch, b"\xff\n" * 1300)
    with pytest.raises(DataError) as caught:
        read_lines(STANDARD_INPUT)
    assert str(caught.value).splitlines()[4:] == [
        "standard input:5: not UTF-8 (byte 0xFF at position 1)",
        "and 1,295 more lines like these",
        "convert the file to UTF-8",
    ]


def test_line_numbers_go_on_over_many_lines(tmp_path: Path):
    """Files are read in blocks."""
    path = tmp_path / "text"
    path.write_bytes(b"ok\n" * 5000 + b"\xff\n")
    with pytest.raises(DataError, match=r"text:5001: not UTF-8"):
        read_lines(path)


def test_an_empty_reference_is_named_with_its_line(tmp_path: Path):
    hypothesis = write(tmp_path / "hypothesis", ["a", "", "c"])
    one, other = write(tmp_path / "one", ["a", " ", ""]), write(tmp_path / "other", ["x", "b", ""])
    with pytest.raises(DataError) as caught:
        read_texts([hypothesis], [one], None)
    assert str(caught.value).splitlines()[:2] == [
        f"{one}:2: the reference is empty",
        f"{one}:3: the reference is empty",
    ]
    with pytest.raises(DataError, match=rf"^{one}:3: the reference is empty, and all others too\nevery sentence needs"):
        read_texts([hypothesis], [one, other], None)


def test_of_several_references_some_may_be_missing(tmp_path: Path):
    hypothesis = write(tmp_path / "hypothesis", ["a", "b"])
    one, other = write(tmp_path / "one", ["", "b"]), write(tmp_path / "other", ["x", "y"])
    texts = read_texts([hypothesis], [one, other], None)
    assert texts.references == [[None, "b"], ["x", "y"]]
    assert [texts.references_of(line) for line in (0, 1)] == [["x"], ["b", "y"]]
    assert texts.first_references() == ["x", "b"]


def test_a_pipe_can_be_read():
    reading, writing = os.pipe()
    os.write(writing, b"eins\nzwei\n")
    os.close(writing)
    assert read_lines(Path(f"/dev/fd/{reading}")) == ["eins", "zwei"]
    os.close(reading)


def test_a_file_is_not_its_own_reference(tmp_path: Path):
    path, copy = write(tmp_path / "text", LINES), tmp_path / "again"
    copy.symlink_to(path)
    other = write(tmp_path / "other", LINES)
    for same in (path, copy):
        with pytest.raises(UsageError, match="given as a translation and as its reference"):
            read_texts([same], [path], None)
        with pytest.raises(UsageError, match="is given twice"):
            read_texts([path, same], [other], None)
    # The source may be one: what is not translated at all has a score too.
    assert read_texts([path], [other], path).source == LINES


def test_a_file_that_is_missing_empty_or_a_folder_is_named(tmp_path: Path):
    text, empty = write(tmp_path / "text", LINES), write(tmp_path / "empty", [])
    for path, message in (
        (tmp_path / "nowhere", "nowhere: cannot be read: No such file"),
        (empty, "empty: the file is empty"),
        (tmp_path, "this is a folder; name a file"),
    ):
        with pytest.raises(DataError, match=message):
            read_texts([path], [text], None)


def test_systems_go_by_what_tells_their_files_apart(tmp_path: Path):
    reference = write(tmp_path / "reference", LINES)
    paths = [tmp_path / "one" / "out", tmp_path / "two" / "out", tmp_path / "three"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        write(path, LINES)
    names = [system.name for system in read_texts(paths, [reference], None).systems]
    assert names == ["one/out", "two/out", "three"]


def test_the_language_is_found_in_the_name():
    found = {
        name: find_language(Path(name)) for name in ("newstest2014.de.xz", "a.FR", "a.b/ref", "-", "a.gz", "x.txt")
    }
    assert found == {"newstest2014.de.xz": "de", "a.FR": "fr", "a.b/ref": None, "-": None, "a.gz": None, "x.txt": "txt"}


def test_what_is_seldom_meant_is_said():
    reference = ["Das ist es.", "Ja.", "So.", "Nein, nie."]
    assert list(find_oddities(make_texts([["Das.", "Ja.", "So ist es.", "x"]], [reference]))) == []
    [empty] = find_oddities(make_texts([["Das.", " ", "", "x"]], [reference]))
    assert empty == "system 1: lines without a translation: 2 of 4"
    [equal] = find_oddities(make_texts([["x"] * 4, list(reference)], [["a"] * 4, reference]))
    assert equal.startswith("system 2: every line equals its reference")
    [tokenised] = find_oddities(make_texts([["Das ist .", "Ja .", "So .", "Nein , nie ."]], [reference]))
    assert "detokenise" in tokenised
    trees = make_texts([["(S (NN a))", "(S (NN b))"]], [["(NP (NN a))", "(NP (NN b))"]])
    lines = [f'{{"source": "a", "translation": "{line}", "score": -1.5}}' for line in reference]
    [as_text] = find_oddities(make_texts([lines], [reference]))
    assert "these lines are JSON, scored here as plain text" in as_text
    for other in ("Das.", "{", '{"text": "Das."}', "{" * 100_000):
        assert not list(find_oddities(make_texts([[*lines[:-1], other]], [reference])))
    [as_words] = find_oddities(trees)
    assert as_words.endswith("for labelled F1 give --metrics parseval")
    assert not list(find_oddities(trees, trees=True))
    assert not list(find_oddities(make_texts([["(a)", "(b)"]], [["(a)", "b"]])))
    assert not list(find_oddities(make_texts([["Das ist .", "Ja .", "So .", "x ."]], [["a ."] * 4])))
