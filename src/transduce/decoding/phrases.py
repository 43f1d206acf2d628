"""Phrases that a translation must contain: beam search with room for every amount of them said so far.

After Post and Vilar (2018): the beam is shared among hypotheses that have said 0, 1, 2 … tokens of the phrases, so that
those which say them are not driven out by those which have not yet paid for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from jaxtyping import Float, Int

from transduce.text.subwords import BEGIN, END, PAD

Candidate = tuple[float, int, int]  # score, line, token


@dataclass(frozen=True)
class Step:
    """What becomes of one sentence's lines: those that end, and those that go on."""

    ended: list[Candidate]
    going: list[Candidate]


class Phrases:
    """The phrases one sentence's translation must contain, as tokens."""

    def __init__(self, phrases: Sequence[Sequence[int]]):
        # As strings, a character for each token: Python searches them fast.
        self.phrases = list(dict.fromkeys(_text(phrase) for phrase in phrases))

    def said(self, text: str) -> int:
        """How many of the phrases' tokens a line has said, counting what it may be about to complete."""
        missing = [phrase for phrase in self.phrases if phrase not in text]
        begun = max((_begun(phrase, text) for phrase in missing), default=0)
        return sum(map(len, self.phrases)) - sum(map(len, missing)) + begun

    def wanted(self, text: str) -> set[int]:
        """The tokens that begin a missing phrase, or go on with one."""
        missing = [phrase for phrase in self.phrases if phrase not in text]
        return {ord(phrase[place]) for phrase in missing for place in (0, _begun(phrase, text))}

    def choose(
        self,
        lines: Sequence[Sequence[int]],
        scores: Float[np.ndarray, " beam"],
        log_probabilities: Float[np.ndarray, "beam vocabulary"],
        tokens: Int[np.ndarray, "beam k"],
        *,
        last: bool = False,
    ) -> Step:
        """Choose what each of a sentence's lines says next, among its candidates and what the phrases want.

        The most that is said always goes on being said, so that in the end, after `last`, nothing is missing.
        """
        beam, total = len(lines), sum(map(len, self.phrases))
        banks: list[list[Candidate]] = [[] for _ in range(total + 1)]
        ends: list[Candidate] = []
        for line, said in enumerate(lines):
            if scores[line] == -np.inf:
                continue
            text = _text(said)
            complete = self.said(text) == total
            for token in {*tokens[line].tolist(), *self.wanted(text)} - {PAD, BEGIN}:
                score = float(scores[line] + log_probabilities[line, token])
                if score == -np.inf:
                    continue
                if token != END:
                    banks[self.said(text + chr(token))].append((score, line, token))
                elif complete:
                    ends.append((score, line, token))
        if last and (ends or banks[total]):
            banks = banks[total:]
        # As without phrases, an end counts only among the best.
        ended = [candidate for candidate in _in_turns([*banks[:-1], banks[-1] + ends])[:beam] if candidate in ends]
        return Step(ended, _in_turns(banks)[:beam])


def _in_turns(banks: list[list[Candidate]]) -> list[Candidate]:
    """The best of each, then the second best and so on; of those that have said the most first."""
    ranked = [sorted(bank, key=lambda candidate: (-candidate[0], *candidate[1:])) for bank in reversed(banks)]
    return [candidate for turn in zip_longest(*ranked) for candidate in turn if candidate is not None]


def _text(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))


def _begun(phrase: str, text: str) -> int:
    """How much of a phrase stands at the end of a text."""
    return next((many for many in range(len(phrase) - 1, 0, -1) if text.endswith(phrase[:many])), 0)
