"""Measures of what a head attends to: shares of its attention, each beside that of even attention.

A share is the weight on keys of one sort, averaged over all queries that have such keys. Even attention shows what is
chance: in a sentence of five tokens, it gives the previous one 20 %.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from transduce.decoding.alignment import Links, align_words, number_words
from transduce.seeing.kinds import Kind
from transduce.text.subwords import SPACE

FAR = 5  # tokens away
LEAD = 0.25  # by which a share must exceed that of even attention to be a role
BROAD = 0.9  # evenness from which a head without a role is broad

# The keys of each share, in the page's order; docs/seeing.md explains them.
MEASURES = {
    "previous": "previous token",
    "next": "next token",
    "same": "its own position",
    "word": "rest of its word",
    "twin": "same subword",
    "begin": "the beginning",
    "end": "the end",
    "stop": "punctuation",
    "rare": "rarest subword",
    "far": f"{FAR}+ tokens away",
    "aligned": "aligned word",
    "aligned_after": "aligned, next step",
}


@dataclass(frozen=True)
class Sides:
    """One pair as subwords, without begin and end marks, and its reference alignment."""

    source: Sequence[str]
    target: Sequence[str]
    links: Links
    """(source word, target word) pairs that heads are compared with"""
    ended: bool = True
    """whether the source has an end mark in the model"""


Masks = Mapping[str, Bool[np.ndarray, "query key"]]


class Frequencies:
    """How often each subword occurs in a test set."""

    def __init__(self, sentences: Sequence[Sequence[str]]):
        self.counts = Counter(piece for sentence in sentences for piece in sentence)

    def rarest(self, pieces: Sequence[str]) -> Bool[np.ndarray, " pieces"]:
        """Return a mask of a sentence's rarest subwords."""
        counts = [self.counts[piece] for piece in pieces]
        return np.array([count == min(counts) for count in counts], bool)


def mask_self(pieces: Sequence[str], rare: Frequencies, kind: Kind, *, ended: bool = True) -> Masks:
    """Return each measure's mask for self-attention, with the encoder's end mark if `ended`, or the decoder's begin."""
    many = len(pieces) + (ended or kind == "decoder")
    inside = np.s_[1:] if kind == "decoder" else np.s_[: len(pieces)]
    words, names = np.full(many, -1), np.full(many, "", object)
    words[inside], names[inside] = number_words(pieces), pieces
    marked, rarest, stops = np.ones(many, bool), np.zeros(many, bool), np.zeros(many, bool)
    marked[inside] = False
    rarest[inside] = rare.rarest(pieces)
    stops[inside] = [is_punctuation(piece) for piece in pieces]
    place = np.arange(many)
    away = place[:, None] - place[None, :]
    every, other = np.ones((many, 1), bool), away != 0
    masks = {
        "previous": away == 1,
        "next": away == -1,
        "same": away == 0,
        "word": (words[:, None] == words[None, :]) & (words >= 0) & other,
        "twin": (names[:, None] == names[None, :]) & other,
        "begin" if kind == "decoder" else "end": every & marked,
        "stop": every & stops,
        "rare": every & rarest,
        "far": abs(away) >= FAR,
    }
    if kind == "decoder":
        del masks["next"]
        masks = {name: mask & (away >= 0) for name, mask in masks.items()}
    return masks


def mask_cross(sides: Sides, rare: Frequencies) -> Masks:
    """Return each measure's mask for the decoder's attention to the source."""
    steps, many = len(sides.target) + 1, len(sides.source) + sides.ended
    inside = np.s_[: len(sides.source)]
    every = np.ones((steps, 1), bool)
    marked, rarest, stops = np.ones(many, bool), np.zeros(many, bool), np.zeros(many, bool)
    marked[inside] = False
    rarest[inside] = rare.rarest(sides.source)
    stops[inside] = [is_punctuation(piece) for piece in sides.source]
    twins = np.zeros((steps, many), bool)
    twins[:-1, inside] = np.array(sides.target, object)[:, None] == np.array(sides.source, object)[None, :]
    return {"twin": twins, "end": every & marked, "stop": every & stops, "rare": every & rarest}


def is_punctuation(piece: str) -> bool:
    """Return whether a subword is only punctuation."""
    text = piece.replace(SPACE, "")
    return bool(text) and all(unicodedata.category(letter).startswith("P") for letter in text)


class Tally:
    """Sums over a test set for the heads of one layer."""

    def __init__(self, heads: int):
        self.sums: dict[str, np.ndarray] = {}
        self.even: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.heads = heads
        self.queries = self.choices = 0
        self.entropy, self.evenness, self.distance = np.zeros(heads), np.zeros(heads), np.zeros(heads)

    def add(self, weights: Float[np.ndarray, "heads query key"], masks: Masks, *, causal: bool) -> None:
        """Add one sentence's attention."""
        wide = weights.astype(np.float64)
        _, queries, keys = wide.shape
        seen = np.arange(1, queries + 1) if causal else np.full(queries, keys)
        for name, mask in masks.items():
            self._add(name, np.einsum("hqk,qk->h", wide, mask), (mask.sum(1) / seen).sum(), int(mask.any(1).sum()))
        entropy = -np.where(wide > 0, wide * np.log(np.where(wide > 0, wide, 1)), 0).sum(2)
        several = seen > 1
        self.queries += queries
        self.choices += int(several.sum())
        self.entropy += entropy.sum(1)
        self.evenness += (entropy[:, several] / np.log(seen[several])).sum(1)
        away = abs(np.arange(queries)[:, None] - np.arange(keys)[None, :])
        self.distance += np.einsum("hqk,qk->h", wide, away)

    def add_alignment(self, weights: Float[np.ndarray, "heads step source"], sides: Sides) -> None:
        """Count each head's links that are in the reference, read at the step that predicts a word and at the next."""
        wanted: dict[int, set[int]] = {}
        for source, target in sides.links:
            wanted.setdefault(target, set()).add(source)
        if not wanted or not sides.source:
            return
        words = int(number_words(sides.source)[-1]) + 1
        chance = sum(len(some) for some in wanted.values()) / words
        for name, after in (("aligned", 0), ("aligned_after", 1)):
            right = np.zeros(self.heads)
            for head in range(self.heads):
                found = align_words(weights[head, after:], sides.source, sides.target)
                right[head] = sum(source in wanted.get(target, ()) for source, target in found)
            self._add(name, right, chance, len(wanted))

    def _add(self, name: str, sums: np.ndarray, even: float, count: int) -> None:
        self.sums[name] = self.sums.get(name, np.zeros(self.heads)) + sums
        self.even[name] = self.even.get(name, 0.0) + float(even)
        self.counts[name] += count

    def profile(self, head: int) -> "Profile":
        """Return the profile of one head."""
        held = [name for name in MEASURES if self.counts[name]]
        queries, choices = max(1, self.queries), max(1, self.choices)
        return Profile(
            {name: float(self.sums[name][head] / self.counts[name]) for name in held},
            {name: self.even[name] / self.counts[name] for name in held},
            float(self.entropy[head] / queries),
            float(self.evenness[head] / choices),
            float(self.distance[head] / queries),
        )


@dataclass(frozen=True)
class Profile:
    """What a head attends to."""

    shares: Mapping[str, float]
    """mean weight on the keys of each of `MEASURES`; those that no sentence has are left out"""
    even: Mapping[str, float]
    """the same for even attention"""
    entropy: float
    """mean entropy of a query's weights, in nats"""
    evenness: float
    """mean entropy as a share of the largest possible"""
    distance: float
    """mean number of positions between a query and what it attends to"""

    @property
    def role(self) -> str:
        """The measure that exceeds chance the most, if by at least LEAD; otherwise broad or mixed."""
        lead, name = max(((share - self.even[name], name) for name, share in self.shares.items()), default=(0.0, ""))
        if lead >= LEAD:
            return "aligned" if name == "aligned_after" else name
        return "broad" if self.evenness >= BROAD else "mixed"
