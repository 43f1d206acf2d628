"""Tells a line in another language by its letters: their sequences are rare on this side of the corpus.

No model of languages is needed, only the corpus itself: how frequent each sequence of three bytes is on one side, and
how far lines of a length usually are from the mean. Frequencies, not conditional probabilities, so that a corpus that
has some lines in other languages does not come to take them for its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transduce.text.subwords import ragged_indices

SEQUENCES = 18  # bits of the table's index
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
        sequences, starts, ends = _find_sequences(lines)
        counts = np.bincount(sequences[ragged_indices(starts, ends - starts)], minlength=1 << SEQUENCES)
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

        Lines too short to tell are taken for usual.
        """
        means, lengths = _mean_frequencies(self.frequencies, lines)
        places = np.clip(lengths, LENGTHS[0], LENGTHS[-1]) - LENGTHS[0]
        return np.where(lengths < LENGTHS[0], 0.0, (means - self.usual[places]) / self.spread[places])


def find_foreign(
    source: Language | None, target: Language | None, lines: Sequence[tuple[str, str]], limit: float
) -> np.ndarray:
    """Which pairs have one side that is unusual by far more than the other; names and code are unusual on both."""
    if source is None or target is None or not lines:
        return np.zeros(len(lines), bool)
    measured = source.measure([line for line, _ in lines]), target.measure([line for _, line in lines])
    return (np.minimum(*measured) < 1 - limit) & (np.abs(measured[0] - measured[1]) > limit)


def _find_sequences(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table's index at each byte of the lines, and where each line starts and ends; two line feeds are between."""
    raw = np.frombuffer("".join(f"{line}\n\n" for line in lines).lower().encode(), np.uint8).astype(np.uint32)
    factors = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)
    mixed = raw[:-2] * factors[0] + raw[1:-1] * factors[1] + raw[2:] * factors[2]
    ends = np.flatnonzero(raw == ord("\n"))[::2]
    starts = np.concatenate([[0], ends[:-1] + 2])
    return mixed >> np.uint32(32 - SEQUENCES), starts, ends


def _mean_frequencies(frequencies: np.ndarray, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over each line, which its neighbours have no part in, and its length as a power of two."""
    sequences, starts, ends = _find_sequences(lines)
    sums = np.concatenate([[0.0], np.cumsum(frequencies[sequences], dtype=np.float64)])
    means = (sums[ends] - sums[starts]) / np.maximum(1, ends - starts)
    return means, np.log2(np.maximum(1, ends - starts)).astype(np.int64)
