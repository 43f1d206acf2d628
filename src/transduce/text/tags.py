"""HTML's tags: where they begin and end, which elements stay as they are, what people read in them, and languages."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from transduce.text.codes import NO_CODES, Codes, find_direction, find_main, is_same

Kind = Literal["text", "tag", "kept"]
Values = Mapping[str, tuple[int, int, str]]  # of attributes, and where they begin and end in a tag

UNTOUCHED = ("script", "style", "code", "pre", "textarea", "template")  # with everything in them
# A text continues across those that are closed within it.
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins kbd label mark q s samp small span strike strong sub "
    "sup time tt u var".split()
)
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # never closed
ROOTS = frozenset({"html", "ncx"})
ALONE = frozenset("p li dt dd tr td th option".split())  # one that is not closed ends at the next
READ = frozenset({"alt", "title", "placeholder", "aria-label"})
BUTTONS = frozenset({"submit", "button", "reset"})  # kinds of input whose value is read
MOST_QUOTED = 64  # values in one tag; more make it text, which keeps the time proportional to the length of the text

_BEFORE = re.compile(r"(?:[\s\ufeff]++|<!--.*?-->|<(?:\?|!(?!--))[^>]*+>)*+", re.DOTALL)  # what may precede a root
_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
_STOP = re.compile(r"[<>\"']")
_LANGUAGE = re.compile(r"\b(?:lang|dir)\s*=|^<html\b", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")


def cut_tags(text: str, language: str = "") -> Iterator[tuple[str, Kind]]:
    """Yield the parts of HTML: texts, which may be empty, alternating with tags or elements that are kept whole.

    Given the language of the text, elements in other languages are kept, but not inline ones.
    """
    begin = at = 0
    last = text.rfind("-->")  # so that not every unclosed beginning searches to the end
    above = _Above(language)
    while (at := text.find("<", at)) >= 0:
        end = _end_of_tag(text, at, last)
        if end is None:
            at += 1
            continue
        stayed, untouched = above.stays, text[at + 1] != "/" and name_of(text, at) in UNTOUCHED
        if untouched:
            closing = re.compile(rf"</{re.escape(name_of(text, at))}\s*>", re.IGNORECASE).search(text, end)
            end = closing.end() if closing else len(text)
        else:
            above.read(text[at:end])
        if not stayed:
            yield text[begin:at], "text"
            begin = at
        if not above.stays:
            yield text[begin:end], "kept" if stayed or untouched else "tag"
            begin = end
        at = end
    if above.stays:
        yield text[begin:], "kept"
        begin = len(text)
    yield text[begin:], "text"


def name_of(text: str, at: int = 0) -> str:
    """Return the name of the tag that begins here, or an empty text if it has none."""
    found = _NAME.match(text, at)
    return found[1].lower() if found else ""


def find_language(text: str) -> str:
    """Return the language that a page says it is in; nothing for a part of a page."""
    at = found.end() if (found := _BEFORE.match(text)) else 0
    end = _end_of_tag(text, at, 0) if name_of(text, at) in ROOTS else None
    return next((value for _, _, value in _languages(text[at:end])), "") if end else ""


def has_language(tag: str) -> bool:
    """Whether `say` may have to change the language that a tag names, or its direction."""
    return _LANGUAGE.search(tag) is not None and not tag.startswith("</")


def is_other(tag: str, language: str) -> bool:
    """Whether a tag says that its element is in another language than the given one."""
    return _is_other(_read(tag), language) is True


def words_of(tag: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the attribute values that people read are in a tag, quotes included, and their texts."""
    values = _read(tag)
    if tag.startswith("</") or _is_marked(values):
        return
    button = name_of(tag) == "input" and values.get("type", (0, 0, ""))[2].lower() in BUTTONS
    for name, (begin, end, value) in values.items():
        if (name in READ or (name == "value" and button)) and any(map(str.isalnum, value)):
            yield begin, end, value


def say(tag: str, translations: Mapping[str, str], codes: Codes = NO_CODES, *, always: bool = False) -> str:
    """Return a tag with the attributes that people read translated, and with the language of the translation.

    The language is named instead of that of the source; `always`: instead of any.
    """
    changes = [(begin, end, f'"{html.escape(translations[value])}"') for begin, end, value in words_of(tag)]
    changes += _find_changes(tag, codes, always) if codes.target and has_language(tag) else []
    parts: list[str] = []
    done = 0
    for begin, end, said in sorted(changes):
        parts += [tag[done:begin], said]
        done = end
    return "".join([*parts, tag[done:]])


def _find_changes(tag: str, codes: Codes, always: bool) -> Iterator[tuple[int, int, str]]:
    """Yield where a tag names the source's language or direction, and what it says after translation."""
    name, is_source, directed = name_of(tag), False, False
    for begin, end, value in _languages(tag):
        if always or codes.is_source(value):
            is_source = True
            yield begin, end, f'"{codes.target}"'
    if not codes.turns:
        return
    direction = find_direction(codes.target)
    for own, begin, end, value in _attributes(tag):
        if own == "dir":
            directed = True
            # An inline one may be around a number, and <bdo> is for a direction against the usual one.
            ours = name not in INLINE or (is_source and name != "bdo")
            if ours and value.lower() == find_direction(codes.source):
                yield begin, end, f'"{direction}"'
    if name == "html" and not directed and direction == "rtl":
        place = len("<html")
        yield place, place, f' dir="{direction}"'


def _languages(tag: str) -> Iterator[tuple[int, int, str]]:
    """Yield the languages that a tag names, and where they are."""
    return ((begin, end, value) for name, begin, end, value in _attributes(tag) if name in ("lang", "xml:lang"))


class _Above:
    """The open elements, and whether the content of the innermost stays as it is."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._open: list[tuple[str, bool, bool]] = []
        self._many = Counter[str]()

    @property
    def stays(self) -> bool:
        return bool(self._open) and any(self._open[-1][1:])

    def read(self, tag: str) -> None:
        """Open or close the element of a tag; closing one also closes what is still open in it."""
        name = name_of(tag)
        if tag.startswith("</"):
            while self._many[name] and self._close() != name:
                pass
        elif name and name not in VOID:
            if self._open and name in ALONE and self._open[-1][0] == name:
                self._close()
            if not tag.endswith("/>"):
                values = _read(tag)
                _, marked, foreign = self._open[-1] if self._open else ("", False, False)
                wanted, other = _is_marked(values), None if name in INLINE else _is_other(values, self._language)
                self._open.append((name, marked if wanted is None else wanted, foreign if other is None else other))
                self._many[name] += 1

    def _close(self) -> str:
        name, _, _ = self._open.pop()
        self._many[name] -= 1
        return name


def _is_marked(values: Values) -> bool | None:
    """Whether an element is marked to stay as it is; None if it is as the one around it."""
    if "notranslate" in values.get("class", (0, 0, ""))[2].lower().split():
        return True
    wanted = values.get("translate", (0, 0, None))[2]
    return None if wanted is None or wanted.lower() not in ("yes", "no", "") else wanted.lower() == "no"


def _is_other(values: Values, language: str) -> bool | None:
    """Whether an element is in another language, not to be translated; None if it is as the one around it."""
    if _is_marked(values) is False:
        return False
    said = values.get("lang") or values.get("xml:lang")
    return not is_same(said[2], language) if language and said and find_main(said[2]) else None


def _read(tag: str) -> Values:
    return {name: (begin, end, value) for name, begin, end, value in _attributes(tag)}


def _attributes(tag: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield the attributes of a tag: name, where the value begins and ends, and the value."""
    name = _NAME.match(tag)
    for found in _ATTRIBUTE.finditer(tag, name.end()) if name else ():
        value = found[2] or ""
        yield found[1].lower(), *found.span(2), html.unescape(value[1:-1] if value[:1] in ("'", '"') else value)


def _end_of_tag(text: str, at: int, last: int) -> int | None:
    """Return where the tag or comment that begins here ends, or None if none does."""
    if text.startswith("<!--", at):
        return text.find("-->", at + 4) + 3 if last >= at + 4 else None
    if not text[at + 1 : at + 2] or not (text[at + 1].isalpha() or text[at + 1] in "/!?"):
        return None
    for _ in range(MOST_QUOTED):
        found = _STOP.search(text, at + 1)
        if not found or found[0] == "<":
            return None
        if found[0] == ">":
            return found.end()
        at = text.find(found[0], found.end())
        if at < 0:
            return None
    return None
