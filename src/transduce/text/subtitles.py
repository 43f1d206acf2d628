"""Cut subtitles into texts to translate and what is around them, which stays as it is, character for character.

What one speaker says in a cue is one text, however many lines it has (`speech.py`). A sentence that visibly goes on in
the next cue becomes one text across both, and its translation is cut into the cues again (`shares.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from transduce.text.boundaries import find_boundaries
from transduce.text.cues import Cue, read_cues
from transduce.text.markup import Links, find_origins, weave
from transduce.text.packed import decode
from transduce.text.sentences import gap_between
from transduce.text.shares import Share, break_lines, cut_shares
from transduce.text.speech import Form, Spoken, Turn, find_dots, find_turns, goes_on, has_times, is_ended
from transduce.text.words import find_width

# Seconds without words across which no sentence goes on: cues of one sentence follow within a second or so, and words
# that move into the next cue are shown that much later.
LONGEST_PAUSE = 2.0
MOST_CUES = 6  # of one text; if no sentence seems to end, the text ends here
WIDTH = 42  # characters of a line, as is usual for broadcasters
USUAL = 0.95  # quantile of the widest lines of a file's turns; if it exceeds WIDTH, all lines may be as wide
MARKED = 8  # one cue in this many must end with a mark for a missing one to show that a sentence goes on


@dataclass(frozen=True)
class _Shown:
    """A cue and what is said in it."""

    cue: Cue
    turns: list[Turn]


class Subtitles:
    """A file of subtitles: `texts` are to be translated, and `fill` puts the translations in their places."""

    def __init__(self, name: str, content: bytes):
        ending = PurePath(name).suffix.lower()
        self._form = Form(ending)
        self._parts: list[str | _Shown] = [
            _Shown(part, find_turns(part.lines, self._form)) if isinstance(part, Cue) else part
            for part in read_cues(name, decode(name, content), ending)
        ]
        shown = [part for part in self._parts if isinstance(part, _Shown)]
        widths = sorted(turn.widest for one in shown for turn in one.turns)
        self._width = max([WIDTH, *widths[int(USUAL * len(widths)) :][:1]])
        self._sources: list[list[str]] = []
        """the parts of each text, one for each cue"""
        self._find_texts(shown)
        self.texts = list(map(_join, self._sources))
        self.has_elements = any(
            spoken.passage.elements for one in shown for turn in one.turns for spoken in turn.spoken
        ) or any(len(parts) > 1 for parts in self._sources)

    def fill(self, translations: Sequence[tuple[str, Links | None]]) -> str:
        """Return the subtitles with these translations; without links, words are assumed to keep their order."""
        shares = [
            cut_shares(parts, text, *translation)
            for parts, text, translation in zip(self._sources, self.texts, translations, strict=True)
        ]
        return "".join(part if isinstance(part, str) else self._say(part, shares) for part in self._parts)

    def _find_texts(self, shown: Sequence[_Shown]) -> None:
        ended = [is_ended(one.turns[-1]) for one in shown if one.turns[-1].spoken]
        marked = sum(ended) * MARKED >= len(ended)
        following = {
            one.turns[-1].spoken[-1]: self._goes_on(one, other, marked)
            for one, other in pairwise(shown)
            if one.turns[-1].spoken
        }
        is_open = False
        for spoken in (spoken for one in shown for turn in one.turns for spoken in turn.spoken):
            is_open = self._add(spoken, is_open, following.get(spoken, False))

    def _goes_on(self, one: _Shown, other: _Shown, marked: bool) -> bool:
        cue, later = one.cue, other.cue
        if cue.number != later.number and not cue.begin < later.begin <= cue.end + LONGEST_PAUSE:
            return False
        return goes_on(one.turns[-1], other.turns[0], self._form, marked=marked)

    def _add(self, spoken: Spoken, is_open: bool, goes_on: bool) -> bool:
        """Add what is said to the texts: to the one still open, to new ones, and to one that the next cue continues.

        Return whether the last of them is still open.
        """
        text = spoken.passage.text
        gaps = find_boundaries(text) if is_open or goes_on else []
        if is_open and not gaps and len(self._sources[-1]) + 1 >= MOST_CUES:
            goes_on = False
        spoken.tail = find_dots(text) if goes_on else ""
        cuts = [gaps[0]] if gaps and is_open else []
        cuts += [gap for gap in gaps[-1:] if goes_on and gap not in cuts]
        edges = [0, *(edge for cut in cuts for edge in cut), len(text) - len(spoken.tail)]
        for number, (begin, end) in enumerate(zip(edges[::2], edges[1::2])):
            if not is_open or number:
                self._sources.append([])
            spoken.slices.append((len(self._sources) - 1, len(self._sources[-1])))
            self._sources[-1].append(text[begin:end])
        return goes_on

    def _say(self, shown: _Shown, shares: Sequence[Sequence[Share]]) -> str:
        """Return a cue with its shares; if these are what it had, it stays as it was."""
        raw = shown.cue.raw
        every = [place for turn in shown.turns for spoken in turn.spoken for place in spoken.slices]
        if all(shares[text][part].text.split() == self._sources[text][part].split() for text, part in every):
            return raw
        lines = [line for turn in shown.turns for line in self._say_turn(turn, shares)]
        before, behind = (raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :])
        return before + shown.cue.ending.join(filter(None, lines)) + behind

    def _say_turn(self, turn: Turn, shares: Sequence[Sequence[Share]]) -> Iterator[str]:
        whole = "".join(item if isinstance(item, str) else self._say_spoken(item, shares) for item in turn.items)
        words = self._find_words(whole)
        seen = [self._form.see(word) for word in words]
        lines = break_lines(
            [(word, find_width(word)) for word in seen], turn.lines, turn.widest, max(self._width, turn.widest)
        )
        for place, numbers in enumerate(lines):
            codes = "" if place else turn.codes
            yield codes + turn.before + " ".join(words[number] for number in numbers) + turn.behind

    def _find_words(self, whole: str) -> list[str]:
        """Return the words of a turn; a mark that stands alone, or a speaker's name, is joined with its word."""
        words: list[str] = []
        is_open = False
        for found in self._form.word.finditer(whole):
            seen = self._form.see(found[0])
            is_mark = not any(map(str.isalnum, seen))
            if words and (is_open or is_mark):
                words[-1] += f" {found[0]}"
                is_open = is_open and is_mark
            else:
                words.append(found[0])
                is_open = is_mark
            is_open = is_open or (seen.isupper() and seen.endswith(":"))
        return words

    def _say_spoken(self, spoken: Spoken, shares: Sequence[Sequence[Share]]) -> str:
        said: list[str] = []
        links: list[tuple[int, int]] = []
        sources = targets = 0  # words before
        for text, part in spoken.slices:
            share = shares[text][part]
            many, more = len(self._sources[text][part].split()), len(share.text.split())
            links += [
                (origin + sources, word + targets) for word, origin in enumerate(find_origins(many, more, share.links))
            ]
            sources, targets = sources + many, targets + more
            said.append(share.text)
        whole = " ".join(filter(None, said))
        if spoken.tail and whole:
            whole = whole.rstrip(",;:.… ") + spoken.tail
        # Times at which words appear must stay in order, so without links the words stay in order too.
        return weave(spoken.passage, whole, None if has_times(spoken.passage) else links, self._form.escape)


def _join(parts: Sequence[str]) -> str:
    """Join the parts of a sentence into one text."""
    return parts[0] + "".join(gap_between(one, other) + other for one, other in pairwise(parts))
