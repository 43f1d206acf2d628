"""Parse the XML of office documents into elements, one paragraph at a time; the rest of the file stays as it is."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from xml.parsers import expat

# Limits against malicious files: depth of nesting, and elements in one paragraph.
DEEPEST, MOST_IN_PARAGRAPH = 200, 200_000

# XML namespaces of the standards; w and a have another in ISO's strict variant.
_VOCABULARIES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "urn:oasis:names:tc:opendocument:xmlns:text:1.0": "text",
    "urn:oasis:names:tc:opendocument:xmlns:office:1.0": "office",
}
PARAGRAPHS = {"w:p", "a:p", "text:p", "text:h"}
# Deleted text, and comments on the text.
LEFT_ALONE = {"w:del", "w:moveFrom", "text:tracked-changes", "office:annotation"}
_TAG = re.compile(rb"<(?:[^<>\"']++|\"[^\"]*\"|'[^']*')*+>")

T = TypeVar("T")


@dataclass(slots=True)
class XmlNode:
    """An element, or, without a name, the text between two tags."""

    name: str
    opening: str
    attributes: dict[str, str] = field(default_factory=dict)
    closing: str = ""
    text: str = ""
    inner: "list[XmlNode]" = field(default_factory=list)

    @property
    def raw(self) -> str:
        """Its XML as it was read."""
        return self.opening + "".join(node.raw for node in self.inner) + self.closing

    @property
    def tag(self) -> str:
        """Its name as this file writes it."""
        return re.split(r"[\s/>]", self.opening[1:], maxsplit=1)[0]


class Reader(Generic[T]):
    """Cuts an XML file into parts: what `make` returns for each outermost paragraph, and the text between them.

    A paragraph for which `make` returns None stays as it is.
    """

    def __init__(self, content: bytes, make: "Callable[[XmlNode], list[str | T] | None]"):
        self.parts: list[str | T] = []
        self._content, self._make = content, make
        self._done = 0  # bytes of it that are in the parts
        self._end = 0  # of the last tag
        self._text: list[str] = []  # since then
        self._begin = 0  # of the paragraph
        self._above: list[XmlNode] = []
        self._depth = self._left_alone = 0  # the current depth, and that of the element left alone, if any
        self._many = 0  # elements in the paragraph
        self._parser = expat.ParserCreate("utf-8", " ")
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.StartElementHandler = self._open
        self._parser.EndElementHandler = self._close
        self._parser.CharacterDataHandler = self._text.append
        self._parser.Parse(content, True)
        self.parts.append(content[self._done :].decode())

    def _refuse(self, *_: object) -> None:
        # A document type could make the parser look up or expand entities.
        raise ValueError("it declares a document type, which office programs never do")

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} levels of nested elements")
        vocabulary, _, own = name.rpartition(" ")
        name = f"{_VOCABULARIES.get(vocabulary, '')}:{own}"
        begin = self._parser.CurrentByteIndex
        if self._above:
            self._add_text(begin)
        elif name in LEFT_ALONE and not self._left_alone:
            self._left_alone = self._depth
            return
        elif name not in PARAGRAPHS or self._left_alone:
            return
        else:
            self._begin, self._many = begin, 0
            self._text.clear()
        self._many += 1
        if self._many > MOST_IN_PARAGRAPH:
            raise ValueError(f"a paragraph has more than {MOST_IN_PARAGRAPH:,} elements")
        node = XmlNode(name, self._read_tag(begin), attributes)
        if self._above:
            self._above[-1].inner.append(node)
        self._above.append(node)

    def _close(self, _: str) -> None:
        if self._left_alone == self._depth:
            self._left_alone = 0
        self._depth -= 1
        if not self._above:
            return
        if not self._above[-1].opening.endswith("/>"):
            begin = self._parser.CurrentByteIndex
            self._add_text(begin)
            self._above[-1].closing = self._read_tag(begin)
        node = self._above.pop()
        if not self._above:
            parts = self._make(node)
            if parts is not None:
                self.parts += [self._content[self._done : self._begin].decode(), *parts]
                self._done = self._end

    def _read_tag(self, begin: int) -> str:
        found = _TAG.match(self._content, begin)
        assert found, "the parser has seen a tag here"
        self._end = found.end()
        return found[0].decode()

    def _add_text(self, begin: int) -> None:
        if self._end < begin:
            raw, text = self._content[self._end : begin].decode(), "".join(self._text)
            self._above[-1].inner.append(XmlNode("", raw, text=text))
        self._text.clear()
