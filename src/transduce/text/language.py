"""Find lines in another language by their sequences of letters, which are rare on that side of the corpus.

No language model is needed, only the corpus itself: how frequent each sequence of three bytes is on either side, and
how much lines of a given length usually deviate. A line with the sequences of the other side is on the wrong side, and
a pair of two such lines is swapped. Frequencies are used, not conditional probabilities, so that a few lines in other
languages do not pass for the corpus's own. If a side is clearly in a language that `detect.py` knows, somewhat unusual
lines are also checked by their words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transduce.text.detect import find_clear, find_other

SEQUENCES = 18  # bits of the table's index: three bytes, each shifted by five bits more
LEAST_LINES = 1000  # with fewer lines, nothing is learned
LEAST_SPREAD = 0.2  # so that in a corpus of templates, the few other lines are not taken for foreign
LENGTHS = range(3, 10)  # lines are compared with those of similar length: 8 to 15 bytes, 16 to 31, …, 512 and more
UNKNOWN = 4  # from this length on (16 bytes), a line shows whether it is in a third language
WORDS_TELL = 0.4  # of the limit: how unusual the letters must be for a check of the words
TOLD_BY = 200  # characters; enough to detect a language
ASKED, AGREE, CLEAR = 500, 0.8, 0.25  # to detect a side's language: lines, least shares that agree and that are clear
MARKS = ".,;:!?()[]\"'«»„“”‘’…"
_PLAIN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@dataclass(frozen=True)
class Usual:
    """The usual mean over a line and its spread, by the line's length."""

    middle: np.ndarray
    spread: np.ndarray

    @classmethod
    def learn(cls, means: np.ndarray, lengths: np.ndarray) -> "Usual":
        """Learn the medians by length, and the median deviations from them."""
        middle, spread = [], []
        for length in LENGTHS:
            here = lengths >= length if length == LENGTHS[-1] else lengths == length
            some = means[here] if here.sum() >= 50 else means
            middle.append(np.median(some))
            # The median deviation, scaled to be the standard deviation of a normal distribution.
            spread.append(max(LEAST_SPREAD, 1.4826 * float(np.median(np.abs(some - middle[-1])))))
        return cls(np.array(middle), np.array(spread))

    def deviations(self, means: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return how many deviations means are from the usual; NaN for lines that are too short."""
        places = np.clip(lengths, LENGTHS[0], LENGTHS[-1]) - LENGTHS[0]
        return np.where(lengths < LENGTHS[0], np.nan, (means - self.middle[places]) / self.spread[places])


@dataclass(frozen=True)
class Language:
    """One side of a corpus: the log frequencies of sequences, and how much they exceed those of the other side."""

    frequencies: np.ndarray
    contrast: np.ndarray
    usual: Usual
    usual_contrast: Usual
    code: str | None
    """its code, if it is clearly a language that `detect.py` knows"""


class Deviations(NamedTuple):
    """How usual lines are, in deviations: about 0 if usual, -5 and less if not."""

    own: np.ndarray  # by the frequencies on their own side
    unlike: np.ndarray  # by the contrast with the other side
    beyond: np.ndarray  # how far from usual lines of the other side they are, towards their own

    def is_other(self, limit: float) -> np.ndarray:
        """Return which lines are nearer to those of the other side than to their own, and not far from them."""
        return (self.unlike < 0) & (self.beyond < np.minimum(limit / 2, -self.unlike))


@dataclass(frozen=True)
class Languages:
    """What is usual on either side of a corpus."""

    sides: tuple[Language, Language]

    @classmethod
    def learn(cls, source: Sequence[str], target: Sequence[str]) -> "Languages | None":
        """Learn from some lines of each side of the corpus; None if there are too few."""
        lines = [[line for line in some if line] for some in (source, target)]
        if min(map(len, lines)) < LEAST_LINES:
            return None
        tables = [_count_frequencies(some) for some in lines]
        sides: list[Language] = []
        for own, other, some in zip(tables, tables[::-1], lines):
            contrast = own - other
            means, contrasts, lengths = _find_means(some, own, contrast)
            usual = Usual.learn(means, lengths), Usual.learn(contrasts, lengths)
            sides.append(Language(own, contrast, *usual, _find_code(some)))
        return cls((sides[0], sides[1]))

    def measure(self, side: int, lines: Sequence[str]) -> Deviations:
        """Measure lines of one side of the corpus."""
        own, other = self.sides[side], self.sides[1 - side]
        means, contrasts, lengths = _find_means(lines, own.frequencies, own.contrast)
        return Deviations(
            np.where(lengths < UNKNOWN, np.nan, own.usual.deviations(means, lengths)),
            own.usual_contrast.deviations(contrasts, lengths),
            -other.usual_contrast.deviations(-contrasts, lengths),
        )

    def find_foreign(self, pairs: Sequence[tuple[str, str]], limit: float) -> np.ndarray:
        """Return which pairs have a side in another language than that side of the corpus, or swapped sides."""
        if not pairs:
            return np.zeros(0, bool)
        source, target = (self.measure(side, [pair[side] for pair in pairs]) for side in (0, 1))
        # Names and code are unusual on both sides, so one must be far more unusual than the other.
        foreign = (np.minimum(source.own, target.own) < 1 - limit) & (np.abs(source.own - target.own) > limit)
        foreign |= source.is_other(limit) & target.is_other(limit) & (source.unlike + target.unlike < -limit)
        for side, measured in enumerate((source, target)):
            found = np.flatnonzero(~foreign & (measured.unlike < 1 - limit) & measured.is_other(limit))
            # Names, code and quotations may be in the other language, but then both sides have them.
            rest = [_drop_shared(pairs[row][side], pairs[row][1 - side]) for row in found.tolist()]
            again = self.measure(side, rest)
            foreign[found] = (again.unlike < 1 - limit) & again.is_other(limit)
            if code := self.sides[side].code:
                for row in np.flatnonzero(~foreign & (measured.own < -WORDS_TELL * limit)).tolist():
                    words = _plain_words(_drop_shared(pairs[row][side], pairs[row][1 - side]))
                    foreign[row] = find_other(words[:TOLD_BY], code) is not None
        return foreign


def count_swapped(source: Sequence[str], target: Sequence[str], pairs: Sequence[tuple[str, str]]) -> int:
    """Count the pairs whose source looks more like the target of a corpus than their target does, and the reverse."""
    contrast = np.subtract(*(_count_frequencies([line for line in some if line]) for some in (source, target)))
    one, other = (_find_means([pair[side] for pair in pairs], contrast)[0] for side in (0, 1))
    return int((one < other).sum())


def _find_code(lines: Sequence[str]) -> str | None:
    """Return the language of lines, if they clearly agree on one that is known."""
    some = lines[:: max(1, len(lines) // ASKED)]
    found = Counter(code for line in some if (code := find_clear(_plain_words(line)[:TOLD_BY])))
    ((best, many),) = found.most_common(1) or [(None, 0)]
    return best if many >= AGREE * found.total() and found.total() >= CLEAR * len(some) else None


def _plain_words(line: str) -> str:
    """Return a line's words of letters only (with apostrophes, and marks around them), which leaves out code."""
    return " ".join(word for word in line.split() if _PLAIN.fullmatch(word.strip(MARKS)))


def _drop_shared(line: str, other: str) -> str:
    """Return the words of a line that the other does not have."""
    shared = {word.strip(MARKS) for word in other.lower().split()}
    return " ".join(word for word in line.split() if word.lower().strip(MARKS) not in shared)


def _count_frequencies(lines: Sequence[str]) -> np.ndarray:
    counts = np.zeros(1 << SEQUENCES, np.int64)
    for some in _cut(lines):
        sequences, _, ends = _find_sequences(some)
        # Sequences that reach into the next line are counted as 0, three zero bytes, which no text has.
        sequences[ends[:-1]] = sequences[ends[:-1] + 1] = 0
        counts += np.bincount(sequences, minlength=len(counts))
    counts[0] = 0
    return np.log((counts + 0.5) / (counts.sum() + 0.5 * len(counts))).astype(np.float32)


def _cut(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield pieces that fit a processor's cache."""
    return (lines[first : first + 2048] for first in range(0, len(lines), 2048))


def _find_sequences(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the table's index at each byte of the lines, two line feeds apart, and where each line starts and ends."""
    raw = np.frombuffer("".join(f"{line}\n\n" for line in lines).lower().encode(), np.uint8)
    # Five bits tell small letters apart, so letters never share an index; other bytes may.
    sequences = raw[:-2].astype(np.int32) << 10
    sequences ^= raw[1:-1].astype(np.int32) << 5
    sequences ^= raw[2:]
    ends = np.flatnonzero(raw == ord("\n"))[::2]
    return sequences, np.concatenate([[0], ends[:-1] + 2]), ends


def _find_means(lines: Sequence[str], *tables: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return each table's mean over each line, unaffected by its neighbours, and log2 of the lines' bytes."""
    means = [[np.empty(0)] for _ in tables]
    lengths = [np.empty(0, np.int64)]
    for some in _cut(lines):
        sequences, starts, ends = _find_sequences(some)
        counts = np.maximum(1, ends - starts)
        for table, found in zip(tables, means):
            values = table[sequences]
            values[ends[:-1]] = values[ends[:-1] + 1] = 0
            found.append(np.add.reduceat(np.append(values, np.float32(0)), starts, dtype=np.float64) / counts)
        lengths.append(np.log2(counts).astype(np.int64))
    return *(np.concatenate(found) for found in means), np.concatenate(lengths)
