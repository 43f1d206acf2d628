"""Cut office documents' XML into texts to translate and all around them, which stays as it is, character for character.

A paragraph is cut into stretches of one look and what is between them: pictures, notes, bookmarks. It is translated as
a whole. The translation has the look of most of the paragraph; words that come from words of another look, or of a
link, get that. Line breaks, tabs and fields end a text, since what is computed must stay where it is.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from transduce.text.elements import LEFT_ALONE, PARAGRAPHS, Reader, XmlNode
from transduce.text.markup import MOST_ELEMENTS, Element, Links, Passage, weave

_XML_SPACE = "http://www.w3.org/XML/1998/namespace space"
_HOW_MANY = "urn:oasis:names:tc:opendocument:xmlns:text:1.0 c"
_RUNS = {"w:r", "a:r"}
_STYLES = {"w:rPr", "a:rPr"}  # how a run looks
_TEXTS = {"w:t", "a:t"}
# A text continues across these, which contain a part of it;
_AROUND = {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:dir", "w:bdo", "text:span", "text:a", "text:meta"}
# it ends where one of these begins or ends,
_FENCES = {"w:sdt", "w:sdtContent", "w:fldSimple", "w:customXml"}
# and it ends at these.
_ENDS = {"w:br", "w:cr", "w:tab", "w:ptab", "w:fldChar", "w:instrText", "a:br", "a:fld", "text:tab", "text:line-break"}
# Invisible: they would only split texts, so translated paragraphs are written without them.
_HIDDEN = {"w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen", "w:smartTagPr", "text:soft-page-break"}
# A run's language and spelling marks, which programs scatter through texts and which do not change the look.
_LANGUAGE = re.compile(r"<w:lang\b[^>]*/>|\s(?:lang|altLang|dirty|err|smtClean)=\"[^\"]*\"")
_NO_STYLE = re.compile(r"<[^<>/\s]*\s*(?:/>|>\s*</[^<>]*>)")
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACES = re.compile(r"[ \t\r\n]+")


class Paragraphs:
    """An XML file cut into parts: `texts` are to be translated, and `fill` puts the translations in their places."""

    def __init__(self, content: bytes):
        self._encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
        text = content if self._encoding == "utf-8" else content.decode(self._encoding).encode()
        self._parts = Reader(text, _cut).parts
        passages = [line.make_passage(lambda thing: "") for line in _find_lines(self._parts)]
        self.texts = [passage.text for passage in passages]
        self.has_elements = any(passage.elements for passage in passages)

    def fill(self, translations: Sequence[tuple[str, Links | None]]) -> bytes:
        """Return the file with these translations; without links, words are assumed to keep their order."""
        return _fill(self._parts, iter(translations)).encode(self._encoding)


class _Look(NamedTuple):
    """The tags around a text that give it its look."""

    opening: str = ""
    closing: str = ""


@dataclass
class _Text:
    """A stretch of text with one look."""

    content: str
    look: _Look


@dataclass
class _Thing:
    """Something in a text that is no text, or that ends one; it may contain paragraphs."""

    parts: "list[str | _Line]"
    ends: bool = False


@dataclass
class _Around:
    """An element that contains a part of a text."""

    opening: str
    closing: str
    inner: "list[_Item]"


_Item = _Text | _Thing | _Around


@dataclass
class _Line:
    """A text to translate, with the things in it."""

    items: list[_Item]

    def find_inner(self) -> Iterator["_Line"]:
        """Yield the lines inside the things in it."""
        for item in _walk(self.items):
            if isinstance(item, _Thing):
                yield from _find_lines(item.parts)

    @cached_property
    def look(self) -> _Look:
        """The look of most of its characters."""
        letters: Counter[_Look] = Counter()
        for item in _walk(self.items):
            if isinstance(item, _Text):
                letters[item.look] += len(item.content)
        return letters.most_common(1)[0][0]

    def make_passage(self, show: Callable[[_Thing], str]) -> Passage:
        """Return the text in the look of most of it; other looks and things become elements in it."""
        text, elements = self._collect(self.items, 0, show)
        return Passage(text, tuple(elements))

    def _collect(self, items: Sequence[_Item], begin: int, show: Callable[[_Thing], str]) -> tuple[str, list[Element]]:
        opening, closing = self.look
        text, elements = "", list[Element]()
        for item in items:
            at = begin + len(text)
            match item:
                case _Text(content, look):
                    text += content
                    if look != self.look and content.strip():
                        elements.append(Element(closing + look.opening, look.closing + opening, at, at + len(content)))
                case _Thing():
                    elements.append(Element(closing + show(item) + opening, "", at, at))
                case _Around():
                    inner, more = self._collect(item.inner, at, show)
                    text += inner
                    before, behind = closing + item.opening + opening, closing + item.closing + opening
                    elements += [Element(before, behind, at, at + len(inner)), *more]
        return text, elements

    def fill(self, left: Iterator[tuple[str, Links | None]]) -> str:
        """Return the line with its translation, the next in `left` after those of the lines inside it."""
        passage = self.make_passage(lambda thing: _fill(thing.parts, left))
        translation, links = next(left)
        opening, closing = self.look
        said = opening + weave(passage, _NO_XML.sub("", translation), links) + closing
        return said.replace(opening + closing, "") if opening else said


_Parts = list[str | _Line]


def _walk(items: Sequence[_Item]) -> Iterator[_Item]:
    """Yield all items, including those inside others."""
    for item in items:
        yield item
        if isinstance(item, _Around):
            yield from _walk(item.inner)


def _find_lines(parts: _Parts) -> Iterator[_Line]:
    """Yield all lines in the order in which `fill` takes their translations."""
    for part in parts:
        if isinstance(part, _Line):
            yield from part.find_inner()
            yield part


def _fill(parts: _Parts, left: Iterator[tuple[str, Links | None]]) -> str:
    return "".join(part if isinstance(part, str) else part.fill(left) for part in parts)


# ---- from elements to lines ----


def _cut(node: XmlNode) -> _Parts | None:
    """Return the parts of a paragraph, or None if it has nothing to translate."""
    parts = _make_parts(node)
    return parts if any(isinstance(part, _Line) for part in parts) else None


def _make_parts(node: XmlNode) -> _Parts:
    """Return an element as parts, with the lines of all paragraphs in it."""
    if node.name in LEFT_ALONE:
        return [node.raw]
    if node.name in PARAGRAPHS:
        items = _join(_find_items(node.inner, is_open=node.name.startswith("text:")))
        if _has_letters(items):
            return [node.opening, *_cut_lines(items), node.closing]
    return [node.opening, *(part for own in node.inner for part in _make_parts(own)), node.closing]


def _find_items(nodes: Sequence[XmlNode], *, is_open: bool) -> Iterator[_Item]:
    """Yield a paragraph's items; it contains text directly in OpenDocument (`is_open`), in runs in Office's XML."""
    for node in nodes:
        name = node.name
        if not name:
            if is_open and node.text:
                yield _Text(_SPACES.sub(" ", node.text), _Look())
        elif name == "text:s" and node.attributes.get(_HOW_MANY, "1") == "1":
            yield _Text(" ", _Look())
        elif name in _RUNS:
            yield from _cut_run(node)
        elif name in _AROUND:
            inner = _join(_find_items(node.inner, is_open=is_open))
            has_text = any(isinstance(item, _Text) for item in _walk(inner))
            yield _Around(node.opening, node.closing, inner) if has_text else _Thing(_make_parts(node))
        elif name in _FENCES:
            yield _Thing([node.opening], ends=True)
            yield from _find_items(node.inner, is_open=is_open)
            yield _Thing([node.closing], ends=True)
        elif name not in _HIDDEN:
            yield _Thing(_make_parts(node), _ends_text(node))


def _cut_run(run: XmlNode) -> Iterator[_Item]:
    """Yield the texts of a run and the things in it, each in a run of its own."""
    style = "".join(own.raw for own in run.inner if own.name in _STYLES)
    seen = _LANGUAGE.sub("", style)
    seen = "" if _NO_STYLE.fullmatch(seen) else seen
    tag, space = run.tag, ' xml:space="preserve"' if run.name == "w:r" else ""
    text_tag = f"{tag[:-1]}t"
    look = _Look(f"<{tag}>{seen}<{text_tag}{space}>", f"</{text_tag}></{tag}>")
    for own in run.inner:
        if own.name in _TEXTS:
            text = re.sub(r"[\t\r\n]", " ", "".join(inner.text for inner in own.inner))
            text = text if run.name == "a:r" or own.attributes.get(_XML_SPACE) == "preserve" else text.strip(" ")
            if text:
                yield _Text(text, look)
        elif own.name == "w:noBreakHyphen":
            yield _Text("-", look)
        elif own.name and own.name not in _STYLES | _HIDDEN:
            yield _Thing([run.opening + style, *_make_parts(own), run.closing], _ends_text(own))


def _ends_text(node: XmlNode) -> bool:
    """Whether a thing ends the text; if it has text of its own, it is a field of OpenDocument, such as a date."""
    is_long_space = node.name == "text:s"
    return is_long_space or node.name in _ENDS or any(own.text.strip() for own in node.inner if not own.name)


def _join(items: Iterable[_Item]) -> list[_Item]:
    """Join neighbouring texts of one look."""
    joined: list[_Item] = []
    for look, group in groupby(items, lambda item: item.look if isinstance(item, _Text) else None):
        own = list(group)
        joined += [_Text("".join(item.content for item in own if isinstance(item, _Text)), look)] if look else own
    return joined


def _has_letters(items: Sequence[_Item]) -> bool:
    return any(map(str.isalpha, "".join(item.content for item in _walk(items) if isinstance(item, _Text))))


def _cut_lines(items: Sequence[_Item]) -> Iterator[str | _Line]:
    """Yield the lines of a paragraph, and what ends them."""
    line: list[_Item] = []
    for item in _open_up(items):
        if isinstance(item, _Thing) and item.ends:
            yield from _make_line(line)
            yield from item.parts
            line = []
        else:
            line.append(item)
    yield from _make_line(line)


def _open_up(items: Sequence[_Item]) -> Iterator[_Item]:
    """Let an element that contains the end of a text end texts itself, where it opens and where it closes."""
    for item in items:
        if isinstance(item, _Around) and any(isinstance(own, _Thing) and own.ends for own in _walk(item.inner)):
            yield _Thing([item.opening], ends=True)
            yield from _open_up(item.inner)
            yield _Thing([item.closing], ends=True)
        else:
            yield item


def _make_line(items: Sequence[_Item]) -> Iterator[str | _Line]:
    """Yield one line; things before and after its words stay outside it, and so does an element around all of it."""
    begin, end = 0, len(items)
    while begin < end and isinstance(thing := items[begin], _Thing):
        yield from thing.parts
        begin += 1
    behind: _Parts = []
    while begin < end and isinstance(thing := items[end - 1], _Thing):
        behind[:0] = thing.parts
        end -= 1
    match items[begin:end]:
        case [_Around(opening, closing, inner)]:
            yield opening
            yield from _make_line(inner)
            yield closing
        case [*core] if _has_letters(core):
            line = _Line(core)
            if len(line.make_passage(lambda thing: "").elements) <= MOST_ELEMENTS:
                yield line
            else:
                for item in core:
                    yield from _make_line([item])
        case [*core]:
            yield from _as_they_were(core)
    yield from behind


def _as_they_were(items: Sequence[_Item]) -> Iterator[str | _Line]:
    for item in items:
        match item:
            case _Text(content, look):
                yield look.opening + html.escape(content, quote=False) + look.closing
            case _Thing(parts):
                yield from parts
            case _Around(opening, closing, inner):
                yield opening
                yield from _as_they_were(inner)
                yield closing
