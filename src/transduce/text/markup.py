"""Cut HTML into texts to translate and the markup around them, which stays as it is, character for character.

A text continues across inline tags, such as bold and links: each word of its translation gets the tags of the word it
comes from. All other tags end a text. Attributes that people read, such as `alt`, are translated as texts of their own.
`lang` and `dir` name the language that a text has after translation.
"""

import html
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from transduce.text.codes import NO_CODES, Codes
from transduce.text.tags import INLINE, cut_tags, find_language, has_language, is_other, name_of, say, words_of

EMPTY = frozenset({"img", "wbr"})  # a text continues across these too, which have no content
# Keeps the time proportional to the length of the text.
MOST_ELEMENTS = 100  # in a text; if there are more, each of their tags ends a text

Links = Sequence[tuple[int, int]]  # (source word, target word), counted from 0; words are separated by spaces
Path = tuple[int, ...]  # numbers of elements, each within the one before

WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Element:
    """A tag, or a pair of tags, and the range of characters in it."""

    opening: str
    closing: str
    begin: int
    end: int


@dataclass(frozen=True)
class Passage:
    """A text, and the elements in it in the order in which they open."""

    text: str
    elements: tuple[Element, ...] = ()

    @cached_property
    def _stretches(self) -> tuple[list[int], list[Path]]:
        """The places where the elements around a character change, and what they are from there on."""
        begins = sorted({0, *(place for element in self.elements for place in (element.begin, element.end))})
        # An element without words is around no character.
        numbered = [(n, one) for n, one in enumerate(self.elements) if self.text[one.begin : one.end].strip()]
        return begins, [tuple(n for n, one in numbered if one.begin <= place < one.end) for place in begins]

    def around(self, place: int) -> Path:
        """Return the elements around a character."""
        begins, paths = self._stretches
        return paths[bisect_right(begins, place) - 1]


class Markup:
    """HTML cut into parts: `texts` are to be translated, and `fill` puts the translations in their places."""

    def __init__(self, text: str, codes: Codes = NO_CODES):
        page = find_language(text)
        self._codes = codes if codes.source else replace(codes, source=page)
        self._parts: list[str | Passage] = []
        run: list[str] = []  # texts at even places, inline tags at odd ones
        tags: set[str] = set()
        read: dict[str, None] = {}
        # Only a page that names its own language rightly is believed where it says that a part is in another.
        language = page if self._codes.is_source(page) else ""
        for part, kind in cut_tags(text, language):
            if kind == "tag" and ((own := [value for _, _, value in words_of(part)]) or has_language(part)):
                tags.add(part)
                read |= dict.fromkeys(own)
            if kind == "text" or (kind == "tag" and _is_inline(part)):
                run.append(part)
            else:
                self._parts += [*_find_passages(run, language), part]
                run = []
        self._parts += _find_passages(run, language)
        self._tags, self._read = tags, list(read)

    @property
    def _passages(self) -> list[Passage]:
        return [part for part in self._parts if isinstance(part, Passage)]

    @property
    def texts(self) -> list[str]:
        """The texts, without any tags, followed by those inside tags, each once."""
        return [*(passage.text for passage in self._passages), *self._read]

    @property
    def has_elements(self) -> bool:
        """Whether there are tags within texts, so that `fill` needs word links."""
        return any(passage.elements for passage in self._passages)

    def fill(self, translations: Sequence[tuple[str, Links | None]]) -> str:
        """Return the HTML with these translations; without links, words are assumed to keep their order."""
        left = iter(translations)
        texts = [next(left) for _ in self._passages]
        read = {own: text for own, (text, _) in zip(self._read, left)}
        tags = {tag: say(tag, read, self._codes) for tag in self._tags} if self.texts else {}

        def put(passage: Passage, translation: str, links: Links | None) -> str:
            elements: list[Element] = []
            for one in passage.elements:
                opening = tags.get(one.opening, one.opening)
                # Words of another language that the model did not leave as they are have been translated.
                if one.opening in tags and passage.text[one.begin : one.end].strip() not in translation:
                    opening = say(one.opening, read, self._codes, always=True)
                elements.append(replace(one, opening=opening))
            return weave(replace(passage, elements=tuple(elements)), translation, links)

        left = iter(texts)
        return "".join(
            tags.get(part, part) if isinstance(part, str) else put(part, *next(left)) for part in self._parts
        )


def _is_inline(tag: str) -> bool:
    return name_of(tag) in INLINE | EMPTY


def _find_passages(run: Sequence[str], language: str) -> Iterator[str | Passage]:
    """Yield the passages of a run of texts and inline tags; a tag without a partner in the run ends a passage."""
    partners = _find_partners(run)
    begin = 0
    for place in range(1, len(run) + 1, 2):
        if place not in partners:  # a tag without a partner, or the end of the run
            yield from _find_passage(run, begin, place, partners, language)
            yield from run[place : place + 1]
            begin = place + 1


def _find_passage(
    run: Sequence[str], begin: int, end: int, partners: dict[int, int], language: str
) -> Iterator[str | Passage]:
    """Yield the passage in `run[begin:end]`, whose tags all have partners there; tags around all of it stay outside."""
    behind: list[str] = []
    stays = False
    while end - begin > 3 and not run[begin] and not run[end - 1] and partners[begin + 1] == end - 2:
        stays = stays or is_other(run[begin + 1], language)
        yield run[begin + 1]
        behind.append(run[end - 2])
        begin, end = begin + 2, end - 2
    texts = [html.unescape(part) for part in run[begin:end:2]]
    if stays or not any(map(str.isalnum, "".join(texts))):
        yield from run[begin:end]
    elif end - begin > 4 * MOST_ELEMENTS:
        for place in range(begin, end, 2):
            yield from _find_passage(run, place, place + 1, {}, language)
            yield from run[place + 1 : min(place + 2, end)]
    else:
        offsets = [0, *accumulate(map(len, texts))]
        elements = [
            Element(run[place], run[partner] if partner > place else "", offsets[a], offsets[b])
            for place in range(begin + 1, end, 2)
            if (partner := partners[place]) >= place
            for a, b in [((place - begin + 1) // 2, (partner - begin + 1) // 2)]
        ]
        text = "".join(texts)
        whole = (one.opening for one in elements if text[one.begin : one.end].strip() == text.strip())
        if any(is_other(opening, language) for opening in whole):
            yield from run[begin:end]
        else:
            yield Passage(text, tuple(elements))
    yield from reversed(behind)


def _find_partners(run: Sequence[str]) -> dict[int, int]:
    """Return for each tag the place of the one that closes or opens it, or its own if it has no content.

    Tags without a partner are left out, and so are all tags around them.
    """
    partners: dict[int, int] = {}
    above: list[int] = []
    for place in range(1, len(run), 2):
        name = name_of(run[place])
        if name in EMPTY:
            partners[place] = place
        elif not run[place].startswith("</"):
            above.append(place)
        elif above and name_of(run[above[-1]]) == name:
            partners[place] = above.pop()
            partners[partners[place]] = place
        else:
            above.clear()
    return partners


def escape_text(text: str) -> str:
    """Escape a text that stands between tags."""
    return html.escape(text, quote=False)


def weave(passage: Passage, translation: str, links: Links | None, escape: Callable[[str], str] = escape_text) -> str:
    """Return a translation with the elements of its passage; `escape` writes all but tags as the format needs it."""
    source = [found.span() for found in WORD.finditer(passage.text)]
    target = [found.span() for found in WORD.finditer(translation)]
    if not passage.elements or not target:
        tags = "".join(element.opening + element.closing for element in passage.elements)
        return escape(translation) + tags
    origins = find_origins(len(source), len(target), links)
    paths = [_paths_of(passage, *source[origin]) for origin in origins]
    used = {number for own in paths for path in own for number in path}
    standing: list[tuple[int, str, Path]] = []  # elements without words: place, tags, elements around
    for number, element in enumerate(passage.elements):
        if number in used:
            continue
        if not passage.text[element.begin : element.end].strip():
            place, space = _find_place(passage.text, element.begin, translation, source, target, origins)
            around = tuple(other for other in passage.around(element.begin) if other < number)
            standing.append((place, element.opening + element.closing + space, around))
        else:  # no target word comes from its words: it gets the nearest one
            word = sum(stop <= element.begin for _, stop in source)
            near = min(range(len(target)), key=lambda place: abs(origins[place] - word))
            head, core, tail = paths[near]
            paths[near] = head, tuple(sorted({*core, number})), tail
    spans: list[tuple[int, int, Path]] = []  # of the translation, with the elements around them
    end = 0
    for place, (begin, stop) in enumerate(target):
        own = [(a, b, path) for (a, b), path in zip(_cut_word(translation, begin, stop), paths[place]) if a < b]
        before = spans[-1][2] if spans else ()
        spans += [(end, begin, before[: _shared(before, own[0][2])]), *own]
        end = stop
    pieces: list[tuple[str, Path]] = []  # escaped
    for begin, stop, path in [*spans, (end, len(translation) + 1, ())]:
        at = begin
        for place, tags, around in sorted((one for one in standing if begin <= one[0] < stop), key=lambda one: one[0]):
            pieces += [(escape(translation[at:place]), path), (tags, path[: _shared(path, around)])]
            at = place
        pieces.append((escape(translation[at:stop]), path))
    return _render(pieces, passage.elements)


def find_origins(source: int, target: int, links: Links | None) -> list[int]:
    """Return the source word that each target word comes from; without a link, the one at the same relative place."""
    origins = [place * source // target for place in range(target)]
    for origin, place in links or ():
        if place < target and origin < source:
            origins[place] = origin
    return origins


def _find_place(
    text: str,
    at: int,
    translation: str,
    source: Sequence[tuple[int, int]],
    target: Sequence[tuple[int, int]],
    origins: Sequence[int],
) -> tuple[int, str]:
    """Return where in the translation an element without words belongs, and the space it needs after it."""
    word = sum(end <= at for _, end in source)  # the one it stands in or before
    if word == len(source):
        return target[-1][1], ""
    begin, end = source[word]
    before, behind = text[:at][-1:], text[at]
    backwards = range(len(target) - 1, -1, -1)
    rest = text[at:end] if begin < at else ""
    if rest and not any(map(str.isalnum, rest)):  # the mark of a footnote before a comma
        stop = target[min(backwards, key=lambda place: abs(origins[place] - word))][1]
        return stop - len(rest) if translation[:stop].endswith(rest) else stop, ""
    if before.strip() and behind.isspace():  # or after a word; after punctuation it stays after the same mark
        alike = [place for place in backwards if translation[target[place][1] - 1] == before and not before.isalnum()]
        return target[min(alike or backwards, key=lambda place: abs(origins[place] - word + 1))][1], ""
    near = min(range(len(target)), key=lambda place: abs(origins[place] - word))
    return target[near][0], " " if before.isspace() and behind.isspace() else ""


def _paths_of(passage: Passage, begin: int, end: int) -> tuple[Path, Path, Path]:
    """Return the elements around a word's leading punctuation, the word itself and its trailing punctuation."""
    (_, first), (_, last), _ = _cut_word(passage.text, begin, end)
    most, _ = Counter(map(passage.around, range(first, last))).most_common(1)[0]
    # If only the translation has punctuation here, it gets the elements of what is beside the word.
    head = passage.around(begin) if begin < first else passage.around(begin - 1) if begin else ()
    return head, most, passage.around(end - 1 if last < end else end)


def _cut_word(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return where a word's leading punctuation, the word itself and its trailing punctuation begin and end."""
    letters = [place for place in range(begin, end) if text[place].isalnum()]
    first, last = (letters[0], letters[-1] + 1) if letters else (begin, end)
    return [(begin, first), (first, last), (last, end)]


def _render(pieces: Sequence[tuple[str, Path]], elements: Sequence[Element]) -> str:
    parts: list[str] = []
    here: Path = ()
    for text, path in [*(piece for piece in pieces if piece[0]), ("", ())]:
        shared = _shared(here, path)
        parts += [elements[number].closing for number in reversed(here[shared:])]
        parts += [elements[number].opening for number in path[shared:]]
        parts.append(text)
        here = path
    return "".join(parts)


def _shared(one: Path, other: Path) -> int:
    """Return how many elements two paths have in common from the start."""
    return next((place for place, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
