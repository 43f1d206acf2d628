"""A translation memory gives one pair for each unit with both languages, and every fault in it is named."""

import gzip
import io
from pathlib import Path

import pytest

from transduce.errors import DataError
from transduce.text.corpus import Input, decode_block, read_blocks
from transduce.text.tmx import CHUNK, read_units

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'


def unit(**segments: str) -> str:
    """Return a translation unit on one line; `en_US` is the language en-US."""
    variants = (f'<tuv xml:lang="{name.replace("_", "-")}"><seg>{text}</seg></tuv>' for name, text in segments.items())
    return f"<tu>{''.join(variants)}</tu>\n"


def memory(*units: str, head: str = HEAD) -> str:
    """Return a translation memory whose first unit is on line 3 (with one line of head)."""
    return f'{head}<tmx version="1.4"><header srclang="en"/><body>\n{"".join(units)}</body></tmx>\n'


def read(
    folder: Path, text: str | bytes, languages: tuple[str, str] | None = None, name: str = "a.tmx"
) -> list[tuple[int, str, str]]:
    """Return the units of a file as line, source and target, through the corpus reader."""
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    given = Input(files=(file,), format="tmx", languages=languages)
    found: list[tuple[int, str, str]] = []
    for block in read_blocks(0, given):
        decoded = decode_block(block, given)
        assert decoded.problems == []
        found += [
            (block.line(row), source, target)
            for row, source, target in zip(decoded.rows, decoded.source, decoded.target, strict=True)
        ]
    return found


def test_the_first_unit_says_which_side_is_which(tmp_path: Path):
    text = memory(unit(en="yes", de="ja"), unit(de="nein", en="no"))
    assert read(tmp_path, text) == [(3, "yes", "ja"), (4, "no", "nein")]
    assert read(tmp_path, text, ("de", "en")) == [(3, "ja", "yes"), (4, "nein", "no")]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Press <bpt i='1'>&lt;b&gt;</bpt>OK<ept i='1'>&lt;/b&gt;</ept> now", "Press OK now"),
        ("Line<ph x='1'>&lt;br/&gt;</ph> break", "Line break"),
        ("A<it pos='begin'>{\\i</it>B<ut>{x}</ut>C", "ABC"),
        ("a <hi type='x'>high</hi> <mrk>mark</mrk>", "a high mark"),
        ("a <hi>high <ph>{x}</ph>up</hi> b", "a high up b"),
        ("see<ph>footnote <sub>of the code</sub></ph> here", "see here"),
        ("see<ph>{a}<sub>of <it>{b}</it>the</sub>{c}</ph> here", "see here"),
        ("x <ph/> y", "x  y"),
        ("<![CDATA[a < b & c]]>", "a < b & c"),
        ("a &lt; b &amp;amp; &#x4E2D;&#20013;", "a < b &amp; 中中"),
        ("two\nlines", "two lines"),
        ("two&#10;lines", "two lines"),
        ("", ""),
    ],
)
def test_a_segment_is_its_text_without_codes(tmp_path: Path, segment: str, text: str):
    assert read(tmp_path, memory(unit(en=segment, de="x"))) == [(3, text, "x")]


def test_only_segments_are_text(tmp_path: Path):
    text = memory(
        '<tu><note>a note</note><prop type="x">en</prop>\n<tuv xml:lang="en"><prop>p</prop><seg>yes</seg></tuv>'
        '<tuv xml:lang="de"><note>n</note><seg>ja</seg></tuv></tu>'
    )
    assert read(tmp_path, text) == [(3, "yes", "ja")]


@pytest.mark.parametrize("tag", ["en", "EN", "en-US", "en-us", "EN_US", "en-Latn-GB"])
def test_a_language_is_found_with_its_region(tmp_path: Path, tag: str):
    text = memory(f'<tu><tuv xml:lang="{tag}"><seg>yes</seg></tuv><tuv xml:lang="de-CH"><seg>ja</seg></tuv></tu>')
    for languages in (None, ("en", "de"), ("EN", "de-ch"), ("en", "de_CH")):
        assert read(tmp_path, text, languages) == [(3, "yes", "ja")]


def test_a_language_is_found_by_the_code_that_it_once_had(tmp_path: Path):
    text = memory(unit(en="yes", iw_IL="כן"), unit(en="no", he="לא"))
    for languages in (None, ("en", "he"), ("en", "iw")):
        assert read(tmp_path, text, languages) == [(3, "yes", "כן"), (4, "no", "לא")]


def test_old_files_name_languages_without_a_namespace(tmp_path: Path):
    text = memory('<tu><tuv lang="EN"><seg>yes</seg></tuv><tuv lang="DE"><seg>ja</seg></tuv></tu>')
    assert read(tmp_path, text, ("en", "de")) == [(3, "yes", "ja")]


def test_the_exact_language_is_preferred(tmp_path: Path):
    text = memory(unit(en_US="color", en="colour", de="Farbe"), unit(en_GB="grey", en_US="gray", de="grau"))
    assert read(tmp_path, text, ("en", "de")) == [(3, "colour", "Farbe"), (4, "grey", "grau")]
    assert read(tmp_path, text, ("en-US", "de")) == [(3, "color", "Farbe"), (4, "gray", "grau")]


def test_the_first_of_two_segments_in_a_language_is_taken(tmp_path: Path):
    twice = unit(en="yes", de="ja").replace("</tu>", '<tuv xml:lang="de"><seg>doch</seg></tuv></tu>')
    assert read(tmp_path, memory(twice)) == [(3, "yes", "ja")]


def test_regions_may_change_within_a_file(tmp_path: Path):
    text = memory(unit(en_US="color", de_DE="Farbe"), unit(en_GB="colour", de="Farbe"), unit(de="grau", en="grey"))
    assert read(tmp_path, text) == [(3, "color", "Farbe"), (4, "colour", "Farbe"), (5, "grey", "grau")]


def test_regions_may_be_the_difference(tmp_path: Path):
    text = memory(unit(pt_PT="autocarro", pt_BR="ônibus"), unit(pt_BR="trem", pt_PT="comboio"))
    assert read(tmp_path, text) == [(3, "autocarro", "ônibus"), (4, "comboio", "trem")]


def test_a_language_is_not_a_prefix_of_another(tmp_path: Path):
    text = memory(unit(fil="oo", de="ja"), unit(fi="kyllä", de="ja"))
    assert read(tmp_path, text, ("fi", "de")) == [(3, "", "ja"), (4, "kyllä", "ja")]


def test_what_a_unit_lacks_is_empty_and_units_of_other_languages_are_passed_over(tmp_path: Path):
    units = unit(en="one", de="eins"), unit(en="two", ger="zwei"), unit(fr="deux"), unit(fr="trois", de="drei")
    assert read(tmp_path, memory(*units)) == [(3, "one", "eins"), (4, "two", ""), (6, "", "drei")]


@pytest.mark.parametrize(
    ("first", "found"),
    [
        (unit(en="a", de="b", fr="c"), "3 languages (en, de, fr)"),
        (unit(en_US="a"), "1 languages (en-us)"),
        ("<tu></tu>", "0 languages (none)"),
        ("<tu><tuv><seg>a</seg></tuv><tuv><seg>b</seg></tuv></tu>", "1 languages (none)"),
    ],
)
def test_languages_must_be_told_where_a_file_does_not(tmp_path: Path, first: str, found: str):
    with pytest.raises(DataError) as error:
        read(tmp_path, memory(first))
    assert str(error.value).startswith(f"{tmp_path / 'a.tmx'}:3: a translation unit with {found}")
    assert "--languages en de" in str(error.value)


def test_languages_that_are_not_there_are_named_with_those_that_are(tmp_path: Path):
    text = memory(unit(en="a", de="b"), unit(en="a", fr="c"))
    with pytest.raises(DataError, match=r"no translation unit with en and ru \(found: en, de, fr; --languages"):
        read(tmp_path, text, ("en", "ru"))
    with pytest.raises(DataError, match=r"a\.tmx: contains no translation unit with two languages \(found: none"):
        read(tmp_path, memory())


def test_a_doctype_is_passed_over(tmp_path: Path):
    text = memory(unit(en="a caf&eacute;, &unknown;", de="ein Caf&eacute; &amp; mehr"), head=HEAD + DOCTYPE)
    assert read(tmp_path, text) == [(4, "a café, &unknown;", "ein Café & mehr")]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (memory(unit(en="a", de="b"), unit(en="a & b", de="c")), 4),
        (memory(unit(en="a", de="b"), "<tu><tuv>\n</tu>\n"), 5),
        (memory(unit(en="a", de="b"))[:-14], 4),
        (memory(unit(en="a", de="b"), unit(en="a\x01", de="b")), 4),
        (memory(unit(en="caf&eacute;", de="b")), 3),
        ("plain text\n", 1),
        ("", 1),
    ],
)
def test_malformed_xml_is_named_with_its_line(tmp_path: Path, text: str, line: int):
    with pytest.raises(DataError, match="not well-formed XML") as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'a.tmx'}:{line}: ")


def test_wrong_utf8_is_named_with_its_line(tmp_path: Path):
    text = memory(unit(en="a", de="b"), unit(en="for", de="für")).encode().replace("ü".encode(), b"\xfc")
    with pytest.raises(DataError, match=r"a\.tmx:4: not well-formed XML"):
        read(tmp_path, text)


def test_entities_that_explode_are_an_error(tmp_path: Path):
    bombs = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    text = memory(unit(en="&e11;", de="x"), head=f'{HEAD}<!DOCTYPE tmx [<!ENTITY e0 "ha">{bombs}]>\n')
    with pytest.raises(DataError, match=r"a\.tmx:\d+: not well-formed XML"):
        read(tmp_path, text)


@pytest.mark.parametrize("codec", ["UTF-8", "UTF-16", "windows-1252", "ISO-8859-15", "US-ASCII"])
def test_the_encoding_that_the_file_names_is_used(tmp_path: Path, codec: str):
    head = HEAD.replace("UTF-8", codec)
    text = memory(unit(en="for", de="für"), head=head)
    assert read(tmp_path, text.encode(codec, "xmlcharrefreplace")) == [(3, "for", "für")]


@pytest.mark.parametrize("codec", ["x-unheard-of", "shift_jis"])
def test_an_encoding_that_cannot_be_read_is_an_error(tmp_path: Path, codec: str):
    with pytest.raises(DataError, match=r"a\.tmx:1: .*encoding.*iconv -t UTF-8"):
        read(tmp_path, memory(unit(en="a", de="b"), head=HEAD.replace("UTF-8", codec)))


def test_a_byte_order_mark_is_no_text(tmp_path: Path):
    assert read(tmp_path, "\ufeff" + memory(unit(en="a", de="b"))) == [(3, "a", "b")]


def test_damage_is_named(tmp_path: Path):
    data = gzip.compress(memory(unit(en="a", de="b")).encode())
    with pytest.raises(DataError, match=r"a\.tmx\.gz: damaged, or not in the format its name says, near line \d"):
        read(tmp_path, data[:-9], name="a.tmx.gz")


def test_a_large_file_is_read_in_pieces():
    units = [unit(en=f"number {n}", de=f"Nummer {n}") for n in range(12_000)]
    data = memory(*units).encode()
    assert len(data) > 3 * CHUNK
    stream = io.BytesIO(data)
    found = read_units(Path("a.tmx"), stream, None, ())
    assert next(found).source == "number 0"
    assert stream.tell() == CHUNK
    last = [*found][-1]
    assert (last.source, last.target, last.line) == ("number 11999", "Nummer 11999", 12_002)
