"""Phrases that a translation must contain: beam search with room for every amount of them said so far.

After Post and Vilar (2018): the beam is shared among hypotheses that have said 0, 1, 2 … tokens of the phrases, so that
those which say them are not driven out by those which have not yet paid for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from jaxtyping import Float, Int

from transduce.decoding.rules import Spellings, first_of
from transduce.text.subwords import BEGIN, END, PAD
from transduce.text.words import is_one_word

Candidate = tuple[float, int, int]  # score, line, token


@dataclass(frozen=True)
class Step:
    """What becomes of one sentence's lines: those that end, and those that go on."""

    ended: list[Candidate]
    going: list[Candidate]


class Phrases:
    """The phrases one sentence's translation must contain, as tokens that begin with the space before their first word.

    A phrase is said where it stands as whole words: what goes on with its last one takes it back.
    """

    def __init__(self, phrases: Sequence[Sequence[int]], spellings: Spellings):
        # As strings, a character for each token: Python searches them fast.
        self.phrases = list(dict.fromkeys(_text(phrase) for phrase in phrases))
        self.total = sum(map(len, self.phrases))
        self.spellings = spellings
        self.ends = {phrase: self._spell(phrase).decode(errors="replace")[-1:] for phrase in self.phrases}

    def missing(self, text: str) -> list[str]:
        """The phrases that a line has not said, if it ended here."""
        return [phrase for phrase in self.phrases if not self._stands(phrase, text)]

    def said(self, text: str) -> int:
        """How many of the phrases' tokens a line has said, counting what it may be about to complete.

        The others are as many as it needs at most: if it says all that are missing, or first goes on with one it has
        begun, which may take back one that stands at its end.
        """
        missing = self.missing(text)
        needed = sum(map(len, missing))
        for phrase in missing:
            if begun := _begun(phrase, text):
                rest = phrase[begun:]
                needed = min(needed, len(rest) + sum(map(len, self.missing(text + rest))))
        return self.total - needed

    def wanted(self, text: str) -> set[int]:
        """The tokens that begin a missing phrase, or go on with one."""
        return {ord(phrase[place]) for phrase in self.missing(text) for place in (0, _begun(phrase, text))}

    def apart(
        self, text: str, log_probabilities: Float[np.ndarray, " vocabulary"], many: int
    ) -> Int[np.ndarray, " found"]:
        """The best tokens that leave whole what is said only at the end of a line; none where nothing is."""
        kept = np.ones(len(log_probabilities), bool)
        for phrase in self.phrases:
            if (behind := list(self._behind(phrase, text))) and not any(map(first_of, behind)) and self.ends[phrase]:
                kept &= self.spellings.apart(self.ends[phrase], behind[-1])
        found = np.flatnonzero(kept) if not kept.all() else np.empty(0, np.int64)
        return found[np.argsort(-log_probabilities[found], kind="stable")[:many]]

    def _stands(self, phrase: str, text: str) -> bool:
        return phrase in text and any(True for _ in self._behind(phrase, text))

    def _behind(self, phrase: str, text: str) -> Iterator[bytes]:
        """The next character's bytes, and perhaps more, behind a phrase wherever it stands as whole words."""
        place = text.find(phrase)
        while place >= 0:
            begin = place + len(phrase)
            behind = self._spell(text[begin : begin + 4])
            if not is_one_word(self.ends[phrase], first_of(behind)):
                yield behind
            place = text.find(phrase, place + 1)

    def _spell(self, text: str) -> bytes:
        return self.spellings.spell([ord(token) for token in text])

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
        beam, total = len(lines), self.total
        banks: list[list[Candidate]] = [[] for _ in range(total + 1)]
        ends: list[Candidate] = []
        for line, said in enumerate(lines):
            if scores[line] == -np.inf:
                continue
            text = _text(said)
            complete = self.said(text) == total
            apart = self.apart(text, log_probabilities[line], tokens.shape[1])
            for token in {*tokens[line].tolist(), *self.wanted(text), *apart.tolist()} - {PAD, BEGIN}:
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
