"""HTML as texts to translate and the markup around them, which stays as it is, character for character.

A text ends where a tag begins: a sentence with a word in bold is three texts.
"""

import html
import re
from collections.abc import Iterator, Sequence

UNTOUCHED = ("script", "style", "code", "pre", "textarea", "template")  # with all that is in them
MOST_QUOTED = 64  # values in one tag; what has more is no tag, and the search for its end is bounded

_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")


class Markup:
    """An HTML text, cut: `texts` are to be translated, and `fill` puts translations in their places."""

    def __init__(self, text: str):
        self._parts: list[str] = []
        self._places: list[int] = []
        for part, translated in _cut(text):
            if translated and any(map(str.isalnum, plain := html.unescape(part))):
                self._places.append(len(self._parts))
                part = plain
            self._parts.append(part)

    @property
    def texts(self) -> list[str]:
        """What stands between the tags, as plain text."""
        return [self._parts[place] for place in self._places]

    def fill(self, translations: Sequence[str]) -> str:
        """The HTML with a translation for each text."""
        parts = list(self._parts)
        for place, translation in zip(self._places, translations, strict=True):
            parts[place] = html.escape(translation, quote=False)
        return "".join(parts)


def _cut(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, and whether each is to be translated."""
    begin = at = 0
    last = text.rfind("-->")  # so that it is not looked for behind each of many beginnings
    while (at := text.find("<", at)) >= 0:
        end = _end_of_tag(text, at, last)
        if end is None:
            at += 1
            continue
        yield text[begin:at], True
        name = _NAME.match(text, at)
        if name and text[at + 1] != "/" and name[1].lower() in UNTOUCHED:
            closing = re.compile(rf"</{re.escape(name[1])}\s*>", re.IGNORECASE).search(text, end)
            end = closing.end() if closing else len(text)
        yield text[at:end], False
        begin = at = end
    yield text[begin:], True


def _end_of_tag(text: str, at: int, last: int) -> int | None:
    """Where the tag or the comment that begins here ends, or nothing if none does."""
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


_STOP = re.compile(r"[<>\"']")
