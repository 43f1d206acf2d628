"""Split text into sentences for the model, and put their translations back into its layout.

Lines are never joined. A line is split where its sentences end (`boundaries.py`); a sentence that is still too long is
split between clauses, between words or, as a last resort, within a word.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from transduce.text.boundaries import STOPS, WIDE, find_boundaries
from transduce.text.words import is_of_word

SplitWhen = Literal["long", "always", "never"]
Count = Callable[[str], int]
Span = tuple[int, int]

_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_BLANK = r"\s\u200b\u2060\ufeff"  # white space, and what counts as white space around a line
_LINE = re.compile(f"[^{_BLANK}](?:[^{_BREAKS}]*[^{_BLANK}])?")
# Need no space after them: Thai to Myanmar, Khmer, Chinese and Japanese with their punctuation, and a long dash.
_UNSPACED = re.compile(
    r"[\u0e00-\u109f\u1780-\u17ff\u2014\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f"
    r"\uff00-\uff9f\U00020000-\U0003ffff]"
)
_CLOSING = "\"'”’“‘»›)]}*_"


@dataclass(frozen=True)
class Layout:
    """What is before, between and after the pieces of a text."""

    gaps: tuple[str, ...]
    """one more than there are pieces"""
    tight: frozenset[int]
    """numbers of the pieces that needed no space after them, as in Chinese; their translations may need one"""
    tag: str = ""
    """the language tag that the text begins with, and the spaces behind it; the pieces have it, the gaps do not"""

    def join(self, translations: Sequence[str]) -> str:
        """Return the text with a translation in the place of each piece."""
        if len(translations) != len(self.gaps) - 1:
            raise ValueError(f"{len(translations)} translations for {len(self.gaps) - 1} pieces; give one for each")
        parts = (text + self.behind(number, text) for number, text in enumerate(translations))
        return self.gaps[0] + "".join(parts)

    def behind(self, number: int, translation: str) -> str:
        """Return what follows the translation of a piece."""
        spaced = number in self.tight and translation and not ends_unspaced(translation)
        return self.gaps[number + 1] + (" " if spaced else "")


def lay_out(
    text: str, count: Count, longest: int, split: SplitWhen, over: int | None = None
) -> tuple[list[str], Layout]:
    """Cut a text into pieces to translate, none empty or with white space around it; return them and their layout.

    `count` counts the tokens of a piece, `longest` is the most a piece may have. With `long`, a line of more than
    `over` tokens (by default `longest`) is split into its sentences; with `always`, every line is. With `never`, a line
    is one piece, however long.
    """
    if longest < 1:
        raise ValueError(f"longest = {longest} leaves no room for a piece; use 1 or more")
    spans: list[Span] = []
    for found in _LINE.finditer(text):
        if split == "never":
            spans.append(found.span())
        else:
            begin = found.start()
            whole = 0 if split == "always" else longest if over is None else min(over, longest)
            pieces = _split_line(found[0], count, longest, whole)
            spans += [(begin + start, begin + end) for start, end in pieces]
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    gaps = tuple(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    pieces = [text[start:end] for start, end in spans]
    inner = enumerate(pieces[:-1])
    tight = frozenset(number for number, piece in inner if not gaps[number + 1] and ends_unspaced(piece))
    return pieces, Layout(gaps, tight)


def _split_line(line: str, count: Count, longest: int, whole: int) -> list[Span]:
    """Return the pieces of a line without white space around it; one of at most `whole` tokens stays as it is."""
    tokens = count(line)
    if tokens <= whole:
        return [(0, len(line))]
    gaps = find_boundaries(line)
    sentences = list(zip([0, *(start for _, start in gaps)], [*(end for end, _ in gaps), len(line)], strict=True))
    if tokens <= longest:
        return sentences
    if not gaps:
        return list(_cut(line, 0, len(line), tokens, count, longest))
    counted = ((start, end, count(line[start:end])) for start, end in sentences)
    return [piece for start, end, tokens in counted for piece in _cut(line, start, end, tokens, count, longest)]


def _cut(line: str, start: int, end: int, tokens: int, count: Count, longest: int) -> Iterator[Span]:
    """Cut a sentence into pieces of similar size with at most `longest` tokens each, at the best places."""
    waiting = [(start, end, tokens)]
    while waiting:
        start, end, tokens = waiting.pop()
        if tokens <= longest or end - start == 1:
            yield start, end
            continue
        # In two, and these again: the tokens of a part are known only once they are counted.
        sentence = line[start:end]
        parts = ceil(tokens / longest)
        size = len(sentence) / parts
        before, after = _find_place(sentence, size * (parts // 2), size)
        for first, last in ((start + after, end), (start, start + before)):
            waiting.append((first, last, count(line[first:last])))


# The places to cut a sentence at, each with the white space after it. A full stop counts only after four letters, to
# leave out most abbreviations.
_PLACE = re.compile(
    rf"(?P<stop>(?:(?<=[^\W\d_]{{4}})\.|(?!\.)[{STOPS}{WIDE}]++)[\"'”’»)\]」』）]*+)(?:[\s\u200b]+|(?<=[。！？」』）]))"
    r"|(?P<semicolon>[;:；：؛])(?:[\s\u200b]+|(?<=[；：]))"
    r"|(?P<dash>[—–]|(?<=\s)-)(?:[\s\u200b]+|(?<=—))"
    r"|(?P<comma>[,，、،])(?:[\s\u200b]+|(?<=[，、]))"
    r"|(?P<word>)(?<![\s\u200b])[\s\u200b]+"
)
# The cost of each kind of place, compared with its distance from the even place in lengths of a piece.
_COSTS = {"stop": 0.0, "semicolon": 0.1, "dash": 0.2, "comma": 0.3, "word": 0.7}
_FIRST_SEEN = re.compile(r"[^\W_]")
_LAST_SEEN = re.compile(r".*[^\W_]", re.DOTALL)


def _find_place(sentence: str, even: float, size: float) -> Span:
    """Return where to cut a sentence in two: the end of the first part and the beginning of the second."""
    whole = (0, len(sentence))
    near = (max(0, int(even - size)), min(len(sentence), ceil(even + size)))
    first, last = _FIRST_SEEN.search(sentence), _LAST_SEEN.match(sentence)
    worded = (first.end(), last.end()) if first and last else whole  # so that no part is punctuation only
    for searched, allowed in ((near, worded), (whole, worded), (whole, whole)):
        places = [
            (_COSTS[kind] + abs(found.end() - even) / size, found.end(kind), found.end())
            for found in _PLACE.finditer(sentence, *searched)
            # White space at the end of the searched range may continue beyond it.
            if (kind := str(found.lastgroup)) and allowed[0] <= found.end() < min(allowed[1], searched[1])
        ]
        if places:
            _, before, after = min(places)
            return before, after
    place = _find_place_in_word(sentence, even, size)
    return place, place


def _find_place_in_word(word: str, even: float, size: float) -> int:
    """Return where to cut text without spaces: before a part or an ideograph if near, else between characters."""
    for place in _outwards(word, even, size / 2):
        if _begins_part(word, place) and _begins_character(word, place):
            return place
    for place in _outwards(word, even, len(word)):
        if _begins_character(word, place):
            return place
    return len(word) // 2  # one character with more tokens than a piece may have: a heap of combining marks


def find_word_parts(word: str) -> list[int]:
    """Return the places to cut a word at: between characters of a script without spaces, or after punctuation."""
    return [place for place in range(1, len(word)) if _begins_part(word, place) and _begins_character(word, place)]


def _outwards(word: str, even: float, distance: float) -> Iterator[int]:
    middle = round(even)
    for step in range(int(distance) + 1):
        yield from (place for place in (middle - step, middle + step) if 0 < place < len(word))


def _begins_part(word: str, place: int) -> bool:
    before, after = word[place - 1], word[place]
    return after.isalnum() and (not is_of_word(before) or ends_unspaced(before) or ends_unspaced(after))


# Joiners, Thai and Lao AM, Korean vowels and finals, half-width voicing, skin tones, tags.
_CONTINUES = re.compile(
    r"[\u200c\u200d\u0e33\u0eb3\u1160-\u11ff\ud7b0-\ud7ff\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
# Pairs that belong together: a joiner or a Korean initial with what follows, the halves of a surrogate pair.
_GOES_ON = re.compile(
    r"\u200d.|[\u1100-\u115f\ua960-\ua97f][\u1100-\u115f\ua960-\ua97f\uac00-\ud7a3]|[\ud800-\udbff][\udc00-\udfff]"
)
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]+$")
_VIRAMA = 9  # the combining class of the sign that joins Indic consonants


def _begins_character(text: str, place: int) -> bool:
    """Whether no character, as a reader sees it, spans this place (nearly as in Unicode's annex 29)."""
    after = text[place]
    if unicodedata.category(after)[0] == "M" or _CONTINUES.match(after) or _GOES_ON.match(text, place - 1, place + 1):
        return False
    if unicodedata.combining(text[place - 1]) == _VIRAMA and after.isalpha():
        return False
    flags = _FLAGS.search(text, 0, place) if _FLAGS.match(after) else None
    return not flags or len(flags[0]) % 2 == 0


def gap_between(line: str, following: str) -> str:
    """Return what joins two lines into one: a space, unless their scripts need none."""
    return "" if ends_unspaced(line) and ends_unspaced(following[:1]) else " "


def ends_unspaced(text: str) -> bool:
    """Whether a text ends in a character that needs no space after it, as Chinese does."""
    return _UNSPACED.match(text.rstrip(_CLOSING)[-1:]) is not None
