"""The XML of office documents as elements: those of one paragraph at a time, and the rest of the file as it is."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from xml.parsers import expat

# Bounds for files that were made to do harm: elements in each other, and in one paragraph.
DEEPEST, MOST_IN_PARAGRAPH = 200, 200_000

# The standards' names for their vocabularies, the second of each by ISO's strict variant.
_VOCABULARIES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "urn:oasis:names:tc:opendocument:xmlns:text:1.0": "text",
    "urn:oasis:names:tc:opendocument:xmlns:office:1.0": "office",
}
PARAGRAPHS = {"w:p", "a:p", "text:p", "text:h"}
# What was deleted, and what somebody notes about the text.
UNTOUCHED = {"w:del", "w:moveFrom", "text:tracked-changes", "office:annotation"}
_TAG = re.compile(rb"<(?:[^<>\"']++|\"[^\"]*\"|'[^']*')*+>")

T = TypeVar("T")


@dataclass(slots=True)
class Node:
    """An element, or with no name what stands between two tags."""

    name: str
    opening: str
    attributes: dict[str, str] = field(default_factory=dict)
    closing: str = ""
    text: str = ""
    inner: "list[Node]" = field(default_factory=list)

    @property
    def raw(self) -> str:
        """As it was read."""
        return self.opening + "".join(node.raw for node in self.inner) + self.closing

    @property
    def tag(self) -> str:
        """Its name as this file writes it."""
        return re.split(r"[\s/>]", self.opening[1:], maxsplit=1)[0]


class Reader(Generic[T]):
    """Reads an XML file into its parts: what is made of its outermost paragraphs, and all between them.

    A paragraph of which nothing is made stays as it is.
    """

    def __init__(self, content: bytes, make: "Callable[[Node], list[str | T] | None]"):
        self.parts: list[str | T] = []
        self._content, self._make = content, make
        self._done = 0  # how much of it is in the parts
        self._end = 0  # of the last tag
        self._text: list[str] = []  # since then
        self._begin = 0  # of the paragraph
        self._above: list[Node] = []
        self._depth = self._left_alone = 0  # how deep we are, and where what is not looked at began
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
        # Nothing is to be looked up or expanded as a file tells it.
        raise ValueError("it declares a document type, which no program writes there")

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} elements stand in each other")
        vocabulary, _, own = name.rpartition(" ")
        name = f"{_VOCABULARIES.get(vocabulary, '')}:{own}"
        begin = self._parser.CurrentByteIndex
        if self._above:
            self._add_text(begin)
        elif name in UNTOUCHED and not self._left_alone:
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
        node = Node(name, self._read_tag(begin), attributes)
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
            self._above[-1].inner.append(Node("", raw, text=text))
        self._text.clear()
