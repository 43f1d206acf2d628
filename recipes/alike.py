"""Select the trees that are bracketed in the style of a dev set: annotators of a treebank do not all bracket alike.

Some annotators of GENIA put a bracket around what follows an article, (NP (DT the) (NP (NN T) (NNS cells))), and most
did not; a dev or test set is mostly the work of one of them. People work through a treebank in stretches. So this
compares blocks of consecutive trees by how much more probable their rules are in the dev set than in all trees. If
these numbers fall into two groups, the trees of the upper group are alike; otherwise all trees are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import cast

import numpy as np

from transduce.text.trees import Tree

BLOCK = 100  # consecutive trees that are compared as one
FEWEST = 20  # blocks needed to tell groups from chance
COMMON = 100  # rules that occur this often are told apart; all others of a label count as one
PRIOR = 10.0  # occurrences of each label, with rules as in all trees, that are added to the dev set's
GROUPED = 0.75  # share of the variance that must lie between two groups; for the halves of a bell curve it is 0.64

Rule = tuple[str, tuple[str, ...]]
OTHERS = ("…",)


def find_alike(trees: Sequence[Tree], dev: Iterable[Tree]) -> list[Tree]:
    """Return the trees that are bracketed like the dev set: some blocks of them, or all."""
    blocks = [trees[first : first + BLOCK] for first in range(0, len(trees), BLOCK)]
    if len(blocks) < FEWEST:
        return list(trees)
    counts = [_count_rules(block) for block in blocks]
    everywhere: Counter[Rule] = Counter()
    for count in counts:
        everywhere.update(count)
    common = {rule for rule, count in everywhere.items() if count >= COMMON}
    ratios = _compare(_pool(_count_rules(dev), common), _pool(everywhere, common))
    scores = np.array([_mean(_pool(count, common), ratios) for count in counts])
    least, share = _divide(scores)
    if share < GROUPED:
        return list(trees)
    return [tree for block, score in zip(blocks, scores, strict=True) if score >= least for tree in block]


def _count_rules(trees: Iterable[Tree]) -> Counter[Rule]:
    """Count how often each label has which children."""
    return Counter(
        (node.label, tuple(child.label for child in node.children))
        for tree in trees
        for kind, node in tree.steps()
        if kind == "open"
    )


def _pool(counts: Counter[Rule], common: set[Rule]) -> Counter[Rule]:
    """Return the counts, with all rare rules of a label as one."""
    pooled: Counter[Rule] = Counter()
    for rule, count in counts.items():
        pooled[rule if rule in common else (rule[0], OTHERS)] += count
    return pooled


def _compare(some: Counter[Rule], every: Counter[Rule]) -> dict[Rule, float]:
    """Return the logarithm of how much more probable each rule is in some trees than in all, given its label."""
    labels: list[Counter[str]] = [Counter(), Counter()]
    for known, counts in zip(labels, (some, every), strict=True):
        for (label, _), count in counts.items():
            known[label] += count
    ratios: dict[Rule, float] = {}
    for rule, count in every.items():
        usual = count / labels[1][rule[0]]
        here = (some[rule] + PRIOR * usual) / (labels[0][rule[0]] + PRIOR)
        ratios[rule] = log(here / usual)
    return ratios


def _mean(counts: Counter[Rule], ratios: dict[Rule, float]) -> float:
    return sum(count * ratios[rule] for rule, count in counts.items()) / max(counts.total(), 1)


def _divide(scores: np.ndarray) -> tuple[float, float]:
    """Split scores into two groups (Otsu 1979); return the upper one's least and the share of variance between them."""
    ordered = np.sort(scores)
    lower = np.arange(1, len(ordered)) / len(ordered)
    sums = np.cumsum(ordered)
    means = sums[:-1] / np.arange(1, len(ordered)), (sums[-1] - sums[:-1]) / np.arange(len(ordered) - 1, 0, -1)
    between = lower * (1 - lower) * (means[0] - means[1]) ** 2
    best = int(between.argmax())
    return cast(float, ordered[best + 1]), float(between[best] / max(ordered.var(), 1e-12))
