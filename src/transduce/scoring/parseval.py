"""Labelled brackets: precision, recall, F1, complete match and crossing, by EVALB's rules with its COLLINS.prm.

ADVP and PRT are one label. The root, words tagged as punctuation and brackets over nothing else are not counted. A
bracket that occurs twice counts twice. Two rules differ from EVALB's: the reference's tags say which words are
punctuation in both trees, as a parser need not tag; and trees over different words, which EVALB skips, are an error.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from transduce.text.trees import ROOT, Tree, parse_tree
from transduce.version import __version__

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
NOT_COUNTED = PUNCTUATION | {ROOT}
EQUAL = {"PRT": "ADVP"}
# What is counted in each sentence, in this order.
MATCHED, GOLD, FOUND, SENTENCES, COMPLETE, CROSSING, NO_CROSSING = range(7)
Bracket = tuple[str, int, int]


def count_brackets(found: Tree, gold: Tree) -> list[float]:
    """Return the counts of one sentence, given two trees over the same words."""
    before = np.cumsum([0, *(leaf.label not in PUNCTUATION for leaf in gold.leaves())]).tolist()
    if not before[-1]:
        return [0.0] * 7  # nothing but punctuation: the sentence is left out
    ours, theirs = _brackets(found, before), _brackets(gold, before)
    matched = (Counter(ours) & Counter(theirs)).total()
    crossing = _count_crossing(ours, theirs)
    complete = matched == len(ours) == len(theirs)
    return [float(n) for n in (matched, len(theirs), len(ours), 1, complete, crossing, crossing == 0)]


def _brackets(tree: Tree, before: Sequence[int]) -> list[Bracket]:
    """Return the brackets that count; `before` says how many words that count precede each word."""
    return [
        (EQUAL.get(label, label), before[first], before[end])
        for label, first, end in tree.spans()
        if label not in NOT_COUNTED and before[first] < before[end]
    ]


def _count_crossing(ours: Sequence[Bracket], theirs: Sequence[Bracket]) -> int:
    """Return how many of our brackets cross one or more of theirs."""
    if not ours or not theirs:
        return 0
    first, end = (np.array([bracket[place] for bracket in ours])[:, None] for place in (1, 2))
    their_first, their_end = (np.array([bracket[place] for bracket in theirs]) for place in (1, 2))
    left = (their_first < first) & (first < their_end) & (their_end < end)
    right = (first < their_first) & (their_first < end) & (end < their_end)
    return int((left | right).any(1).sum())


class Parseval:
    """Counts the brackets of trees in text, and computes the scores from sums of counts."""

    names = ("f1", "precision", "recall", "complete", "crossing", "no_crossing")

    def count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str | None]]) -> list[list[float]]:
        """Return the counts of each sentence."""
        return [
            count_brackets(parse_tree(found), parse_tree(gold))
            for found, gold in zip(hypotheses, references[0])
            if gold is not None
        ]

    def compute(self, name: str, sums: Sequence[float]) -> float:
        """Return a score from sums of counts: in %, except crossing brackets, which are a number per sentence."""
        match name:
            case "precision":
                return _per_cent(sums[MATCHED], sums[FOUND])
            case "recall":
                return _per_cent(sums[MATCHED], sums[GOLD])
            case "f1":
                return _per_cent(2 * sums[MATCHED], sums[GOLD] + sums[FOUND])
            case "complete":
                return _per_cent(sums[COMPLETE], sums[SENTENCES])
            case "no_crossing":
                return _per_cent(sums[NO_CROSSING], sums[SENTENCES])
            case _:
                return sums[CROSSING] / max(1.0, sums[SENTENCES])

    def signature(self) -> str:
        """Return which rules were used."""
        return f"rules:evalb-collins|punctuation:by-reference|version:transduce-{__version__}"


def _per_cent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0
