"""How much may be chance: bootstrap resampling of the sentences (Koehn 2004), for one system and for pairs.

Resamples, means and intervals are those of sacreBLEU for the same seed. The p-value is ours: sacreBLEU takes the
absolute value of a difference before centring it, so that systems differ by chance more often than it says, and a
system compared with itself gets the smallest p-value there is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transduce.scoring.metrics import Measured

SAMPLES = 1000
SEED = 12345  # sacreBLEU's
DRAWN = 1 << 21  # sentences held in memory at once


@dataclass(frozen=True)
class Confidence:
    """The mean of a score over resamples, and half the width of the interval that holds 95 % of them."""

    mean: float
    half: float


@dataclass(frozen=True)
class Comparison:
    """How a system's score differs from the first one's: the difference, its 95 % interval and its p-value.

    The p-value is two-sided: how often resampling alone moves the difference at least as far as it is from zero.
    """

    difference: float
    low: float
    high: float
    p_value: float


def resample(measured: Sequence[Measured], samples: int, seed: int) -> list[np.ndarray]:
    """Draw as many sentences as there are, with replacement, `samples` times; score each of `measured` on these."""
    scores: list[list[float]] = [[] for _ in measured]
    for drawn in _draw(len(measured[0].counts), samples, seed):
        for found, some in zip(measured, scores):
            some += [found.compute(sums) for sums in (drawn @ found.counts).tolist()]
    return [np.array(some) for some in scores]


def find_interval(scores: np.ndarray) -> Confidence:
    """Return the mean of resampled scores and the half-width of their middle 95 %."""
    low, high = _middle(scores)
    return Confidence(float(scores.mean()), (high - low) / 2)


def compare(first: float, second: float, first_scores: np.ndarray, second_scores: np.ndarray) -> Comparison:
    """Compare a second system with the first, given their scores and the scores of the same resamples of both."""
    differences = second_scores - first_scores
    by_chance = np.abs(differences - differences.mean())
    # One is added to both counts: what was observed is one of the outcomes, and no p-value is 0.
    p_value = (1 + int((by_chance >= abs(second - first)).sum())) / (1 + len(differences))
    return Comparison(second - first, *_middle(differences), p_value)


def _draw(sentences: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each sentence is in each sample, for some samples at a time."""
    random = np.random.default_rng(seed)
    at_once = max(1, DRAWN // sentences)
    for first in range(0, samples, at_once):
        chosen = random.choice(sentences, size=(min(at_once, samples - first), sentences), replace=True)
        yield np.stack([np.bincount(row, minlength=sentences) for row in chosen]).astype(float)


def _middle(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of the middle 95 %, as sacreBLEU defines them."""
    ordered = np.sort(values)
    outside = len(ordered) // 40
    return float(ordered[outside]), float(ordered[-1 - outside])
