"""Cut the translation of a sentence into shares for the cues that it spans, and a cue's text into lines.

A sentence may go on across several cues, and its translation has to be cut into these again: where the fewest word
links cross the cut, so that a cue has what is said while it is shown.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil, inf
from typing import NamedTuple

from transduce.text.markup import WORD, Links, find_origins
from transduce.text.sentences import find_word_parts
from transduce.text.words import is_of_word

# What makes a place worse to cut at, counted in links that cross it: a word without punctuation before it; a short one,
# which mostly belongs to the next (an article, a preposition); a share too long or too short by the length of a part.
PLAIN, SHORT, APART = 0.8, 0.95, 2.0
STRICT = 3  # the first two are this many times as bad if the source was cut after punctuation; some links are wrong
SHORTEST = 3  # most letters of a short word
# The cost of a line that ends in such a place, counted in squares of characters that it is too long or too short.
ROUGH = 200
MOST_WORDS = 200  # in a text whose lines are made even; a longer one gets full lines


class Share(NamedTuple):
    """The translation of a part of a text, and its word links, counted from the beginning of both."""

    text: str
    links: Links | None


class _Place(NamedTuple):
    """Where a translation may be cut."""

    end: int
    """end of the text before it, in characters"""
    begin: int
    """beginning of the text after it"""
    words: int
    """number of words before it"""
    cost: float


def cut_shares(parts: Sequence[str], joined: str, translation: str, links: Links | None) -> list[Share]:
    """Return each part's share of the joined text's translation; without links, words are assumed to keep order."""
    translation = translation.strip()
    if len(parts) == 1:
        return [Share(translation, links)]
    places = _find_places(translation, len(parts))
    if len(places) < len(parts) - 1:  # fewer words than parts
        words = [*translation.split(), *[""] * len(parts)]
        return [Share(word, None) for word in words[: len(parts)]]
    ends: list[int] = []  # of parts, in characters of the joined text
    for part in parts:
        ends.append(joined.index(part, ends[-1] if ends else 0) + len(part))
    bounds = [0, *(len(joined[:end].split()) for end in ends)]
    source, target = bounds[-1], len(translation.split())
    linked = (
        [(origin, word) for word, origin in enumerate(find_origins(source, target, None))] if links is None else links
    )
    costs = [
        [
            crossing
            + place.cost * (1 if is_of_word(part[-1:]) else STRICT)
            + APART * abs(place.end / len(translation) - end / ends[-1]) * len(parts)
            for place, crossing in zip(places, _count_crossings(places, linked, bound, target))
        ]
        for part, end, bound in zip(parts[:-1], ends, bounds[1:])
    ]
    chosen = [places[number] for number in _choose(costs)]
    begins = [_Place(0, 0, 0, 0), *chosen]
    stops = [*chosen, _Place(len(translation), len(translation), target, 0)]
    return [
        Share(translation[begin.begin : stop.end], _cut_links(links, begin, stop, bounds[number : number + 2]))
        for number, (begin, stop) in enumerate(zip(begins, stops))
    ]


def _find_places(translation: str, many: int) -> list[_Place]:
    """Find places to cut: between words, and within them only if words are too few and have parts, as in Chinese."""
    words = [found.span() for found in WORD.finditer(translation)]
    places: list[_Place] = []
    for number, (begin, end) in enumerate(words):
        if len(words) < many:
            cuts = (begin + part for part in find_word_parts(translation[begin:end]))
            places += [_Place(cut, cut, number, 0 if not is_of_word(translation[cut - 1]) else PLAIN) for cut in cuts]
        if number + 1 < len(words):
            places.append(_Place(end, words[number + 1][0], number + 1, _roughness(translation[begin:end])))
    return places


def _roughness(word: str) -> float:
    """Return how bad it is to cut after a word, counted in links."""
    return 0.0 if not is_of_word(word[-1:]) else SHORT if len(word) <= SHORTEST else PLAIN


def _count_crossings(places: Sequence[_Place], links: Links, bound: int, words: int) -> Iterator[int]:
    """Return how many links cross a cut at each place, if the source is cut before the word `bound`."""
    change = [0] * (words + 1)
    crossing = 0
    for origin, word in links:
        if word < words:
            crossing += origin < bound
            change[word + 1] += 1 if origin >= bound else -1
    counts = [crossing + more for more in accumulate(change)]
    return (counts[place.words] for place in places)


def _choose(costs: Sequence[Sequence[float]]) -> list[int]:
    """Choose a place for each cut, in increasing order, with the smallest sum of costs."""
    best = [0.0] * len(costs[0])
    chosen: list[list[int]] = []
    for number, own in enumerate(costs):
        here: list[float] = []
        before: list[int] = []
        least, which = (0.0, -1) if not number else (inf, -1)
        for place, cost in enumerate(own):
            if number and place and best[place - 1] < least:
                least, which = best[place - 1], place - 1
            here.append(least + cost)
            before.append(which)
        best = here
        chosen.append(before)
    place = min(range(len(best)), key=best.__getitem__)
    found: list[int] = []
    for before in reversed(chosen):
        found.append(place)
        place = before[place]
    return found[::-1]


def _cut_links(links: Links | None, begin: _Place, end: _Place, bounds: Sequence[int]) -> Links | None:
    """Return the links of a share, counted from its first word and that of its part."""
    if links is None:
        return None
    first, last = bounds
    return [
        (origin - first, word - begin.words)
        for origin, word in links
        if first <= origin < last and begin.words <= word < end.words
    ]


# ---- lines ----


def break_lines(words: Sequence[tuple[str, int]], lines: int, widest: int, most: int) -> list[list[int]]:
    """Return the numbers of the words on each line; words are given as shown, with their widths.

    There are `lines` lines, or fewer if none is then wider than `widest`, or as many more as it takes for none to be
    wider than `most`.
    """
    widths = [width for _, width in words]
    whole = sum(widths) + len(widths) - 1
    widest, most = (max([limit, *widths]) for limit in (min(widest, most), most))
    if not words:
        return [[]]
    if len(words) > MOST_WORDS:
        return _fill_lines(widths, most)
    least = min(max(1, ceil(whole / most)), len(words))
    for many in range(least, len(words) + 1):
        limit = widest if many < lines else most
        if found := _balance(words, many, limit):
            return found
    return [[*range(len(words))]]


def _fill_lines(widths: Sequence[int], most: int) -> list[list[int]]:
    lines: list[list[int]] = [[]]
    room = most
    for number, width in enumerate(widths):
        if width > room and lines[-1]:
            lines.append([])
            room = most
        lines[-1].append(number)
        room -= width + 1
    return lines


def _balance(words: Sequence[tuple[str, int]], many: int, limit: int) -> list[list[int]] | None:
    """Break into `many` lines of about the same width, preferably after punctuation; None if one exceeds `limit`."""
    edges = [0, *accumulate(width + 1 for _, width in words)]
    even = (edges[-1] - many) / many
    best = [0.0] + [inf] * len(words)
    chosen: list[list[int]] = []
    for line in range(many):
        here = [inf] * (len(words) + 1)
        before = [0] * (len(words) + 1)
        for end in range(1, len(words) + 1):
            rough = 0 if line == many - 1 else ROUGH * _roughness(words[end - 1][0])
            for begin in range(end - 1, -1, -1):
                width = edges[end] - edges[begin] - 1
                if width > limit:
                    break
                if (cost := best[begin] + (width - even) ** 2 + rough) < here[end]:
                    here[end], before[end] = cost, begin
        best = here
        chosen.append(before)
    if best[-1] == inf:
        return None
    lines: list[list[int]] = []
    end = len(words)
    for before in reversed(chosen):
        lines.append([*range(before[end], end)])
        end = before[end]
    return lines[::-1]
