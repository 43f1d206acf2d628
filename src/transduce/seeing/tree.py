"""The beam as a tree: the translations that the search found, and the paths it did not take."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from transduce.decoding.beams import Record
from transduce.text.subwords import END

Fate = Literal["ended", "dropped", "open", "on"]


@dataclass(frozen=True)
class Node:
    """A token of some hypothesis in the beam."""

    parent: int
    """index of the node before it; -1 for a first token"""
    token: int
    log_probability: float
    """of this token, given those before it"""
    total: float
    """log-probability of all tokens up to this one"""
    fate: Fate
    """ended: it is an end mark; dropped: no hypothesis continued from it; open: a hypothesis stood here when the search
    ended; on: more tokens follow"""
    score: float | None = None
    """of an end mark: the total divided by the length penalty, by which translations are ranked"""
    taken: bool = False
    """whether it is on the path to the chosen translation"""


def make_tree(record: Record) -> list[Node]:
    """Return the tokens of all hypotheses; a node comes after its parent, the end marks last, best first."""
    steps, beam = record.tokens.shape
    there = record.sums > -np.inf
    # The node at each step and line of the beam, or -1.
    numbers = np.where(there, np.cumsum(there).reshape(steps, beam) - 1, -1)
    parents: list[int] = []
    tokens: list[int] = []
    totals: list[float] = []
    for step, line in zip(*np.nonzero(there)):
        parents.append(int(numbers[step - 1, record.parents[step, line]]) if step else -1)
        tokens.append(int(record.tokens[step, line]))
        totals.append(float(record.sums[step, line]))
    said = len(tokens)
    for end in record.ended:
        parents.append(int(numbers[end.steps - 1, end.line]) if end.steps else -1)
        tokens.append(END)
        totals.append(end.log_probability)
    taken = _way_to(_chosen(record, numbers, said), parents)
    followed, last = set(parents), set(numbers[steps - 1].tolist()) if steps else set()
    scores: list[float | None] = [None] * said + [end.score for end in record.ended]
    return [
        Node(
            parent,
            token,
            total - (totals[parent] if parent >= 0 else 0.0),
            total,
            "ended" if number >= said else "on" if number in followed else "open" if number in last else "dropped",
            scores[number],
            number in taken,
        )
        for number, (parent, token, total) in enumerate(zip(parents, tokens, totals))
    ]


def _chosen(record: Record, numbers: np.ndarray, said: int) -> int:
    """Return the last node of the chosen translation: the best end mark, or the best line if none ended."""
    if record.ended or not said:
        return said if record.ended else -1
    steps = np.flatnonzero((record.sums > -np.inf).any(1))[-1]  # the last step may have no line left
    return int(numbers[steps, record.sums[steps].argmax()])


def _way_to(number: int, parents: list[int]) -> set[int]:
    way: set[int] = set()
    while number >= 0:
        way.add(number)
        number = parents[number]
    return way
