"""Cut subtitle files into cues (lines, and the time for which they are shown) and the text between them.

SubRip (.srt) and WebVTT (.vtt) are read leniently: cue numbers may be missing or wrong, times may have a point or a
comma, and a SubRip cue may have blank lines. In WebVTT a blank line ends the cue, and what follows is not shown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import DataError

ENDINGS = (".srt", ".vtt")
MOST_NAMED = 10  # lines that an error names

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_TIME = r"\s*-?(?:(\d+)\s*:\s*)?(\d{1,2})\s*:\s*(\d{1,2})(?:\s*[.,:]\s*(\d+))?\s*"
_TIMES = re.compile(rf"{_TIME}-->{_TIME}(?:\s.*)?$")
# Lines meant as times that `_TIMES` does not match: with letters among the digits, or with another arrow.
_MEANT = re.compile(r"-->|^\s*\d+\s*:\s*\d+\s*[:.,][\s\d.,:]*(?:[-–—=]*>|→|⟶)")
_HEADER = re.compile(r"WEBVTT(?:[ \t].*)?$")


@dataclass(frozen=True)
class Cue:
    """Consecutive lines that are not blank, and when they are shown."""

    raw: str
    """the lines as in the file, without the end of the last"""
    ending: str
    """the line end to write between lines"""
    number: int
    """the number of its times in the file; a cue with blank lines becomes several with the same number"""
    begin: float
    end: float

    @property
    def lines(self) -> list[str]:
        return [found[0].rstrip("\r\n") for found in _LINE.finditer(self.raw)]


def read_cues(name: str, text: str, ending: str) -> list[str | Cue]:
    """Return the cues of a file with this ending, and the text between them, in order."""
    raw = _LINE.findall(text)
    lines = [line.strip() for line in raw]
    if raw:
        lines[0] = lines[0].removeprefix("\ufeff").strip()
    if not any(lines):
        return [text]
    times = _find_times(name, lines, ending)
    parts: list[str | Cue] = []
    done = 0  # lines that are in `parts` already
    starts = list(times)
    for number, (at, (begin, end)) in enumerate(times.items()):
        stop = starts[number + 1] if number + 1 < len(starts) else len(lines)
        if stop < len(lines) and stop - 1 > at and _is_name(lines, stop - 1, ending):
            stop -= 1
        blocks = _find_blocks(lines, at + 1, stop)
        if ending == ".vtt":
            blocks = [block for block in blocks[:1] if block[0] == at + 1]
        for first, last in blocks:
            whole = "".join(raw[first:last])
            own = whole.rstrip("\r\n")
            parts += ["".join(raw[done:first]), Cue(own, raw[at][len(raw[at].rstrip("\r\n")) :], number, begin, end)]
            parts.append(whole[len(own) :])
            done = last
    return [*parts, "".join(raw[done:])]


def _find_times(name: str, lines: Sequence[str], ending: str) -> dict[int, tuple[float, float]]:
    """Return the begin and end, in seconds, of each line that states times, by its place."""
    is_web = _HEADER.match(lines[0])
    if ending == ".vtt" and not is_web:
        raise DataError(
            f"{name}:1: a .vtt file must begin with WEBVTT, but this begins with {lines[0][:40]!r}; add WEBVTT and a "
            "blank line at the top, or rename the file to .srt if it is SubRip"
        )
    if ending == ".srt" and is_web:
        raise DataError(f"{name}:1: its content is WebVTT; rename it to .vtt")
    times: dict[int, tuple[float, float]] = {}
    wrong: list[int] = []
    for place, line in enumerate(lines):
        if found := _TIMES.match(line):
            times[place] = _seconds(*found.groups()[:4]), _seconds(*found.groups()[4:])
        # In SubRip an arrow may be text, unless it is where times belong: at the top, after a number or a blank line.
        elif _MEANT.search(line) and (ending == ".vtt" or not place or not lines[place - 1].strip("0123456789")):
            wrong.append(place)
    wanted = "00:00:01,000 --> 00:00:02,500" if ending == ".srt" else "00:01.000 --> 00:02.500"
    if wrong:
        raise DataError(
            "\n".join(
                f"{name}:{place + 1}: cannot read {lines[place][:60]!r} as times; write them as {wanted}"
                for place in wrong[:MOST_NAMED]
            )
        )
    if not times and ending == ".srt":
        raise DataError(
            f"{name}:1: no line has times such as {wanted}, so this is not SubRip; save it as SubRip, or rename it to "
            "match its format"
        )
    return times


def _seconds(hours: str | None, minutes: str, seconds: str, rest: str | None) -> float:
    return 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds) + float(f"0.{rest or 0}")


def _is_name(lines: Sequence[str], place: int, ending: str) -> bool:
    """Whether the line before times is the number of the cue, or in WebVTT its name."""
    line = lines[place]
    if line.isdecimal():
        return True
    # A wrong number has a digit and no spaces; anything else is text, and the number is missing.
    is_word = ending == ".vtt" or (" " not in line and any(map(str.isdecimal, line)))
    return bool(line) and is_word and not lines[place - 1]


def _find_blocks(lines: Sequence[str], begin: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of consecutive lines that are not blank."""
    blocks: list[tuple[int, int]] = []
    first = begin
    for place in range(begin, end + 1):
        if place == end or not lines[place]:
            if place > first:
                blocks.append((first, place))
            first = place + 1
    return blocks
