"""Trees that are written like those of a dev set: treebanks are made by several people, who do not all bracket alike.

In GENIA some have put a bracket around what follows an article, (NP (DT the) (NP (NN T) (NNS cells))), and most have
not; a dev or test set is mostly the work of one of them. People work through a treebank in stretches. So blocks of
consecutive trees are compared: by how much more probable their rules are in the dev set than in all trees. Where these
numbers fall into two groups, the trees of the upper group are alike; where they do not, all are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import cast

import numpy as np

from transduce.text.trees import Tree

BLOCK = 100  # trees that stand together
FEWEST = 20  # blocks that are needed to tell groups from chance
COMMON = 100  # rules that stand so often are told apart, all others of a label are one
PRIOR = 10.0  # so many times a label counts as in all trees, whatever the dev set has
GROUPED = 0.75  # share of the variance that lies between two groups; the halves of a bell curve have 0.64

Rule = tuple[str, tuple[str, ...]]
OTHERS = ("…",)


def find_alike(trees: Sequence[Tree], dev: Iterable[Tree]) -> list[Tree]:
    """Those of the trees that are written as the dev set is: some blocks of them, or all."""
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
    """How often each label stands over which others."""
    return Counter(
        (node.label, tuple(child.label for child in node.children))
        for tree in trees
        for kind, node in tree.steps()
        if kind == "open"
    )


def _pool(counts: Counter[Rule], common: set[Rule]) -> Counter[Rule]:
    """The counts, with rare rules of a label as one."""
    pooled: Counter[Rule] = Counter()
    for rule, count in counts.items():
        pooled[rule if rule in common else (rule[0], OTHERS)] += count
    return pooled


def _compare(some: Counter[Rule], every: Counter[Rule]) -> dict[Rule, float]:
    """The logarithm of how much more probable each rule is in some trees than in all, given its label."""
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
    """Where scores fall best into two groups (Otsu 1979): the least of the upper one, and how much that explains."""
    ordered = np.sort(scores)
    lower = np.arange(1, len(ordered)) / len(ordered)
    sums = np.cumsum(ordered)
    means = sums[:-1] / np.arange(1, len(ordered)), (sums[-1] - sums[:-1]) / np.arange(len(ordered) - 1, 0, -1)
    between = lower * (1 - lower) * (means[0] - means[1]) ** 2
    best = int(between.argmax())
    return cast(float, ordered[best + 1]), float(between[best] / max(ordered.var(), 1e-12))
