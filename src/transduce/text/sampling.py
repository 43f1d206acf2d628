"""Subword regularisation at training time: BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018).

Each word has a fixed number of alternative splits, drawn on first use with random numbers that depend only on the seed
and the word; a sentence picks one for each word by seed, epoch, pair and place. So a batch with sampled subwords is as
reproducible as one without, and a known word costs one look-up.
"""

import math
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from transduce.text.shards import SIDES, DataSet, Side
from transduce.text.subwords import END, SPACE, TABLE_WORDS, Subwords, ragged_indices, spell_symbols

ALTERNATIVES = 16
TABLE_TOKENS = 1 << 25
MEASURED_PAIRS = 500
IMPOSSIBLE = -math.inf


class Chance:
    """Uniform random numbers, cheap to seed: a linear congruential generator with Knuth's MMIX constants."""

    def __init__(self, seed: int):
        self.state = seed
        self.next()

    def next(self) -> float:
        """Return a number in [0, 1)."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self.state >> 11) * 2.0**-53


class Splitter:
    """Draws random splits of words, which are given and returned as token ids."""

    def __init__(self, subwords: Subwords, rate: float, symbols: Sequence[str]):
        self.subwords, self.rate = subwords, rate
        self.pieces = subwords.pieces(range(len(subwords)))
        processor = subwords.processor
        self.ids: dict[str, int] = {}
        self.scores: dict[str, float] = {}
        # Bytes, special symbols and the user's symbols are never split or merged.
        self.fixed: set[int] = set()
        for number, piece in enumerate(self.pieces):
            special = processor.is_control(number) or processor.is_unknown(number) or processor.is_byte(number)
            if special or piece in symbols:
                self.fixed.add(number)
            else:
                self.ids[piece] = number
                self.scores[piece] = processor.get_score(number)

    def split(self, word: tuple[int, ...], chance: Chance) -> tuple[int, ...]:
        """Return one random split of a word."""
        if self.subwords.kind == "word" or not self.fixed.isdisjoint(word):
            return word
        text = "".join(self.pieces[token] for token in word)
        if not self.subwords.by_word:
            return self._draw_unigram(text, chance)
        # If none of the usual merges is dropped, the split is the usual one: a shortcut for most words.
        begin = chance.state
        if all(chance.next() >= self.rate for _ in range(len(text) - len(word))):
            return word
        chance.state = begin
        return self._drop_merges(text, chance)

    def _drop_merges(self, text: str, chance: Chance) -> tuple[int, ...]:
        """Split by BPE in which each possible merge is dropped with probability `rate`, anew at every step."""
        score = self.scores.get
        parts = list(text)
        scores = [score(left + right, IMPOSSIBLE) for left, right in pairwise(parts)]
        while scores and (place := self._choose(scores, chance)) >= 0:
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            del scores[place]
            for i in (place - 1, place):
                if 0 <= i < len(scores):
                    scores[i] = score(parts[i] + parts[i + 1], IMPOSSIBLE)
        return tuple(self.ids[part] for part in parts)

    def _choose(self, scores: list[float], chance: Chance) -> int:
        """Return the place of the best merge that is not dropped, or -1."""
        best = max(scores)
        if best == IMPOSSIBLE:
            return -1
        if chance.next() >= self.rate:
            return scores.index(best)
        others = sorted(((-s, i) for i, s in enumerate(scores) if s != IMPOSSIBLE))[1:]
        return next((i for _, i in others if chance.next() >= self.rate), -1)

    def _draw_unigram(self, text: str, chance: Chance) -> tuple[int, ...]:
        """Draw one of the best splits, in proportion to their probabilities to the power of 1 - `rate`."""
        processor = self.subwords.processor
        found = processor.nbest_encode_as_ids(text.removeprefix(SPACE), nbest_size=ALTERNATIVES)
        best = [(tuple(tokens), sum(map(processor.get_score, tokens))) for tokens in found]
        top = max(score for _, score in best)
        weights = [math.exp((1 - self.rate) * (score - top)) for _, score in best]
        left = chance.next() * sum(weights)
        for (tokens, _), weight in zip(best, weights):
            left -= weight
            if left < 0:
                return tokens
        return best[-1][0]


class Alternatives:
    """The alternative splits of the words met so far, for one vocabulary, as arrays to pick from."""

    def __init__(self, splitter: Splitter, seed: int):
        self.splitter, self.seed = splitter, seed
        self.starts_word = np.array([piece.startswith(SPACE) for piece in splitter.pieces])
        self.starts_word[END] = True
        self.begin()

    def begin(self) -> None:
        """Forget all words."""
        self.rows: dict[bytes, int] = {}
        self.words: list[bytes] = []
        self.tokens = np.empty(1 << 16, np.int32)
        self.used = 0
        self.starts = np.zeros((1 << 12) * ALTERNATIVES, np.int64)
        self.lengths = np.zeros((1 << 12) * ALTERNATIVES, np.int32)  # 0: not drawn yet

    def limit(self) -> None:
        """Forget the words met after the table was full, since those met first are the frequent ones."""
        for word in self.words[TABLE_WORDS:]:
            del self.rows[word]
        self.lengths[TABLE_WORDS * ALTERNATIVES : len(self.words) * ALTERNATIVES] = 0
        del self.words[TABLE_WORDS:]
        if self.used > TABLE_TOKENS:  # which still include the splits of forgotten words
            self.begin()

    def find_words(self, row: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the words of a row of sentences begin, and the row of each in the table."""
        begins = self.starts_word[row]
        begins[offsets[:-1]] = True
        places = np.flatnonzero(begins)
        bounds = np.append(places, len(row)).tolist()
        raw = np.ascontiguousarray(row, np.int32).tobytes()
        words = [raw[4 * first : 4 * end] for first, end in pairwise(bounds)]
        if len(self.words) > TABLE_WORDS:
            self.limit()
        for word in words:
            if word not in self.rows:
                self.rows[word] = len(self.words)
                self.words.append(word)
        while len(self.words) * ALTERNATIVES > len(self.lengths):
            self.starts = np.concatenate([self.starts, np.zeros_like(self.starts)])
            self.lengths = np.concatenate([self.lengths, np.zeros_like(self.lengths)])
        return places, np.fromiter(map(self.rows.__getitem__, words), np.int64, len(words))

    def look_up(self, words: np.ndarray, picks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the picked splits of words are in `tokens`, and their lengths; draw those not drawn yet."""
        entries = words * ALTERNATIVES + picks
        for entry in np.unique(entries[self.lengths[entries] == 0]).tolist():
            word = self.words[entry // ALTERNATIVES]
            chance = Chance((zlib.crc32(word) << 32) ^ (self.seed << 8) ^ (entry % ALTERNATIVES))
            split = self.splitter.split(tuple(np.frombuffer(word, np.int32).tolist()), chance)
            if self.used + len(split) > len(self.tokens):
                self.tokens = np.concatenate([self.tokens, np.empty_like(self.tokens)])
            self.tokens[self.used : self.used + len(split)] = split
            self.starts[entry], self.lengths[entry] = self.used, len(split)
            self.used += len(split)
        return self.starts[entries], self.lengths[entries].astype(np.int64)


class Sampler:
    """Splits the words of batches at random; `growth` is the factor by which this lengthens text."""

    def __init__(self, data: DataSet, rate: float, seed: int):
        symbols = spell_symbols(data.manifest["config"]["subwords"]["symbols"])
        self.seed = seed
        source = Alternatives(Splitter(data.subwords["source"], rate, symbols), seed)
        joint = data.subwords["source"] is data.subwords["target"]
        target = source if joint else Alternatives(Splitter(data.subwords["target"], rate, symbols), seed)
        self.alternatives: dict[Side, Alternatives] = {"source": source, "target": target}
        self.growth = max(self._measure(data, side) for side in SIDES)

    def _measure(self, data: DataSet, side: Side) -> float:
        pairs = np.unique(np.linspace(0, data.train.pairs - 1, MEASURED_PAIRS).astype(np.int64))
        row, offsets = data.train.gather(side, pairs)
        sampled, _ = self.sample(side, row, offsets, pairs, epoch=0, capacity=len(row) * 1000)
        return max(1.0, len(sampled) / len(row))

    def sample(
        self, side: Side, row: np.ndarray, offsets: np.ndarray, pairs: np.ndarray, epoch: int, capacity: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Split the words of a row of sentences anew; beyond `capacity`, the last sentences stay as they are."""
        if not len(pairs):
            return row, offsets
        alternatives = self.alternatives[side]
        places, words = alternatives.find_words(row, offsets)
        firsts = np.searchsorted(places, offsets)  # the first word of each sentence
        picks = self._pick(side, pairs, epoch, places - np.repeat(offsets[:-1], np.diff(firsts)), np.diff(firsts))
        starts, lengths = alternatives.look_up(words, picks)
        sentences = np.add.reduceat(lengths, firsts[:-1])
        usual = np.diff(offsets)
        # As many sentences from the front as leave room for the usual splits of the rest.
        over = np.flatnonzero(np.cumsum(sentences - usual) > capacity - len(row))
        fits = int(over[0]) if len(over) else len(pairs)
        until = firsts[fits]
        sampled = alternatives.tokens[ragged_indices(starts[:until], lengths[:until])]
        new_lengths = np.concatenate([sentences[:fits], usual[fits:]])
        return np.concatenate([sampled, row[offsets[fits] :]]), np.concatenate([[0], np.cumsum(new_lengths)])

    def _pick(self, side: Side, pairs: np.ndarray, epoch: int, within: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Pick a split for each word by seed, epoch, side, pair and place in the sentence, the same in any batch."""
        base = _mix(_mix(np.uint64(self.seed)) ^ np.uint64(2 * epoch + (side == "target")))
        pair = np.repeat(pairs, words).astype(np.uint64)
        mixed = _mix(base ^ ((pair << np.uint64(20)) + within.astype(np.uint64)))
        return (mixed % np.uint64(ALTERNATIVES)).astype(np.int64)


def _mix(values: np.ndarray | np.uint64) -> np.ndarray:
    """Turn counters into random bits (the finaliser of SplitMix64)."""
    mixed = np.atleast_1d(values) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
