"""Whatever people's files look like, line n of one side stays with line n of the other, or the fault is named."""

import bz2
import csv
import gc
import gzip
import io
import json
import lzma
import sys
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from transduce.disk import short_names
from transduce.errors import DataError
from transduce.text import corpus, numbers
from transduce.text.corpus import (
    BLOCK_LINES,
    Format,
    Input,
    Problem,
    decode_block,
    find_format,
    looks_quoted,
    read_blocks,
)


def _compress_zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": _compress_zstd,
}
PAIRS = [
    ("The ship leaves at noon.", "Das Schiff fährt mittags ab."),
    ("The library is closed.", "Библиотека закрыта."),
    ("Good morning!", "早上好！"),
    ("Thank you.", "شكرا لك."),
]


def read(given: Input) -> tuple[list[tuple[int, str, str]], list[Problem]]:
    """Return all pairs of an input with their line numbers, and all problems."""
    pairs: list[tuple[int, str, str]] = []
    problems: list[Problem] = []
    for block in read_blocks(0, given):
        decoded = decode_block(block, given)
        lines = [block.line(row) for row in decoded.rows]
        pairs += zip(lines, decoded.source, decoded.target, strict=True)
        problems += decoded.problems
    return pairs, problems


def numbered(pairs: list[tuple[str, str]]) -> list[tuple[int, str, str]]:
    return [(line, *pair) for line, pair in enumerate(pairs, start=1)]


def aligned(folder: Path, source: bytes, target: bytes, suffix: str = "") -> Input:
    """Write two aligned files with exactly these bytes."""
    files = folder / f"text.en{suffix}", folder / f"text.de{suffix}"
    for file, data in zip(files, (source, target)):
        file.write_bytes(data)
    return Input(files=files, format="lines")


def one_file(folder: Path, name: str, data: bytes | str, **settings: object) -> Input:
    """Write one file of pairs, whose name tells its format."""
    file = folder / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return Input(files=(file,), format=find_format(file), **settings)  # pyright: ignore[reportArgumentType]


def write_as(format: Format, pairs: list[tuple[str, str]]) -> tuple[bytes, ...]:
    """Return the contents of files that hold some pairs in a format."""
    match format:
        case "lines":
            return tuple("".join(f"{pair[side]}\n" for pair in pairs).encode() for side in (0, 1))
        case "tsv":
            text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        case "jsonl":
            text = "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)
        case _:
            units = "".join(
                f'<tu><tuv xml:lang="en"><seg>{escape(source)}</seg></tuv>'
                f'<tuv xml:lang="de"><seg>{escape(target)}</seg></tuv></tu>\n'
                for source, target in pairs
            )
            text = f'<tmx version="1.4"><body>{units}</body></tmx>'
    return (text.encode(),)


def make_input(folder: Path, format: Format, contents: tuple[bytes, ...], suffix: str = "") -> Input:
    if format == "lines":
        return aligned(folder, contents[0], contents[1], suffix)
    return one_file(folder, f"text.{format}{suffix}", contents[0])


# ---- formats and compression ----


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl", "tmx"])
def test_every_format_reads_the_same_plain_or_compressed(tmp_path: Path, format: Format, suffix: str):
    compress = COMPRESS.get(suffix, bytes)
    given = make_input(tmp_path, format, tuple(map(compress, write_as(format, PAIRS))), suffix)
    assert read(given) == (numbered(PAIRS), [])
    assert given.size == sum(file.stat().st_size for file in tmp_path.iterdir())


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_may_have_several_members(tmp_path: Path, suffix: str):
    """As `cat a.gz b.gz`, pigz, pzstd and bgzip make them; a line may begin in one member and end in the next."""
    compress = COMPRESS[suffix]
    source, target = write_as("lines", PAIRS)
    in_pieces = b"".join(compress(target[start : start + 7]) for start in range(0, len(target), 7))
    given = aligned(tmp_path, compress(source), in_pieces + compress(b""), suffix)
    assert read(given) == (numbered(PAIRS), [])


def test_a_zstd_file_may_have_skippable_frames(tmp_path: Path):
    skippable = (0x184D2A50).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    contents = write_as("lines", PAIRS)
    source, target = (skippable + _compress_zstd(part) + skippable for part in contents)
    assert read(aligned(tmp_path, source, target, ".zst")) == (numbered(PAIRS), [])


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_cut_off_anywhere_is_named(tmp_path: Path, suffix: str):
    data = COMPRESS[suffix]("".join(source + "\n" for source, _ in PAIRS).encode())
    for size in range(len(data)):
        given = one_file(tmp_path, f"text.tsv{suffix}", data[:size])
        with pytest.raises(DataError) as error:
            read(given)
        assert str(error.value).startswith(f"{given.files[0]}: ")
        assert "damaged" in str(error.value) or size == 0


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_changed_byte_is_named_or_changes_nothing(tmp_path: Path, suffix: str):
    text = write_as("tsv", PAIRS)[0]
    data = COMPRESS[suffix](text)
    named = 0
    for place in range(len(data)):
        given = one_file(tmp_path, f"text.tsv{suffix}", data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            assert read(given) == (numbered(PAIRS), []), place
        except DataError as error:
            assert str(error).startswith(f"{given.files[0]}: damaged"), place  # noqa: PT017
            named += 1
    assert named > len(data) // 2


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path: Path, suffix: str):
    given = make_input(tmp_path, "lines", write_as("lines", PAIRS), suffix)
    with pytest.raises(DataError, match=r"text\.en.*damaged, or not in the format its name says"):
        read(given)


def test_damage_is_placed_behind_the_lines_that_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus, "BLOCK_LINES", 100)
    data = gzip.compress("".join(f"line {n}\tZeile {n}\n" for n in range(100_000)).encode())
    given = one_file(tmp_path, "text.tsv.gz", data[: len(data) // 2])
    blocks = read_blocks(0, given)
    read_before: list[int] = []
    with pytest.raises(DataError, match=r"somewhere after line [1-9]\d*,?\d* ") as error:
        read_before.extend(block.count for block in blocks)
    assert f"after line {sum(read_before):,} " in str(error.value)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.tsv", "tsv"),
        ("a.b.TSV", "tsv"),
        ("a.v1.jsonl.zst", "jsonl"),
        ("a.ndjson.xz", "jsonl"),
        ("a.tmx.GZ", "tmx"),
    ],
)
def test_the_format_is_told_by_the_name(name: str, format: str):
    assert find_format(Path(name)) == format


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "a.txt.gz", "a.tsv.zip", "tsv", ".tsv"])
def test_a_name_that_tells_no_format_is_an_error(name: str):
    with pytest.raises(DataError, match=r"the name does not tell this file's format.*\.tsv, \.jsonl or \.tmx"):
        find_format(Path(name))


# ---- lines stay with their lines ----

ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\ufeff"), max_size=12)
ANY_LINES = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff") | st.sampled_from('\n\r"\t'), max_size=12)
XML_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), max_size=12
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("corpus")


@settings(deadline=None)  # files take the time they take
@forall(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=6))
def test_aligned_files_read_back_as_written(folder: Path, pairs: list[tuple[str, str]]):
    given = make_input(folder, "lines", write_as("lines", pairs))
    assert read(given) == (numbered(pairs), [])


@settings(deadline=None)  # files take the time they take
@forall(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=6))
def test_json_lines_read_back_as_written(folder: Path, pairs: list[tuple[str, str]]):
    assert read(make_input(folder, "jsonl", write_as("jsonl", pairs))) == (numbered(pairs), [])


@settings(deadline=None)  # files take the time they take
@forall(st.lists(st.tuples(XML_TEXT, XML_TEXT), min_size=1, max_size=6))
def test_translation_memories_read_back_as_written(folder: Path, pairs: list[tuple[str, str]]):
    assert read(make_input(folder, "tmx", write_as("tmx", pairs))) == (numbered(pairs), [])


# What `str.splitlines` or a careless reader takes for the end of a line.
@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\x1d", "\x1e", "\r", "\x00"])
@pytest.mark.parametrize("format", ["lines", "tsv"])
def test_odd_line_ends_inside_a_line_do_not_shift_the_lines(tmp_path: Path, odd: str, format: Format):
    pairs = [("one", "eins"), (f"tw{odd}o", f"zwei{odd}"), ("three", "drei")]
    assert read(make_input(tmp_path, format, write_as(format, pairs))) == (numbered(pairs), [])


@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_windows_files_read_like_others(tmp_path: Path, format: Format, end: str, last: bool):
    """Line ends of two bytes, a byte order mark, no line end after the last line: as many lines, and the same text."""
    contents = (part.replace(b"\n", end.encode()) for part in write_as(format, PAIRS))
    contents = (part if last else part.removesuffix(end.encode()) for part in contents)
    pairs, problems = read(make_input(tmp_path, format, tuple(b"\xef\xbb\xbf" + part for part in contents)))
    assert [(line, source.rstrip("\r"), target.rstrip("\r")) for line, source, target in pairs] == numbered(PAIRS)
    assert problems == []


def test_empty_lines_are_lines(tmp_path: Path):
    given = aligned(tmp_path, b"\none\n\n", b"\n\neins")
    assert read(given) == ([(1, "", ""), (2, "one", ""), (3, "", "eins")], [])


@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl", "tmx"])
def test_lines_are_numbered_over_several_blocks(tmp_path: Path, format: Format):
    pairs = [(f"sentence {n}", f"Satz {n}") for n in range(2 * BLOCK_LINES + 5)]
    given = make_input(tmp_path, format, write_as(format, pairs))
    blocks = list(read_blocks(7, given))
    assert [block.count for block in blocks] == [BLOCK_LINES, BLOCK_LINES, 5]
    assert {block.input for block in blocks} == {7}
    assert read(given) == (numbered(pairs), [])
    positions = [block.position for block in blocks]
    assert positions == sorted(positions)
    assert positions[-1] == given.size


def test_a_file_of_exactly_one_block_ends_there(tmp_path: Path):
    pairs = [("a", "b")] * BLOCK_LINES
    assert [block.count for block in read_blocks(0, make_input(tmp_path, "lines", write_as("lines", pairs)))] == [4096]


# ---- faults are named ----


def test_every_line_that_is_not_utf8_is_named_with_its_file(tmp_path: Path):
    source = b"good\nf\xfcr\ngood\nbad \xff here\nend\n"
    target = b"gut\ngut\nSch\xe4den\n\xc3\ngut\n"
    given = aligned(tmp_path, source, target)
    pairs, problems = read(given)
    assert [line for line, _, _ in pairs] == [1, 5]
    assert [str(problem) for problem in sorted(problems)] == [
        f"{given.files[1]}:3: not UTF-8 (byte 0xE4 at position 4)",
        f"{given.files[1]}:4: not UTF-8 (byte 0xC3 at position 1)",
        f"{given.files[0]}:2: not UTF-8 (byte 0xFC at position 2)",
        f"{given.files[0]}:4: not UTF-8 (byte 0xFF at position 5)",
    ]


@pytest.mark.parametrize("format", ["tsv", "jsonl"])
def test_lines_that_are_not_utf8_are_named_in_later_blocks(tmp_path: Path, format: Format):
    lines = [*write_as(format, [("yes", "ja")] * 5000)[0].splitlines(keepends=True)]
    lines[4500] = lines[4500].replace(b"ja", b"j\xe4")
    pairs, problems = read(make_input(tmp_path, format, (b"".join(lines),)))
    assert [problem.line for problem in problems] == [4501]
    assert len(pairs) == 4999
    assert 4501 not in [line for line, _, _ in pairs]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl"])
def test_utf16_is_named(tmp_path: Path, codec: str, format: Format):
    contents = tuple(("\ufeff" * (codec == "utf-16-be") + c.decode()).encode(codec) for c in write_as(format, PAIRS))
    given = make_input(tmp_path, format, contents)
    with pytest.raises(DataError, match="UTF-16; convert it with: iconv") as error:
        read(given)
    assert str(error.value).startswith(f"{given.files[0]}:1: ")


@pytest.mark.parametrize(("source", "target"), [(3, 4), (4, 3), (0, 1), (BLOCK_LINES, 2 * BLOCK_LINES + 1)])
def test_files_of_unequal_length_are_named_with_their_lengths(tmp_path: Path, source: int, target: int):
    given = aligned(tmp_path, b"a\n" * source, b"b\n" * target)
    with pytest.raises(DataError) as error:
        read(given)
    assert f"{given.files[0]} has {source:,} lines but {given.files[1]} has {target:,} lines" in str(error.value)


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("format", ["lines", "tsv"])
def test_an_empty_file_is_named(tmp_path: Path, suffix: str, format: Format):
    empty = COMPRESS.get(suffix, bytes)(b"")
    given = make_input(tmp_path, format, (empty, empty), suffix)
    with pytest.raises(DataError, match="the file is empty") as error:
        read(given)
    assert str(given.files[0]) in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    given = aligned(tmp_path, b"a\n", b"b\n")
    given.files[1].unlink()
    with pytest.raises(DataError, match=r"text\.de: cannot be read: No such file"):
        read(given)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read(Input(files=(tmp_path,), format="tsv"))


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("format", ["lines", "tmx"])
def test_files_are_closed_when_reading_ends_early_or_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, format: Format
):
    monkeypatch.setattr(corpus, "BLOCK_LINES", 5)
    compress = COMPRESS.get(suffix, bytes)
    given = make_input(tmp_path, format, tuple(map(compress, write_as(format, PAIRS * 2))), suffix)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(read_blocks(0, given))) == 2
        assert len(list(islice(read_blocks(0, given), 1))) == 1
        given.files[-1].write_bytes(b"<")
        with pytest.raises(DataError):
            list(read_blocks(0, given))
        gc.collect()
    assert caught == []


# ---- TSV ----


@pytest.mark.parametrize(
    ("columns", "pair"), [((1, 2), ("0.9", "Good")), ((2, 3), ("Good", "Gut")), ((3, 2), ("Gut", "Good"))]
)
def test_columns_are_chosen(tmp_path: Path, columns: tuple[int, int], pair: tuple[str, str]):
    given = one_file(tmp_path, "a.tsv", "0.9\tGood\tGut\textra\n", columns=columns)
    assert read(given) == ([(1, *pair)], [])


def test_quotes_are_text_in_tsv(tmp_path: Path):
    given = one_file(tmp_path, "a.tsv", '"Yes", he said.\t"Ja", sagte er.\n"\t"\n')
    assert read(given)[0] == [(1, '"Yes", he said.', '"Ja", sagte er.'), (2, '"', '"')]


def test_quoted_tsv_is_read_as_spreadsheets_write_it(tmp_path: Path):
    rows = ['"a ""b"" c"\t"d"', 'plain\tand "so" on', '"a\ttab"\t""', '"open\tleft', '"a" b\tc']
    for end in ("\n", "\r\n"):
        given = one_file(tmp_path, "a.tsv", end.join([*rows, ""]), quoted=True)
        pairs, problems = read(given)
        assert pairs == [(1, 'a "b" c', "d"), (2, "plain", 'and "so" on'), (3, "a\ttab", "")]
        assert [(problem.line, problem.what.split(" (")[0]) for problem in problems] == [
            (4, "its double quotes cannot be read"),
            (5, "its double quotes cannot be read"),
        ]
        assert "one opens a field without a right end" in problems[0].what


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_fields_in_quotes_may_have_several_lines(tmp_path: Path, end: str):
    rows = ['"one', 'two"\t"a ""b""', "", 'c ""d"" e"', "f\tg", '"h', '"\t"i', 'j"\t"k', 'l"', "m", 'n\t"o"']
    given = one_file(tmp_path, "a.tsv", end.join([*rows, ""]), quoted=True)
    pairs, problems = read(given)
    assert pairs == [(1, "one two", 'a "b"  c "d" e'), (5, "f", "g"), (6, "h ", "i j"), (11, "n", "o")]
    assert [str(problem) for problem in problems] == [
        f"{given.files[0]}:10: has 1 columns, wanted at least 2 (--columns says which two are used)"
    ]


@pytest.mark.parametrize("behind", [[], ['"x"\ty'], ['"x"\t"y', 'z"'], ['x\tsaid "y"'], ["x\ty"] * corpus.MOST_LINES])
@pytest.mark.parametrize("stray", ['"a\tb', 'a\t"b', '"a ""b""\tc'])
@pytest.mark.parametrize("blocks", [1, 3, 4096])
def test_a_stray_quote_costs_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stray: str, behind: list[str], blocks: int
):
    """Whether another quote follows or none does: no other line is taken into a field that has no right end."""
    monkeypatch.setattr(corpus, "BLOCK_LINES", blocks)
    after = ["c\td", *behind]
    wanted, wrong = read(one_file(tmp_path, "alone.tsv", "\n".join(after), quoted=True))
    given = one_file(tmp_path, "a.tsv", "\n".join(["first\tpair", stray, *after]), quoted=True)
    pairs, problems = read(given)
    assert pairs == [(1, "first", "pair"), *((line + 2, *pair) for line, *pair in wanted)]
    assert [problem.line for problem in problems] == [2, *(problem.line + 2 for problem in wrong)]
    assert "its double quotes cannot be read" in problems[0].what
    assert problems[0].text == stray


def test_rows_of_quoted_tsv_have_a_bound(tmp_path: Path):
    for many, right in ((corpus.MOST_LINES, True), (corpus.MOST_LINES + 1, False)):
        lines = ['"a', *["b\tb"] * (many - 2), 'c"\td', "e\tf"]
        pairs, problems = read(one_file(tmp_path, "a.tsv", "\n".join(lines), quoted=True))
        assert pairs[-1] == (many + 1, "e", "f")
        assert len(pairs) == (2 if right else many)
        assert [problem.line for problem in problems] == ([] if right else [1])


@pytest.mark.parametrize(
    "line",
    ['"a\tb', 'a\t"b', '""' * 999, '"' + '""' * 999, '"a"\t' * 500 + '"', "a", '"', '"a\t"', '""" a', '"\t' * 500],
)
def test_quotes_take_no_more_time_than_in_proportion_to_the_text(tmp_path: Path, line: str):
    # Code that reads an open field again with every line, or all lines behind every quote, would take hours.
    given = one_file(tmp_path, "a.tsv", '"\n' + f"{line}\n" * 10_000, quoted=True)
    rows = sum(block.count for block in read_blocks(0, given))
    assert 10_001 / corpus.MOST_LINES <= rows <= 10_001


@settings(deadline=None)  # files take the time they take
@forall(
    st.lists(st.tuples(ANY_LINES, ANY_LINES), min_size=1, max_size=6),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_what_a_spreadsheet_writes_reads_back(folder: Path, pairs: list[tuple[str, str]], quoting: Literal[0, 1]):
    pairs = [(f"{source}.", f".{target}") for source, target in pairs]  # a line of nothing but spaces is blank
    written = io.StringIO()
    csv.writer(written, "excel-tab", quoting=quoting).writerows(pairs)
    given = one_file(folder, "a.tsv", written.getvalue(), quoted=True)
    rows: list[tuple[int, str, str]] = []
    line = 1
    for pair in pairs:
        source, target = (side.replace("\r\n", " ").replace("\n", " ") for side in pair)
        rows.append((line, source, target))
        line += 1 + sum(side.count("\n") for side in pair)
    assert read(given) == (rows, [])


@pytest.mark.parametrize(
    ("rows", "quoted"),
    [
        (['"a ""b"""\t"c"'] * 3, True),
        (['"a"\t"b"'] * 95 + ["c\td"] * 5, True),
        (['"a"\t"b"'] * 80 + ["c\td"] * 20, False),
        (["a\tb"] * 500 + ['"a ""quoted"" word"\tb'] * 12, True),
        (['"Yes," he said, "no."\t"Ja", sagte er, "nein."'] * 100, False),
        (["a\tb"] * 100, False),
        (['"\t"'] * 100, False),
        (["a"], False),
    ],
)
def test_quoted_tsv_is_recognised(tmp_path: Path, rows: list[str], quoted: bool):
    given = one_file(tmp_path, "a.tsv", "\r\n".join([*rows, ""]))
    assert looks_quoted(next(read_blocks(0, given)), given) == quoted


def test_rows_with_too_few_columns_are_all_named(tmp_path: Path):
    given = one_file(tmp_path, "a.tsv", b"a\tb\tc\na\tb\n\xff\tb\tc\na\na\tb\tc\td\n", columns=(1, 3))
    pairs, problems = read(given)
    assert pairs == [(1, "a", "c"), (5, "a", "c")]
    assert [(problem.line, problem.what.split(",")[0]) for problem in sorted(problems, key=lambda p: p.line)] == [
        (2, "has 2 columns"),
        (3, "not UTF-8 (byte 0xFF at position 1)"),
        (4, "has 1 columns"),
    ]
    assert all("--columns" in problem.what for problem in problems if "columns" in problem.what)


# ---- JSON lines ----


def test_keys_look_inside(tmp_path: Path):
    record = {"id": 1, "translation": {"en": "Good\tday\n", "de": "Guten Tag"}}
    given = one_file(tmp_path, "a.jsonl", json.dumps(record), keys=("translation.de", "translation.en"))
    assert read(given) == ([(1, "Guten Tag", "Good\tday\n")], [])


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not JSON (Expecting property name enclosed in double quotes at position 2)"),
        ("source", "not JSON (Expecting value at position 1)"),
        ('{"source": "a", "target": null}', "no text under the key 'target' (its value is null; --keys"),
        ('{"source": 3, "target": "b"}', "no text under the key 'source' (its value is of type int; --keys"),
        ('{"source": {"en": "a"}, "target": "b"}', "--keys says which two are used; source.en is a key inside it)"),
        ('{"source": "a", "Target": "b"}', "no text under the key 'target' (found: source, Target;"),
        ('{"source": {"en": "a"}, "target": "b"}', "no text under the key 'source'"),
        ('["a", "b"]', "no text under the key 'source' (found: list; --keys"),
        ("3", "(found: int;"),
        ('{"source": "a", "target": "\\ud83d"}', "not UTF-8 (half a character, \\ud83d, under the key 'target')"),
        ('{"source": "a", "target": "b", "n": ' + "1" * 5000 + "}", "unreadable JSON"),
        ("[" * 100_000, "unreadable JSON"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(tmp_path: Path, line: str, what: str):
    good = '{"source": "a", "target": "\\ud83d\\ude00"}'
    pairs, problems = read(given := one_file(tmp_path, "a.jsonl", f"{good}\n{line}\n{good}\n"))
    assert pairs == [(1, "a", "😀"), (3, "a", "😀")]
    assert [(problem.file, problem.line) for problem in problems] == [(str(given.files[0]), 2)]
    assert what in problems[0].what


@pytest.mark.parametrize(("name", "line"), [("a.tsv", "a\tb"), ("a.jsonl", '{"source": "a", "target": "b"}')])
def test_blank_lines_are_pairs_without_text(tmp_path: Path, name: str, line: str):
    given = one_file(tmp_path, name, f"{line}\n\n \t\n{line}\n\n")
    assert read(given) == ([(1, "a", "b"), (2, "", ""), (3, "", ""), (4, "a", "b"), (5, "", "")], [])


# ---- the built-in corpus ----


def test_the_builtin_corpus_reads_like_a_file():
    given = Input(files=(Path("numbers.dev"),), format="builtin")
    assert read(given) == (numbered(numbers.corpus("dev")), [])
    assert given.size == 0


def test_files_have_names_that_tell_them_apart():
    def named(*paths: str) -> list[str]:
        return list(short_names(map(Path, paths)).values())

    assert named("x/a.en", "y/a.de", "x/a.en") == ["a.en", "a.de"]
    assert named("data/one/dev.mrg", "data/two/dev.mrg", "data/two/train.mrg") == [
        "one/dev.mrg",
        "two/dev.mrg",
        "train.mrg",
    ]
    assert named("a/x/dev.mrg", "b/x/dev.mrg", "x/dev.mrg") == ["a/x/dev.mrg", "b/x/dev.mrg", "x/dev.mrg"]
    assert named("dev.mrg", "x/dev.mrg") == ["dev.mrg", "x/dev.mrg"]
    assert named() == []
