"""HTML's tags: where they begin and end, which elements stay as they are, and which attributes people read."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

Kind = Literal["text", "tag", "kept"]

UNTOUCHED = ("script", "style", "code", "pre", "textarea", "template")  # with everything in them
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # never closed
ALONE = frozenset("p li dt dd tr td th option".split())  # one that is not closed ends at the next
READ = frozenset({"alt", "title", "placeholder", "aria-label"})
BUTTONS = frozenset({"submit", "button", "reset"})  # kinds of input whose value is read
MOST_QUOTED = 64  # values in one tag; more make it text, which keeps the time proportional to the length of the text

_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
_STOP = re.compile(r"[<>\"']")
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")


def cut_tags(text: str) -> Iterator[tuple[str, Kind]]:
    """Yield the parts of HTML: texts, which may be empty, alternating with tags or elements that are kept whole."""
    begin = at = 0
    last = text.rfind("-->")  # so that not every unclosed beginning searches to the end
    above = _Above()
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


def words_of(tag: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the attribute values that people read are in a tag, quotes included, and their texts."""
    values = {name: (begin, end, value) for name, begin, end, value in _attributes(tag)}
    if tag.startswith("</") or _stays(values, False):
        return
    button = name_of(tag) == "input" and values.get("type", (0, 0, ""))[2].lower() in BUTTONS
    for name, (begin, end, value) in values.items():
        if (name in READ or (name == "value" and button)) and any(map(str.isalnum, value)):
            yield begin, end, value


def say(tag: str, translations: Mapping[str, str]) -> str:
    """Return a tag with the attributes that people read translated."""
    parts: list[str] = []
    done = 0
    for begin, end, value in words_of(tag):
        parts += [tag[done:begin], '"', html.escape(translations[value]), '"']
        done = end
    return "".join([*parts, tag[done:]])


class _Above:
    """The open elements, and whether the content of the innermost stays as it is."""

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []
        self._many = Counter[str]()

    @property
    def stays(self) -> bool:
        return bool(self._open) and self._open[-1][1]

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
                values = {own: (begin, end, value) for own, begin, end, value in _attributes(tag)}
                self._open.append((name, _stays(values, self.stays)))
                self._many[name] += 1

    def _close(self) -> str:
        name, _ = self._open.pop()
        self._many[name] -= 1
        return name


def _stays(values: Mapping[str, tuple[int, int, str]], around: bool) -> bool:
    """Whether an element with these attributes stays as it is; `around` is the answer for the one around it."""
    if "notranslate" in values.get("class", (0, 0, ""))[2].lower().split():
        return True
    wanted = values.get("translate", (0, 0, None))[2]
    return around if wanted is None or wanted.lower() not in ("yes", "no", "") else wanted.lower() == "no"


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
