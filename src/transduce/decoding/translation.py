"""The translation of a text: its sentences, the alternatives of each, and the whole text in its layout."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from transduce.decoding.alignment import Links
from transduce.decoding.beams import Hypothesis
from transduce.decoding.options import Request
from transduce.text.markup import WORD
from transduce.text.sentences import Layout
from transduce.text.subwords import Subwords


@dataclass(frozen=True)
class Alternative:
    """One translation of a sentence."""

    text: str
    score: float
    """log-probability over the length penalty, by which alternatives are ranked"""
    log_probability: float
    """log P(translation | source), in nats"""
    complete: bool
    """false if it was cut off at the maximum length"""
    tokens: tuple[str, ...]
    """its subwords"""
    token_scores: tuple[float, ...]
    """the log-probability of each, and of the end"""
    alignment: Links | None = None
    """(source word, target word) pairs, counted from 0, if requested"""

    @classmethod
    def read(
        cls,
        hypothesis: Hypothesis,
        subwords: Subwords,
        alignment: Links | None = None,
        unknown: Sequence[str] = (),
    ) -> "Alternative":
        """Turn a hypothesis into text; `unknown` are the subwords to put in place of unknown tokens."""
        return cls(
            text=subwords.decode(hypothesis.tokens, unknown),
            score=hypothesis.score,
            log_probability=hypothesis.log_probability,
            complete=hypothesis.ended,
            tokens=tuple(subwords.pieces(hypothesis.tokens)),
            token_scores=tuple(hypothesis.token_scores.tolist()),
            alignment=alignment,
        )


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text as the model was given it, and its translations, the best first."""

    source: str
    alternatives: tuple[Alternative, ...]
    unsaid: tuple[str, ...] = ()
    """translations of the glossary's terms that are missing from the best alternative"""


class Version(NamedTuple):
    """One translation of a whole text."""

    text: str
    score: float
    links: Links | None
    """(source word, target word) pairs, counted from 0 in the whole text and in its translation; none to its tag"""


@dataclass(frozen=True)
class Translation:
    """The translation of a text: its sentences' best translations in the layout of the text."""

    source: str
    text: str
    score: float
    """the sum of its sentences' scores"""
    sentences: tuple[Sentence, ...] = field(repr=False)
    layout: Layout = field(repr=False)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The translations of the glossary's terms that are missing, each once, in order."""
        return tuple(dict.fromkeys(term for sentence in self.sentences for term in sentence.unsaid))

    def alternatives(self) -> list[tuple[str, float]]:
        """Return the best translations of the whole text with their scores, as many as requested."""
        return [(version.text, version.score) for version in self.versions()]

    def versions(self) -> list[Version]:
        """Return the best translations of the whole text, with word alignments if requested."""
        many = max((len(sentence.alternatives) for sentence in self.sentences), default=1)
        tag, (before, *behind) = self.layout.tag, self.layout.gaps
        # Every sentence has the tag that the text has once.
        bare = [sentence.source.removeprefix(tag.rstrip(" ")).lstrip(" ") for sentence in self.sentences]
        sources = _find_words([tag + before, *bare], ["", *behind])[1:]
        found: list[Version] = []
        for choice, score in _best_choices([[a.score for a in s.alternatives] for s in self.sentences], many):
            chosen = [sentence.alternatives[n] for sentence, n in zip(self.sentences, choice)]
            texts = [one.text for one in chosen]
            targets = _find_words([before, *texts], ["", *map(self.layout.behind, range(len(texts)), texts)])[1:]
            links = [
                (first + source - bool(tag), own + target)
                for one, first, own in zip(chosen, sources, targets)
                for source, target in one.alignment or ()
                if source or not tag
            ]
            linked = all(one.alignment is not None for one in chosen)
            found.append(Version(self.layout.join(texts), score, links if linked else None))
        return found

    def __str__(self) -> str:
        return self.text


@dataclass
class Lacks:
    """How many sentences of some translations lack something."""

    unsaid: int = 0
    """terms of the glossary"""
    empty: int = 0
    """everything"""

    def count(self, translation: Translation) -> None:
        """Add the sentences of a translation."""
        self.unsaid += sum(bool(sentence.unsaid) for sentence in translation.sentences)
        self.empty += sum(not sentence.alternatives[0].text for sentence in translation.sentences)


def join(request: Request, layout: Layout, sentences: Sequence[Sentence]) -> Translation:
    """Put a text's translation together from those of its sentences."""
    text = layout.join([sentence.alternatives[0].text for sentence in sentences])
    score = sum((sentence.alternatives[0].score for sentence in sentences), start=0.0)
    return Translation(request.text, text, score, tuple(sentences), layout)


def _find_words(texts: Sequence[str], gaps: Sequence[str]) -> list[int]:
    """Return the number of the word in which each text begins, in the text that they make with a gap behind each."""
    parts = [text + gap for text, gap in zip(texts, gaps, strict=True)]
    ends = [found.end() for found in WORD.finditer("".join(parts))]
    return [bisect_right(ends, place) for place in accumulate(map(len, parts[:-1]), initial=0)]


def _best_choices(scores: Sequence[Sequence[float]], many: int) -> list[tuple[list[int], float]]:
    """Return the best ways to choose one of each list, by the sum of scores."""
    # The best choices of all lists extend the best of the lists before, so no more than these need be kept.
    best: list[tuple[float, Any]] = [(0.0, None)]
    for some in scores:
        following = ((total + own, (number, before)) for total, before in best for number, own in enumerate(some))
        best = nlargest(many, following, key=itemgetter(0))
    return [(_unroll(chain), total) for total, chain in best]


def _unroll(chain: Any) -> list[int]:
    numbers: list[int] = []
    while chain:
        number, chain = chain
        numbers.append(number)
    return numbers[::-1]
