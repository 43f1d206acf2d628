"""Where office documents and e-books name a language: of their styles, by which spelling is checked, or of a book.

Office programs know up to three languages of a text, for its letters as in Latin, its East Asian and its other signs.
"""

import re

from transduce.text.codes import Codes, find_country, find_direction, find_main

_EAST_ASIAN = set("ja ko zh".split())
_OTHER = set("ar bn fa gu he hi km kn lo ml mr my ne or pa ps si ta te th ug ur yi".split())
_STYLES = re.compile(r"<style:text-properties\b[^>]*>")
# The files of each kind of document that name languages, and where in them.
_PLACES = {
    ".docx": (re.compile(r"word/styles\d*\.xml", re.IGNORECASE), re.compile(r"<w:lang\b[^>]*>")),
    ".odt": (re.compile(r"(?:content|styles)\.xml"), _STYLES),
    ".odp": (re.compile(r"(?:content|styles)\.xml"), _STYLES),
    ".epub": (
        re.compile(r".*\.opf", re.IGNORECASE),
        re.compile(r"<dc:language\b[^>]*>[^<]*</dc:language\s*>|<spine\b[^>]*>"),
    ),
}
_IN_WORD = ("w:val", "w:eastAsia", "w:bidi")
_IN_OPEN = ("fo:{}", "style:{}-asian", "style:{}-complex")
_ONWARDS = "page-progression-direction"


def set_language(ending: str, name: str, content: bytes, codes: Codes) -> bytes:
    """Return a file of a document, naming the language of the translation where it named that of the source."""
    files, places = _PLACES.get(ending, (None, None))
    if not (files and places and codes.source and codes.target and files.fullmatch(name)):
        return content
    change = {".docx": _change_in_word, ".epub": _change_in_book}.get(ending, _change_in_open)
    try:
        return places.sub(lambda found: change(found[0], codes), content.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:  # in another encoding, which none of these files usually has
        return content


def _change_in_word(place: str, codes: Codes) -> str:
    if not codes.is_source(_get(place, _IN_WORD[_find_script(codes.source)])):
        return place
    code = "-".join(filter(None, (find_main(codes.target), find_country(codes.target))))
    return _set(place, _IN_WORD[_find_script(codes.target)], code)


def _change_in_open(place: str, codes: Codes) -> str:
    before, after = (_IN_OPEN[_find_script(code)] for code in (codes.source, codes.target))
    if not codes.is_source(_get(place, before.format("language"))):
        return place
    place = _set(place, after.format("language"), find_main(codes.target))
    return _set(place, after.format("country"), find_country(codes.target) or "none")


def _change_in_book(place: str, codes: Codes) -> str:
    if place.startswith("<spine"):
        towards = find_direction(codes.target)
        if not codes.turns:
            return place
        return _set(place, _ONWARDS, towards) if _get(place, _ONWARDS) else f'<spine {_ONWARDS}="{towards}"{place[6:]}'
    tag, _, behind = place.partition(">")
    code, _, closing = behind.partition("<")
    return f"{tag}>{codes.target}<{closing}" if codes.is_source(code) else place


def _find_script(code: str) -> int:
    """Return which of the languages of a text a language is."""
    main = find_main(code)
    return 1 if main in _EAST_ASIAN else 2 if main in _OTHER else 0


def _find(place: str, attribute: str) -> re.Match[str] | None:
    return re.search(rf"(?<=\s){attribute}\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", place)


def _get(place: str, attribute: str) -> str:
    found = _find(place, attribute)
    return (found[1] or found[2] or "") if found else ""


def _set(place: str, attribute: str, value: str) -> str:
    """Return a tag with another value of an attribute, if it has that."""
    found = _find(place, attribute)
    return f'{place[: found.start()]}{attribute}="{value}"{place[found.end() :]}' if found else place
