"""Required phrases: beam search with room for hypotheses that contain more or less of them.

After Post and Vilar (2018): the beam is shared among hypotheses with 0, 1, 2 … tokens of the phrases, so that those
with more of them are not driven out by those that have yet to pay for them.
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
    """The candidates chosen for one sentence: those that end, and those that continue."""

    ended: list[Candidate]
    going: list[Candidate]


class Phrases:
    """The phrases that a translation must contain, as tokens that begin with the space before the first word.

    A phrase counts only as whole words: a token that continues its last word breaks it again.
    """

    def __init__(self, phrases: Sequence[Sequence[int]], spellings: Spellings):
        # As strings, one character per token: Python searches them fast.
        self.phrases = list(dict.fromkeys(_text(phrase) for phrase in phrases))
        self.total = sum(map(len, self.phrases))
        self.spellings = spellings
        self.ends = {phrase: self._spell(phrase).decode(errors="replace")[-1:] for phrase in self.phrases}

    def missing(self, text: str) -> list[str]:
        """Return the phrases that a line would lack if it ended here."""
        return [phrase for phrase in self.phrases if not self._stands(phrase, text)]

    def said(self, text: str) -> int:
        """Return how many of the phrases' tokens a line has, counting those of a phrase it has begun.

        It is the total less the tokens still needed. Those are all missing phrases or, if that is less, the rest of one
        begun and what is missing then: continuing it may break a phrase at the line's end.
        """
        missing = self.missing(text)
        needed = sum(map(len, missing))
        for phrase in missing:
            if begun := _begun(phrase, text):
                rest = phrase[begun:]
                needed = min(needed, len(rest) + sum(map(len, self.missing(text + rest))))
        return self.total - needed

    def wanted(self, text: str) -> set[int]:
        """Return the tokens that begin a missing phrase, or continue one."""
        return {ord(phrase[place]) for phrase in self.missing(text) for place in (0, _begun(phrase, text))}

    def apart(
        self, text: str, log_probabilities: Float[np.ndarray, " vocabulary"], many: int
    ) -> Int[np.ndarray, " found"]:
        """Return the best tokens that do not break a phrase found only at the line's end; none without one."""
        kept = np.ones(len(log_probabilities), bool)
        for phrase in self.phrases:
            if (behind := list(self._behind(phrase, text))) and not any(map(first_of, behind)) and self.ends[phrase]:
                kept &= self.spellings.apart(self.ends[phrase], behind[-1])
        found = np.flatnonzero(kept) if not kept.all() else np.empty(0, np.int64)
        return found[np.argsort(-log_probabilities[found], kind="stable")[:many]]

    def _stands(self, phrase: str, text: str) -> bool:
        return phrase in text and any(True for _ in self._behind(phrase, text))

    def _behind(self, phrase: str, text: str) -> Iterator[bytes]:
        """Yield at least the next character's bytes after each place where a phrase stands as whole words."""
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
        """Choose how a sentence's lines continue, among their best tokens and those that the phrases need.

        A candidate with the most of the phrases always continues, so that nothing is missing after the `last` step.
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
        # As without phrases, an end counts only if it is among the best.
        ended = [candidate for candidate in _in_turns([*banks[:-1], banks[-1] + ends])[:beam] if candidate in ends]
        return Step(ended, _in_turns(banks)[:beam])


def _in_turns(banks: list[list[Candidate]]) -> list[Candidate]:
    """Return the best of each bank, then the second best and so on; those with the most of the phrases first."""
    ranked = [sorted(bank, key=lambda candidate: (-candidate[0], *candidate[1:])) for bank in reversed(banks)]
    return [candidate for turn in zip_longest(*ranked) for candidate in turn if candidate is not None]


def _text(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))


def _begun(phrase: str, text: str) -> int:
    """Return how many of a phrase's first tokens stand at the end of a text."""
    return next((many for many in range(len(phrase) - 1, 0, -1) if text.endswith(phrase[:many])), 0)
