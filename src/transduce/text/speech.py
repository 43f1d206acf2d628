"""Find what is said in a cue: who speaks, which characters are not speech, and whether a sentence goes on in the next.

What one speaker says is one text. Dashes, names, music notes and the brackets around sounds stay where they are, and so
do tags around a whole text; tags within it are elements of its passage.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from transduce.text.boundaries import STOPS, WIDE, find_boundaries
from transduce.text.markup import MOST_ELEMENTS, Element, Passage, escape_text, weave
from transduce.text.sentences import gap_between
from transduce.text.words import find_width, is_small

# For SubRip its tags and codes of other formats that are used in it; for WebVTT anything that looks like a tag.
_TAGS = {
    ".srt": r"</?(?:[ibusc]|font|em|strong|ruby|rt|v|lang)(?:[.\s][^<>]*)?>|<\d[\d:.]*>|\{\\[^{}]*\}|\{/?[ibus]\}",
    ".vtt": r"<[^<>]*>|\{\\[^{}]*\}",
}
_NAME = re.compile(r"([<{])/?([a-z]+)(?![a-z])", re.IGNORECASE)
_TIME = re.compile(r"<\d")
_VOICE = re.compile(r"\s*<v\b", re.IGNORECASE)
_CODE = re.compile(r"\{\\[^{}]*\}")

_MUSIC = "♪♫♬♩🎵🎶"
_DASH = r"-(?!-)|[‐‑–—―−]"
# A speaker's name in capitals, before text that is not.
_SPEAKER = r"(?=[^\W\d_])(?=[^:]{1,40}:(?:\s|$))[^a-zß-öø-ÿа-я:]+:(?=\s.{0,80}[a-zß-öø-ÿа-я])"
_SOUND = r"\[[^\[\]]*\]|\([^()a-zß-öø-ÿа-я]*\)"
_DOTS = r"\.{2,}|…+|--+"
_FRESH = re.compile(rf"{_DASH}|>>|[\[{_MUSIC}]|#\s|\([^()]*\)$|\([^()a-zß-öø-ÿа-я]*(?:\)|$)|{_SPEAKER}")
_BEFORE = re.compile(rf"(?:\s|{_DASH}|>>+|[{_MUSIC}]|#(?=\s)|{_DOTS}|{_SPEAKER})+")
_BEHIND = re.compile(rf"(?:\s|[{_MUSIC}]|(?<=\s)#)+$")
_SOUND_BEFORE = re.compile(rf"(?:{_SOUND})(?=\s)")
_SOUND_BEHIND = re.compile(rf"(?<=\s)(?:{_SOUND})$")
_BRACKETED = re.compile(r"\[[^\[\]]*\]|\([^()]*\)")
_GOES_ON = re.compile(rf"\s*(?:{_DOTS}|(?<=\s)[-–—]|—)$")
_DOTTED = re.compile(r"\s*(?:\.{2,}|…+)$")
_RESUMES = re.compile(rf"\s*(?:{_DOTS})?\s*")
_ENDS = re.compile(rf"[{STOPS}{WIDE}]\W*$")
_STOP = re.compile(r"(?<!\.)\.[^\w.]*$")
NEAR = 100  # characters at the end of a text that are searched for what it ends with


class Form:
    """How texts and tags are written in files with this ending."""

    def __init__(self, ending: str):
        self.is_web = ending == ".vtt"
        self.tag = re.compile(f"({_TAGS[ending]})", re.IGNORECASE)
        self.word = re.compile(rf"(?:{_TAGS[ending]}|\S)+", re.IGNORECASE)

    def escape(self, text: str) -> str:
        return escape_text(text) if self.is_web else text

    def see(self, line: str) -> str:
        """Return a line as it is shown, without tags."""
        shown = self.tag.sub("", line)
        return html.unescape(shown) if self.is_web else shown


@dataclass(eq=False)
class Spoken:
    """What one speaker says in a cue, and where it is in the texts to translate."""

    passage: Passage
    slices: list[tuple[int, int]] = field(default_factory=list)
    """where each of its pieces is: the number of a text to translate, and the number of a part of that text"""
    tail: str = ""
    """dots that show that it goes on; they are not translated"""


Items = list[str | Spoken]


@dataclass(frozen=True)
class Turn:
    """The lines of one speaker: texts, and everything else in them."""

    codes: str
    """codes at the beginning that say where it is shown"""
    items: Items
    before: str
    """the tags around each line"""
    behind: str
    lines: int
    widest: int

    @property
    def spoken(self) -> list[Spoken]:
        return [item for item in self.items if isinstance(item, Spoken)]


def find_turns(lines: Sequence[str], form: Form) -> list[Turn]:
    """Cut a cue's lines into turns."""
    groups: list[list[str]] = []
    closed = True
    for line in lines:
        seen = form.see(line).strip()
        if closed or _FRESH.match(seen) or _VOICE.match(line):
            groups.append([])
        groups[-1].append(line)
        closed = seen.endswith(tuple(_MUSIC)) or _BRACKETED.fullmatch(seen) is not None
    return [_make_turn(group, form) for group in groups]


def _make_turn(lines: Sequence[str], form: Form) -> Turn:
    seen = [form.see(line).strip() for line in lines]
    runs = [form.tag.split(line.strip()) for line in lines]
    codes = ""
    while len(runs[0]) > 1 and not runs[0][0] and _CODE.match(runs[0][1]):
        codes += runs[0][1]
        runs[0] = runs[0][2:]
    before, behind = "", ""
    while len(runs) > 1 and all(map(_is_wrapped, runs)) and len({(run[1], run[-2]) for run in runs}) == 1:
        before, behind = before + runs[0][1], runs[0][-2] + behind
        runs = [run[2:-2] for run in runs]
    run = runs[0]
    for (one, other), more in zip(pairwise(seen), runs[1:]):
        run[-1] += gap_between(one, other) + more[0]
        run += more[1:]
    if len(run) // 2 > MOST_ELEMENTS:
        # Each text between the tags is translated by itself, which keeps the time proportional to the cue's length.
        texts = [[part] if place % 2 else _peel(_make_passage([part], form), form) for place, part in enumerate(run)]
        items = [item for some in texts for item in some]
    else:
        items = _peel(_make_passage(run, form), form)
    return Turn(codes, items, before, behind, len(lines), max(map(find_width, seen)))


def _is_wrapped(run: Sequence[str]) -> bool:
    """Whether a tag and its partner are around all of a line."""
    return (
        3 < len(run) < 2 * MOST_ELEMENTS and not run[0] and not run[-1] and _find_partners(run).get(1) == len(run) - 2
    )


def _find_partners(run: Sequence[str]) -> dict[int, int]:
    """Return for each tag that is closed the place of the one that closes it."""
    partners: dict[int, int] = {}
    above: list[tuple[str, int]] = []
    for place in range(1, len(run), 2):
        found = _NAME.match(run[place])
        if not found:
            continue
        name = (found[1] + found[2]).lower()
        if run[place][1] != "/":
            above.append((name, place))
        elif name in (own for own, _ in above):
            while above[-1][0] != name:
                above.pop()
            partners[above.pop()[1]] = place
    return partners


def _make_passage(run: Sequence[str], form: Form) -> Passage:
    """Return a text with its tags as elements; tags that are not closed are elements without content."""
    texts = [html.unescape(text) if form.is_web else text for text in run[::2]]
    offsets = [0, *accumulate(map(len, texts))]
    partners = _find_partners(run)
    closing = set(partners.values())
    elements = [
        Element(
            run[place], run[partner] if partner > place else "", *(offsets[(at + 1) // 2] for at in (place, partner))
        )
        for place in range(1, len(run), 2)
        if place not in closing
        for partner in [partners.get(place, place)]
    ]
    return Passage("".join(texts), tuple(elements))


def _peel(passage: Passage, form: Form) -> Items:
    """Separate the text of a passage, and of sounds beside it, from what is around them."""
    front: Items = []
    back: Items = []
    while True:
        text, elements = passage.text, passage.elements
        first, last = (elements[0], elements[-1]) if elements else (None, None)
        if first and first.begin == 0 and first.end == len(text):
            front.append(first.opening)
            back.append(first.closing)
            passage = replace(passage, elements=elements[1:])
        elif first and first.end == 0:
            front.append(first.opening + first.closing)
            passage = replace(passage, elements=elements[1:])
        elif last and last.begin == len(text) and all(one.end < len(text) for one in elements[:-1]):
            back.append(last.opening + last.closing)
            passage = replace(passage, elements=elements[:-1])
        elif (found := _BEFORE.match(text)) and (cut := _cut(passage, found.end())):
            front += _as_it_is(cut[0], form)
            passage = cut[1]
        elif (found := _find_behind(_BEHIND, text)) and (cut := _cut(passage, found.start())):
            back += _as_it_is(cut[1], form)[::-1]
            passage = cut[0]
        elif (found := _SOUND_BEFORE.match(text)) and (cut := _cut(passage, found.end())):
            front += _peel(cut[0], form)
            passage = cut[1]
        elif (found := _find_behind(_SOUND_BEHIND, text)) and (cut := _cut(passage, found.start())):
            back += _peel(cut[1], form)[::-1]
            passage = cut[0]
        elif _BRACKETED.fullmatch(text) and (cut := _cut(passage, 1)) and (inner := _cut(cut[1], len(text) - 2)):
            front.append(text[0])
            back.append(text[-1])
            passage = inner[0]
        else:
            break
    middle = [Spoken(passage)] if any(map(str.isalpha, passage.text)) else _as_it_is(passage, form)
    return [item for item in (*front, *middle, *reversed(back)) if item]


def _cut(passage: Passage, place: int) -> tuple[Passage, Passage] | None:
    """Return a passage cut in two, or None if an element spans the place."""
    if any(one.begin < place < one.end or (one.begin == one.end == place) for one in passage.elements):
        return None
    left = tuple(one for one in passage.elements if one.end <= place)
    right = tuple(
        replace(one, begin=one.begin - place, end=one.end - place) for one in passage.elements if one.begin >= place
    )
    return Passage(passage.text[:place], left), Passage(passage.text[place:], right)


def _find_behind(what: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Search the last characters of a text; searching all of it could take the square of its length."""
    return what.search(text, max(0, len(text) - NEAR))


def _as_it_is(passage: Passage, form: Form) -> Items:
    many = len(passage.text.split())
    return [weave(passage, passage.text, [(place, place) for place in range(many)], form.escape)]


# ---- sentences over cues ----


def goes_on(turn: Turn, following: Turn, form: Form, *, marked: bool) -> bool:
    """Whether a sentence visibly goes on from a turn to the first one of the next cue.

    `marked` says whether the file has marks where sentences end; if not, the lack of one does not show that it goes on.
    """
    before, behind = _fixed(turn, -1), _fixed(following, 0)
    if before is None or behind is None or form.see(before).strip():
        return False
    lead = form.see(behind)
    if not _RESUMES.fullmatch(lead) or _voice(turn) != _voice(following):
        return False
    one, other = turn.spoken[-1].passage.text, following.spoken[0].passage.text
    letter = next(character for character in other if character.isalnum())
    if _find_behind(_GOES_ON, one):
        return is_small(letter) or bool(lead.strip())
    if is_small(letter):
        # After a full stop a small letter shows nothing: the file may have no capitals. Only an abbreviation goes on.
        other = other.capitalize() if _find_behind(_STOP, one) else other
        return len(one) not in (end for end, _ in find_boundaries(f"{one} {other}"))
    is_title = (one.isupper() and len(one) > 3) != (other.isupper() and len(other) > 3)
    if not marked or one.endswith(":") or is_title or turn.codes != following.codes:
        return False
    return not _find_behind(_ENDS, one) or len(one) not in (end for end, _ in find_boundaries(f"{one} {other}"))


def find_dots(text: str) -> str:
    """Return the dots after a text that goes on; within a sentence, a model makes little sense of them."""
    found = _find_behind(_DOTTED, text)
    return found[0] if found else ""


def is_ended(turn: Turn) -> bool:
    """Whether a mark shows that a sentence ends with the turn."""
    return bool(turn.spoken) and _find_behind(_ENDS, turn.spoken[-1].passage.text) is not None


def has_times(passage: Passage) -> bool:
    """Whether words appear one after the other, at times given before them."""
    return any(_TIME.match(element.opening) for element in passage.elements)


def _fixed(turn: Turn, side: int) -> str | None:
    """Return what is before the first text of a turn (side 0), or after its last one (side -1)."""
    places = [place for place, item in enumerate(turn.items) if isinstance(item, Spoken)]
    if not places:
        return None
    items = turn.items[: places[0]] if side == 0 else turn.items[places[-1] + 1 :]
    return "".join(item for item in items if isinstance(item, str))


def _voice(turn: Turn) -> list[str]:
    """Return the tags that say who speaks."""
    return [item for item in turn.items if isinstance(item, str) and _VOICE.match(item)]
