"""Documents keep all that is not text; elements within a text go with the words they stood by."""

import io
import re
import struct
import zipfile
from collections.abc import Callable
from types import ModuleType
from xml.etree import ElementTree

import pytest
from documents import (
    HEAD,
    OPEN,
    PICTURE,
    A,
    W,
    make_docx,
    make_epub,
    make_open,
    make_pptx,
    open_document,
    pack,
    run,
    unpack,
    word,
)
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.text import elements, office
from transduce.text.codes import NO_CODES, Codes
from transduce.text.markup import MOST_ELEMENTS, Links
from transduce.text.office import Office

Say = Callable[[str], tuple[str, Links]]
BOLD, ITALIC = "<w:b/>", "<w:i/>"


def keep(text: str) -> tuple[str, Links]:
    """Return the same text as a translation."""
    return text, [(place, place) for place in range(len(text.split()))]


def turn(text: str) -> tuple[str, Links]:
    """Return a translation with the words in reverse order and the outer spaces kept."""
    words = text.split()[::-1]
    before, behind = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return before + " ".join(words) + behind, [(len(words) - 1 - place, place) for place in range(len(words))]


def shout(text: str) -> tuple[str, Links]:
    """Return a translation in capitals."""
    return text.upper(), keep(text)[1]


def translate(content: bytes, name: str = "a.docx", say: Say = turn) -> bytes:
    document = Office(name, content)
    return document.fill([say(text) for text in document.texts])


def translate_body(body: str, say: Say = turn) -> str:
    """Return the paragraphs of a .docx, translated."""
    found = unpack(translate(make_docx(body), say=say))["word/document.xml"].decode()
    ElementTree.fromstring(found)
    before, behind = word("|").split("|")
    assert found.startswith(before)
    assert found.endswith(behind)
    return found[len(before) : len(found) - len(behind)]


def read_runs(body: str) -> list[tuple[str, str]]:
    """Return the texts of Word's paragraphs with their style, by Python's own parser, joined where styles are equal."""
    found: list[tuple[str, str]] = []
    for element in ElementTree.fromstring(word(body)).iter():
        if not element.tag.endswith("}r"):
            continue
        text = "".join(own.text or "" for own in element if own.tag.endswith("}t"))
        style = "".join(own.tag.rpartition("}")[2] for each in element if each.tag.endswith("}rPr") for own in each)
        if found and found[-1][1] == style:
            text = found.pop()[0] + text
        found += [(text, style)] * bool(text)
    return found


# ---- Word ----


def test_words_keep_their_look_and_all_else_its_bytes():
    body = (
        '<w:p w:rsidR="00A1"><w:pPr><w:jc w:val="center"/></w:pPr>'
        f"{run('the ')}{run('old', BOLD)}{run(' man &amp; ')}{run('sea', ITALIC)}</w:p><w:sectPr/>"
    )
    assert translate_body(body) == (
        '<w:p w:rsidR="00A1"><w:pPr><w:jc w:val="center"/></w:pPr>'
        f"{run('sea', ITALIC)}{run(' &amp; man ')}{run('old', BOLD)}{run(' the')}</w:p><w:sectPr/>"
    )


def test_runs_that_look_alike_are_one_text():
    """Word divides a text wherever somebody came back to it or the spelling was checked."""
    lang = '<w:rPr><w:lang w:val="en-US"/></w:rPr>'
    body = (
        '<w:p><w:r w:rsidR="1"><w:t>the ani</w:t></w:r><w:proofErr w:type="spellStart"/>'
        f'<w:r w:rsidR="2">{lang}<w:t>mals</w:t></w:r><w:r><w:lastRenderedPageBreak/><w:t xml:space="preserve"> are '
        "</w:t></w:r><w:r><w:t>co</w:t><w:noBreakHyphen/><w:t>workers</w:t></w:r></w:p>"
    )
    document = Office("a.docx", make_docx(body))
    assert document.texts == ["the animals are co-workers"]
    assert not document.has_elements
    assert translate_body(body) == f"<w:p>{run('co-workers are animals the')}</w:p>"


def test_space_at_the_edges_counts_where_it_is_said_to():
    body = "<w:p><w:r><w:t> two </w:t></w:r>" + run(" euros\n") + "</w:p>"
    assert Office("a.docx", make_docx(body)).texts == ["two euros "]
    assert translate_body(body) == f"<w:p>{run('euros two ')}</w:p>"


STRETCHES = st.tuples(st.sampled_from(["two ", "nine, ", "(a) b ", "é. ", " "]), st.sampled_from(["", BOLD, ITALIC]))


@given(st.lists(STRETCHES, max_size=8))
def test_every_letter_keeps_its_look(stretches: list[tuple[str, str]]):
    body = f"<w:p>{''.join(run(*one) for one in stretches)}</w:p>"

    def letters(body: str) -> list[tuple[str, str]]:
        return [(letter, style) for text, style in read_runs(body) for letter in text if not letter.isspace()]

    assert letters(translate_body(body, keep)) == letters(body)
    assert sorted(letters(translate_body(body, turn))) == sorted(letters(body))


def test_a_word_in_two_looks_has_that_of_most_of_it():
    body = f"<w:p>{run('the hou')}{run('se')}{run('s', BOLD)}{run(' is', BOLD)}</w:p>"
    assert read_runs(translate_body(body, shout)) == [("THE HOUSES ", ""), ("IS", "b")]


def test_links_go_with_their_words_and_things_stay_by_theirs():
    link = f'<w:hyperlink r:id="rId5">{run("our house", BOLD)}</w:hyperlink>'
    note = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/></w:r>'
    assert translate_body(f"<w:p>{run('visit ')}{link}{run(' now')}</w:p>") == (
        f'<w:p>{run("now ")}<w:hyperlink r:id="rId5">{run("house our", BOLD)}</w:hyperlink>{run(" visit")}</w:p>'
    )
    # The mark of a note follows its word, before a comma as well; behind a sentence it stays there.
    assert translate_body(f"<w:p>{run('mars')}{note}{run(' is red')}</w:p>") == f"<w:p>{run('red is mars')}{note}</w:p>"
    assert translate_body(f"<w:p>{run('mars')}{note}{run(', red')}</w:p>", keep) == (
        f"<w:p>{run('mars')}{note}{run(', red')}</w:p>"
    )
    assert translate_body(f"<w:p>{run('it is red.')}{note}</w:p>") == f"<w:p>{run('red. is it')}{note}</w:p>"
    # A whole text in a link has the link around all of it.
    assert translate_body(f"<w:p>{link}</w:p>") == (
        f'<w:p><w:hyperlink r:id="rId5">{run("house our", BOLD)}</w:hyperlink></w:p>'
    )
    picture = '<w:hyperlink r:id="rId6"><w:r><w:drawing/></w:r></w:hyperlink>'
    assert picture in translate_body(f"<w:p>{run('two ')}{picture}{run(' nine')}</w:p>")


def test_what_was_deleted_is_neither_translated_nor_dropped():
    deleted = '<w:del w:id="1"><w:r><w:delText xml:space="preserve">never </w:delText></w:r></w:del>'
    inserted = f'<w:ins w:id="2">{run("often ")}</w:ins>'
    body = f"<w:p>{run('he ')}{deleted}{inserted}{run('sang')}</w:p>"
    assert Office("a.docx", make_docx(body)).texts == ["he often sang"]
    found = translate_body(body, shout)
    assert found == (
        f'<w:p>{run("HE ")}{deleted}<w:ins w:id="2">{run("OFTEN")}</w:ins>{run(" SANG")}</w:p>'
    )  # and what was deleted did not get into what was inserted


def test_fields_breaks_and_forms_end_a_text_and_stay_where_they_are():
    code = '<w:r><w:instrText xml:space="preserve"> PAGE </w:instrText></w:r>'
    begin, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
    field = f"{begin}{code}{begin.replace('begin', 'separate')}{run('12')}{end}"
    body = f"<w:p>{run('on page ')}{field}{run(' of it')}</w:p>"
    assert Office("a.docx", make_docx(body)).texts == ["on page ", " of it"]
    assert translate_body(body) == f"<w:p>{run('page on ')}{field}{run(' it of')}</w:p>"
    # In a table of contents fields stand in links, which then are around each of the texts.
    link = f'<w:hyperlink w:anchor="a">{{}}<w:r><w:tab/></w:r>{field}</w:hyperlink>'
    assert translate_body(f"<w:p>{link.format(run('the end'))}</w:p>") == f"<w:p>{link.format(run('end the'))}</w:p>"
    form = f"<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent>{run('{}')}</w:sdtContent></w:sdt>"
    body = f"<w:p>{run('my name')}{form.format('old man')}</w:p>"
    assert translate_body(body) == f"<w:p>{run('name my')}{form.format('man old')}</w:p>"
    simple = '<w:fldSimple w:instr="TITLE">{}</w:fldSimple>'
    body = f"<w:p>{run('a b')}{simple.format(run('c d'))}</w:p>"
    assert translate_body(body) == f"<w:p>{run('b a')}{simple.format(run('d c'))}</w:p>"


def test_boxes_of_text_are_translated_in_both_their_forms():
    def box(text: str) -> str:
        inner = f"<w:txbxContent><w:p>{run(text)}</w:p></w:txbxContent>"
        choice = f'<mc:Choice Requires="wps">{inner}</mc:Choice>'
        return f"<w:r><mc:AlternateContent>{choice}<mc:Fallback>{inner}</mc:Fallback></mc:AlternateContent></w:r>"

    body = "<w:p>{}" + box("{}") + "{}</w:p>"
    assert translate_body(body.format(run("on "), "in it", "in it", run("the box"))) == body.format(
        run("box "), "it in", "it in", run("the on")
    )
    alone = f"<w:p>{box('in it')}</w:p>"
    assert translate_body(alone) == alone.replace("in it", "it in")


def test_paragraphs_without_letters_stay_byte_for_byte():
    odd = '<w:p  w:rsidR="1"><w:r><w:rPr><w:lang w:val="de"/></w:rPr><w:t>1,234.50</w:t></w:r><!-- a --></w:p ><w:p/>'
    cell = f"<w:tbl><w:tr><w:tc>{odd}</w:tc><w:tc><w:p>{run('a b')}</w:p></w:tc></w:tr></w:tbl>"
    assert translate_body(cell) == cell.replace("a b", "b a")


def test_a_text_of_very_many_looks_is_translated_look_by_look():
    looks = "".join(run("two nine ", BOLD) + run("x") for _ in range(MOST_ELEMENTS + 1))
    document = Office("a.docx", make_docx(f"<w:p>{looks}</w:p>"))
    assert document.texts == ["two nine ", "x"] * (MOST_ELEMENTS + 1)
    assert translate_body(f"<w:p>{looks}</w:p>") == f"<w:p>{looks.replace('two nine', 'nine two')}</w:p>"


def test_what_xml_cannot_hold_is_left_out_of_translations():
    found = translate_body(f"<w:p>{run('two')}</w:p>", lambda text: ("a\x00\x0b<b>\ud800&", [(0, 0)]))
    assert found == f"<w:p>{run('a&lt;b&gt;&amp;')}</w:p>"


def test_names_may_have_another_prefix_and_files_another_encoding():
    xml = word(f"<w:p>{run('two ')}{run('nine', BOLD)}</w:p>").replace("w:", "x:").replace(":w=", ":x=")
    parts = unpack(make_docx("")) | {"word/document.xml": xml.replace("UTF-8", "UTF-16").encode("utf-16")}
    found = unpack(translate(pack(parts)))["word/document.xml"]
    assert [element.text for element in ElementTree.fromstring(found).iter() if element.text] == ["nine", " two"]
    assert "<x:t" in found.decode("utf-16")


# ---- all kinds ----


def test_other_files_and_their_order_and_packing_stay():
    notes = word("|").replace("document", "footnotes").replace("|", f"<w:p>{run('a b')}</w:p>")
    comments = notes.replace("footnotes", "comments")
    before = make_docx(f"<w:p>{run('two nine')}</w:p>", footnotes_xml=notes, header1_xml=notes, comments_xml=comments)
    found = translate(before)
    changed = {name for name, content in unpack(found).items() if content != unpack(before)[name]}
    assert changed == {"word/document.xml", "word/footnotes.xml", "word/header1.xml"}
    assert unpack(found)["word/media/image1.png"] == PICTURE
    lists = [zipfile.ZipFile(io.BytesIO(content)).infolist() for content in (before, found)]
    assert [(own.filename, own.compress_type, own.date_time) for own in lists[0]] == [
        (own.filename, own.compress_type, own.date_time) for own in lists[1]
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.docx", make_docx("<w:p/>")),
        ("a.pptx", pack({"ppt/presentation.xml": "<a/>"})),
        ("a.odp", make_open("<text:p>12</text:p>", "presentation")),
        ("a.epub", make_epub("<img/>")),
    ],
)
def test_a_document_without_text_is_copied(name: str, content: bytes):
    document = Office(name, content)
    assert document.texts == []
    assert document.fill([]) is content


def test_open_documents():
    span = '<text:span text:style-name="T1">{}</text:span>'
    note = "<text:note><text:note-citation>1</text:note-citation><text:note-body>{}</text:note-body></text:note>"
    remark = "<office:annotation><text:p>is this so</text:p></office:annotation>"
    body = (
        "<text:tracked-changes><text:deletion><text:p>gone now</text:p></text:deletion></text:tracked-changes>"
        f"<text:h>{{}}</text:h>\n<text:p>{{}}{span}{note}{remark}{{}}</text:p>"
        "<text:p>{}<text:s text:c='4'/>{}<text:tab/>12<text:page-number>3</text:page-number>{}</text:p>"
    )
    before = body.format("the end", "an ", "old", "<text:p>very old</text:p>", " man\n  is", "a b", "c d", " e f")
    document = Office("a.odt", make_open(before))
    assert document.texts == ["the end", "very old", "an old man is", "a b", "c d", " e f"]
    found = unpack(translate(make_open(before), "a.odt"))
    changed = f"is man {span}{note}{remark} an".format("old", "<text:p>old very</text:p>")
    assert found["content.xml"].decode() == open_document(
        body.replace(f"{{}}{span}{note}{remark}{{}}", "|").format("end the", "b a", "d c", " f e").replace("|", changed)
    )
    assert list(found) == ["mimetype", "content.xml", "Pictures/a.png"]
    spaces = Office("a.odt", make_open("<text:p>one. <text:s/>two</text:p>"))
    assert spaces.texts == ["one.  two"]


def test_slides():
    text = "<a:r>{}<a:t>{}</a:t></a:r>".format
    said, bold_said = '<a:rPr lang="en-US" dirty="0"/>', '<a:rPr lang="en-US" b="1"/>'
    before = make_pptx(
        f"<a:p><a:pPr/>{text(said, 'the ')}{text(bold_said, 'old')}{text('', ' man')}<a:endParaRPr/></a:p>",
        f"<a:p>{text('', 'a b')}<a:br/>{text('', 'c d')}<a:fld type='slidenum'><a:t>a b</a:t></a:fld></a:p>",
    )
    found = unpack(translate(before, "a.pptx"))["ppt/slides/slide1.xml"].decode()
    ElementTree.fromstring(found)
    paragraphs = re.findall("<a:p>.*?</a:p>", found)
    bold = '<a:rPr b="1"/>'
    assert paragraphs == [
        f"<a:p><a:pPr/>{text('', 'man ')}{text(bold, 'old')}{text('', ' the')}<a:endParaRPr/></a:p>",
        f"<a:p>{text('', 'b a')}<a:br/>{text('', 'd c')}<a:fld type='slidenum'><a:t>a b</a:t></a:fld></a:p>",
    ]
    chart = f'<c xmlns:a="{A}"><a:p>{text("", "sales of bread")}</a:p></c>'
    parts = unpack(before) | {"ppt/charts/chart1.xml": chart}
    assert Office("a.pptx", pack(parts)).texts[0] == "the old man"
    assert Office("a.pptx", pack(parts)).texts[-1] == "sales of bread"


def test_books():
    before = make_epub("<p>the <b>old</b>&#160;man<br/>12</p><pre>a b</pre>")
    found = unpack(translate(before, "a.EPUB"))
    assert b"<p>man <b>old</b> the<br/>12</p><pre>a b</pre>" in found["OEBPS/one.xhtml"]
    assert list(found) == ["mimetype", "OEBPS/one.xhtml", "OEBPS/a.png"]


# ---- languages ----


WORD_STYLES = (
    f'{HEAD}<w:styles xmlns:w="{W}"><w:docDefaults>'
    '<w:lang w:val="{}" w:eastAsia="{}" w:bidi="{}"/></w:docDefaults>'
    '<w:style><w:rPr><w:lang w:val="fr-FR"/></w:rPr></w:style></w:styles>'
)


@pytest.mark.parametrize(
    ("codes", "before", "after"),
    [
        (Codes("en", "de"), ("en-US", "ja-JP", "ar-SA"), ("de-DE", "ja-JP", "ar-SA")),
        (Codes("en", "de-AT"), ("en-GB", "en-US", "ar-SA"), ("de-AT", "en-US", "ar-SA")),
        (Codes("en", "zh-Hans"), ("en-GB", "en-US", "ar-SA"), ("en-GB", "zh-CN", "ar-SA")),
        (Codes("ja", "en"), ("de-DE", "ja-JP", "ar-SA"), ("en-US", "ja-JP", "ar-SA")),
        (Codes("en", "fa"), ("en", "en", "ar-SA"), ("en", "en", "fa-IR")),
        (Codes("en", "eo"), ("en", "en", "ar-SA"), ("eo", "en", "ar-SA")),
        (Codes("en", "de"), ("pl-PL", "en-US", "ar-SA"), ("pl-PL", "en-US", "ar-SA")),
        (Codes("", "de"), ("en-US", "en-US", "ar-SA"), ("en-US", "en-US", "ar-SA")),
        (NO_CODES, ("en-US", "en-US", "ar-SA"), ("en-US", "en-US", "ar-SA")),
    ],
)
def test_spelling_is_checked_in_the_language_of_the_translation(
    codes: Codes, before: tuple[str, ...], after: tuple[str, ...]
):
    def make(said: str, names: tuple[str, ...]) -> dict[str, bytes]:
        return unpack(make_docx(f"<w:p>{run(said)}</w:p>", styles_xml=WORD_STYLES.format(*names)))

    document = Office("a.docx", pack(make("two nine", before)), codes=codes)
    assert unpack(document.fill([("nine two", None)])) == make("nine two", after)


def test_open_documents_name_a_language_and_a_country():
    style = (
        '<style:text-properties fo:language="{}" fo:country="{}" style:language-asian="zh" style:country-asian="CN"/>'
    )
    other = "<style:text-properties fo:language='fr' fo:country='FR'/><style:text-properties fo:color='#fff'/>"

    def make(said: str, *names: str) -> bytes:
        spaces = " ".join(f"xmlns:{name}='{OPEN}:{name}:1.0'" for name in ("style", "fo"))
        styles = f"<style:styles {spaces}>{style.format(*names)}{other}</style:styles>"
        return make_open(f"<text:p>{said}</text:p>", styles_xml=styles)

    for code, names in (("de", ("de", "DE")), ("pt-BR", ("pt", "BR")), ("eo", ("eo", "none"))):
        for kind in ("en", "US"), ("en", "none"):
            document = Office("a.odt", make("two nine", *kind), codes=Codes("en", code))
            assert unpack(document.fill([("nine two", None)])) == unpack(make("nine two", *names))
    document = Office("a.odt", make("two nine", "en", "US"), codes=Codes("en", "ko"))
    styles = unpack(document.fill([("nine two", None)]))["styles.xml"].decode()
    assert 'fo:language="en" fo:country="US" style:language-asian="ko" style:country-asian="KR"' in styles


@pytest.mark.parametrize("spine", ["<spine toc='ncx'>", "<spine page-progression-direction=\"ltr\" toc='ncx'>"])
def test_books_name_their_language_and_turn_their_pages(spine: str):
    def make(said: str, code: str, spine: str, html: str) -> bytes:
        package = f"<package xml:lang='en'><dc:language id='a'>{code}</dc:language><dc:language>fr</dc:language>{spine}"
        parts = unpack(make_epub(f"<p>{said}</p>"))
        chapter = parts["OEBPS/one.xhtml"].replace(b"<html", b"<html" + html.encode())
        return pack({**parts, "OEBPS/one.xhtml": chapter, "OEBPS/a.opf": package})

    book = make("two nine", "en-GB", spine, ' lang="en" xml:lang="en"')
    for code, pages, page in (
        ("de", spine, ' lang="de" xml:lang="de"'),
        ("ar", "<spine page-progression-direction=\"rtl\" toc='ncx'>", ' dir="rtl" lang="ar" xml:lang="ar"'),
    ):
        found = Office("a.epub", book, codes=Codes("en", code)).fill([("nine two", None)])
        assert unpack(found) == unpack(make("nine two", code, pages, page))


# ---- what cannot be translated ----


GOOD = make_docx(f"<w:p>{run('two nine')}</w:p>")


def change(document: str | bytes) -> bytes:
    """Return a .docx with another main file."""
    return pack({**unpack(GOOD), "word/document.xml": document})


def lock(content: bytes) -> bytes:
    """Return the archive with its first file marked as encrypted."""
    place = content.rindex(b"PK\x01\x02", 0, content.index(b"PK\x01\x02") + 4)
    return content[: place + 8] + struct.pack("<H", 1) + content[place + 10 :]


LOCKED = "<manifest:manifest><manifest:encryption-data/></manifest:manifest>"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.docx", b"", "damaged, or not a .docx document"),
        ("a.docx", b"<html>two</html>", "damaged, or not a .docx document"),
        ("a.docx", GOOD[:-30], "damaged, or not a .docx document"),
        ("a.docx", GOOD[: len(GOOD) // 2], "damaged, or not a .docx document"),
        ("a.docx", GOOD.replace(PICTURE, PICTURE[::-1]), "damaged: the checksum of word/media/image1.png is wrong"),
        ("a.docx", b"\xd0\xcf\x11\xe0" + bytes(999), "is locked with a password; save it without one"),
        ("a.docx", lock(GOOD), "is locked with a password; save it without one"),
        ("a.odt", make_open("<text:p>a</text:p>", **{"META-INF/manifest_xml": LOCKED}), "is locked with a password"),
        (
            "a.epub",
            pack({"a.xhtml": b"\x9f", "META-INF/encryption.xml": '<CipherReference URI="a.xhtml"/>'}),
            "is locked with a password",
        ),
        ("a.odt", GOOD, "its content is that of a .docx document; rename it to .docx"),
        ("a.odt", make_open("<text:p>a</text:p>", "presentation"), "its content is that of a .odp document"),
        ("a.docx", pack({"xl/workbook.xml": "<a/>"}), "its content is that of a .xlsx document"),
        ("a.docx", pack({"a.txt": "two"}), "has none of the files that hold a .docx document's text"),
        ("a.docx", change("<a>two"), "damaged: word/document.xml is not readable XML (no element found"),
        ("a.docx", change(b"<a>\xff</a>"), "not well-formed (invalid token)"),
        ("a.docx", change('<!DOCTYPE a [<!ENTITY b "two">]><a>&b;</a>'), "it declares a document type"),
        ("a.docx", change("<a>" * 201 + "</a>" * 201), "more than 200 levels of nested elements"),
    ],
    ids=range(17),
)
def test_what_is_no_document_is_named(name: str, content: bytes, reason: str):
    with pytest.raises(DataError, match=f"^{name}: .*{re.escape(reason)}") as raised:
        Office(name, content)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "bound", "most", "reason"),
    [
        (office, "MOST_FILES", 3, "too large when unpacked: 4 files"),
        (office, "MOST_MORE", -10, "too large when unpacked"),
        (elements, "MOST_IN_PARAGRAPH", 2, "a paragraph has more than 2 elements"),
        (elements, "DEEPEST", 4, "more than 4 levels of nested elements"),
    ],
)
def test_what_would_become_too_large_is_refused(
    module: ModuleType, bound: str, most: int, reason: str, monkeypatch: pytest.MonkeyPatch
):
    assert Office("a.docx", GOOD).texts == ["two nine"]
    monkeypatch.setattr(module, bound, most)
    with pytest.raises(DataError, match=reason):
        Office("a.docx", GOOD)


def test_texts_have_a_bound_of_their_own():
    many = make_docx(f"<w:p>{run('two ' * 100_000)}</w:p>")
    assert len(many) < 10_000
    size = len(unpack(many)["word/document.xml"])
    assert Office("a.docx", many, size).texts
    wanted = f"too large .*, {size:,} of them text; at most .* and {size - 1:,} are accepted; split it"
    with pytest.raises(DataError, match=wanted):
        Office("a.docx", many, size - 1)


def test_no_file_takes_more_time_than_in_proportion_to_its_length():
    # Code that copies all earlier text again, or searches to the end again and again, would take hours here.
    for text in (run("a") * 50_000, run("a <!-- b -->") * 20_000, (run("a") + run("b", BOLD)) * 20_000):
        assert Office("a.docx", make_docx(f"<w:p>{text}</w:p>")).texts
