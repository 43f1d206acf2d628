"""Tells a line in another language by its letters: their sequences are rare on this side of the corpus.

No model of languages is needed, only the corpus itself: how frequent each sequence of three bytes is on one side, and
how far lines of a length usually are from the mean. Frequencies, not conditional probabilities, so that a corpus that
has some lines in other languages does not come to take them for its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SEQUENCES = 18  # bits of the table's index: eight, five and five of three bytes
LEAST_LINES = 1000  # from fewer lines nothing is learned
LEAST_SPREAD = 0.2  # of a corpus of templates, so that the few other lines in it are not taken for foreign
LENGTHS = range(4, 10)  # lines are compared with lines of 16 to 31 bytes, 32 to 63, …, 512 and more


@dataclass(frozen=True)
class Language:
    """One side of a corpus: the logarithms of sequences' frequencies, a line's usual mean and spread by length."""

    frequencies: np.ndarray
    usual: np.ndarray
    spread: np.ndarray

    @classmethod
    def learn(cls, lines: Sequence[str]) -> "Language | None":
        """Learn from some lines of the corpus, or not at all from too few."""
        lines = [line for line in lines if line]
        if len(lines) < LEAST_LINES:
            return None
        counts = np.zeros(1 << SEQUENCES, np.int64)
        for some in _cut(lines):
            sequences, _, ends = _find_sequences(some)
            # What reaches from one line into the next is counted as 0, three zero bytes, which no text has.
            sequences[ends[:-1]] = sequences[ends[:-1] + 1] = 0
            counts += np.bincount(sequences, minlength=len(counts))
        counts[0] = 0
        frequencies = np.log((counts + 0.5) / (counts.sum() + 0.5 * len(counts))).astype(np.float32)
        means, lengths = _mean_frequencies(frequencies, lines)
        usual, spread = [], []
        for length in LENGTHS:
            here = lengths >= length if length == LENGTHS[-1] else lengths == length
            some = means[here] if here.sum() >= 50 else means
            usual.append(np.median(some))
            # The median deviation, scaled to be the standard deviation of a normal distribution.
            spread.append(max(LEAST_SPREAD, 1.4826 * float(np.median(np.abs(some - usual[-1])))))
        return cls(frequencies, np.array(usual), np.array(spread))

    def measure(self, lines: Sequence[str]) -> np.ndarray:
        """How usual lines are, in deviations from the mean: about 0 in this language, -5 and less in others.

        For lines too short to tell it is no number.
        """
        means, lengths = _mean_frequencies(self.frequencies, lines)
        places = np.clip(lengths, LENGTHS[0], LENGTHS[-1]) - LENGTHS[0]
        return np.where(lengths < LENGTHS[0], np.nan, (means - self.usual[places]) / self.spread[places])


def find_foreign(
    source: Language | None, target: Language | None, lines: Sequence[tuple[str, str]], limit: float
) -> np.ndarray:
    """Which pairs have one side that is unusual by far more than the other; names and code are unusual on both."""
    if source is None or target is None or not lines:
        return np.zeros(len(lines), bool)
    measured = source.measure([line for line, _ in lines]), target.measure([line for _, line in lines])
    return (np.minimum(*measured) < 1 - limit) & (np.abs(measured[0] - measured[1]) > limit)


def _cut(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Pieces that fit a processor's cache."""
    return (lines[first : first + 2048] for first in range(0, len(lines), 2048))


def _find_sequences(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table's index at each byte of the lines, and where each line starts and ends; two line feeds are between."""
    raw = np.frombuffer("".join(f"{line}\n\n" for line in lines).lower().encode(), np.uint8)
    # Five bits tell small letters apart, so that letters never share a place; other bytes may.
    sequences = raw[:-2].astype(np.int32) << 10
    sequences ^= raw[1:-1].astype(np.int32) << 5
    sequences ^= raw[2:]
    ends = np.flatnonzero(raw == ord("\n"))[::2]
    return sequences, np.concatenate([[0], ends[:-1] + 2]), ends


def _mean_frequencies(frequencies: np.ndarray, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over each line, which its neighbours have no part in, and its length as a power of two."""
    means, lengths = [np.empty(0)], [np.empty(0, np.int64)]
    for some in _cut(lines):
        sequences, starts, ends = _find_sequences(some)
        values = frequencies[sequences]
        values[ends[:-1]] = values[ends[:-1] + 1] = 0
        sums = np.add.reduceat(np.append(values, np.float32(0)), starts, dtype=np.float64)
        means.append(sums / np.maximum(1, ends - starts))
        lengths.append(np.log2(np.maximum(1, ends - starts)).astype(np.int64))
    return np.concatenate(means), np.concatenate(lengths)
