"""Add subwords to a vocabulary that a model knows: new ones come after the old, which keep their numbers.

The new text is split into the old subwords, and the most frequent pair of neighbours becomes a subword, again and
again, as in byte-pair encoding; characters that were unknown or spelled in bytes become subwords of their own. A text
without any new subword is split as before. In BPE, new merges rank after all old ones; in a unigram model, a new
subword scores what its parts score together and a hair more, so it replaces them and changes nothing else.
"""

import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from transduce.text.pieces import NORMAL, UNUSED, USER_DEFINED, Piece, read_pieces, unused, write_pieces
from transduce.text.shards import SIDES, Side
from transduce.text.subwords import BEGIN, END, HIDDEN, PAD, SPACE, UNKNOWN, Subwords, spell_symbols

FEWEST = 5  # rarer subwords of the new text are not learned, since their vectors would not be either
LONGEST = 16  # characters, as in SentencePiece
MOST_WORDS = 300_000  # the most frequent ones, to learn from
HAIR = 1e-3  # in log-probability: less than the difference between two splits
Candidate = tuple[str, ...]  # an unknown symbol, or two neighbours


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count the words of a text and keep the most frequent ones."""
    words: Counter[str] = Counter()
    for line in lines:
        words.update(line.split())
    kept = ((word, count) for word, count in words.most_common(MOST_WORDS) if SPACE not in word and HIDDEN not in word)
    return Counter(dict(kept))


def extend(
    subwords: dict[Side, Subwords], words: dict[Side, Counter[str]], count: int, symbols: Sequence[str] = ()
) -> dict[Side, Subwords]:
    """Return both sides' subwords with at most `count` new ones, learned from their words, and with `symbols`.

    Sides that share a vocabulary still do afterwards: what one learns gets its number in the other too.
    """
    source, target = SIDES
    sides = {side: _add(subwords[side], _symbols(subwords[side], symbols)) for side in SIDES}
    if subwords[source] is subwords[target]:
        both = _add(sides[source], learn_more(sides[source], words[source] + words[target], count))
        return dict.fromkeys(SIDES, both)
    shared = subwords[source].numbers_like(subwords[target])
    learned = {
        side: learn_more(sides[side], words[side], (count + place) // 2 if shared else count)
        for place, side in enumerate(SIDES)
    }
    if not shared:
        return {side: _add(sides[side], learned[side]) for side in SIDES}
    together = [piece.text for pieces in learned.values() for piece in pieces]
    return {side: _add(sides[side], learned[side], together) for side in SIDES}


def learn_more(subwords: Subwords, words: Counter[str], count: int) -> list[Piece]:
    """Learn at most `count` new pieces, the most frequent first."""
    texts = _Text(subwords, words)
    scores = _scores(subwords)
    lowest = min(scores.values(), default=0.0)
    learned: list[Piece] = []
    while len(learned) < count and (parts := texts.most_frequent()):
        score = lowest - 1 - len(learned)
        if subwords.kind == "unigram":
            # Earlier pieces score more, so they win over later ones that need one of the same parts.
            hair = HAIR * (2 - len(learned) / count)
            score = sum(scores[part] for part in parts) + hair if len(parts) > 1 else lowest
        text = "".join(parts)
        learned.append(Piece(text, score))
        scores[text] = score
        texts.join(parts, scores)
    return learned


class _Text:
    """The words of a text as symbols, with the counts of unknown symbols and of neighbouring pairs."""

    def __init__(self, subwords: Subwords, words: Counter[str]):
        self.kind = subwords.kind
        self.known = set(_scores(subwords))
        self.fixed = {piece.text for piece in _own_pieces(subwords) if piece.kind == USER_DEFINED}
        self.taken = set(subwords.pieces(range(len(subwords)))) if self.kind == "unigram" else set()
        self.digits = any(a.isdigit() and b.isdigit() for piece in self.known for a, b in pairwise(piece))
        self.rows = _split(subwords, list(words))
        self.counts = list(words.values())
        self.tally: Counter[Candidate] = Counter()
        self.places: defaultdict[Candidate, set[int]] = defaultdict(set)
        for place in range(len(self.rows)):
            self._count(place, 1)
        self.heap = [(-count, parts) for parts, count in self.tally.items() if count >= FEWEST]
        heapq.heapify(self.heap)

    def most_frequent(self) -> Candidate | None:
        """Return the most frequent candidate, or None; of equals, the first in the alphabet."""
        while self.heap:
            count, parts = heapq.heappop(self.heap)
            now = self.tally[parts]
            if now == -count:
                return parts
            if now >= FEWEST:
                heapq.heappush(self.heap, (-now, parts))
        return None

    def join(self, parts: Candidate, scores: dict[str, float]) -> None:
        """Learn a candidate: make a symbol known, or join two neighbours wherever they occur."""
        places = sorted(self.places[parts])
        for place in places:
            self._count(place, -1)
        self.known.add("".join(parts))
        changed: set[Candidate] = set()
        for place in places:
            if len(parts) > 1:
                self.rows[place] = _merge(self.rows[place], parts)
            if self.kind == "bpe":
                self.rows[place] = _settle(self.rows[place], scores)
            changed |= self._count(place, 1)
        for candidate in sorted(changed):
            if self.tally[candidate] >= FEWEST:
                heapq.heappush(self.heap, (-self.tally[candidate], candidate))

    def _count(self, place: int, sign: int) -> set[Candidate]:
        row = self.rows[place]
        found: list[Candidate] = [(symbol,) for symbol in row if symbol not in self.known and symbol not in self.fixed]
        found += [pair for pair in pairwise(row) if self._may_join(*pair)]
        for candidate in found:
            self.tally[candidate] += sign * self.counts[place]
            if sign > 0:
                self.places[candidate].add(place)
            else:
                self.places[candidate].discard(place)
        return set(found)

    def _may_join(self, left: str, right: str) -> bool:
        """Whether to join: letters with letters, signs with signs, digits if the model joins them, a space with all."""
        text = left + right
        if self.kind == "word" or not {left, right} <= self.known or text in self.taken or len(text) > LONGEST:
            return False
        kinds = [_kind(symbol) for symbol in (left[-1], right[0])]
        return left == SPACE or (kinds[0] == kinds[1] and (self.digits or kinds[0] != "N"))


def _kind(character: str) -> str:
    category = unicodedata.category(character)[0]
    return {"M": "L", "L": "L", "N": "N"}.get(category, "S")


def _merge(row: list[str], pair: Candidate) -> list[str]:
    merged: list[str] = []
    at = 0
    while at < len(row):
        here = tuple(row[at : at + 2]) == pair
        merged.append("".join(pair) if here else row[at])
        at += 2 if here else 1
    return merged


def _settle(row: list[str], scores: dict[str, float]) -> list[str]:
    """Merge neighbours that form a known subword, best first, as BPE does."""
    while found := [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(row)) if a + b in scores]:
        _, at = min(found)
        row = [*row[:at], row[at] + row[at + 1], *row[at + 2 :]]
    return row


def _split(subwords: Subwords, words: list[str]) -> list[list[str]]:
    """Split words into subwords; unknown characters stand one by one, even if the model spells them in bytes."""
    processor = subwords.processor
    tokens, pieces = processor.encode(words, num_threads=1), processor.encode(words, out_type=str, num_threads=1)
    is_byte = [processor.is_byte(token) for token in range(processor.get_piece_size())]
    rows: list[list[str]] = []
    for word in zip(tokens, pieces):
        row: list[str] = []
        spelled = b""
        for token, piece in zip(*word):
            if is_byte[token]:
                spelled += bytes([int(piece[3:5], 16)])
                continue
            row, spelled = [*row, *spelled.decode("utf-8", "ignore")], b""
            row += [*piece] if token == UNKNOWN and subwords.kind != "word" else [piece]
        rows.append([*row, *spelled.decode("utf-8", "ignore")])
    return rows


def _own_pieces(subwords: Subwords) -> list[Piece]:
    return read_pieces(subwords.model, "the subwords").pieces[: len(subwords)]


def _scores(subwords: Subwords) -> dict[str, float]:
    """Return the scores of the subwords that texts of this side are split into and that may be joined."""
    return {piece.text: piece.score for piece in _own_pieces(subwords) if piece.kind == NORMAL}


def _symbols(subwords: Subwords, symbols: Sequence[str]) -> list[Piece]:
    known = subwords.processor.piece_to_id
    fixed = [symbol for symbol in spell_symbols(symbols) if not subwords.processor.is_control(known(symbol))]
    return [Piece(symbol, 0.0, USER_DEFINED) for symbol in dict.fromkeys(fixed)]


def _add(subwords: Subwords, new: Sequence[Piece], numbered: Sequence[str] | None = None) -> Subwords:
    """Append new pieces to a model; `numbered` are all texts that get a number, for this side or the other."""
    if not new and not numbered:
        return subwords
    model = read_pieces(subwords.model, "the subwords")
    own = {piece.text: piece for piece in new}
    texts = dict.fromkeys(numbered if numbered is not None else own)
    rest = {piece.text.replace(HIDDEN, ""): piece for piece in model.pieces[len(subwords) :]}
    pieces: list[Piece] = []
    for piece in model.pieces[: len(subwords)]:
        text = piece.text.replace(HIDDEN, "")
        if text in texts:
            del texts[text]  # it has a number already: from the other side, or as a part of words
            pieces.append(own.get(text, piece) if piece.kind in (UNUSED, NORMAL) else piece)
        else:
            pieces.append(piece)
    for text in texts:  # pieces after LAST, which had no number, keep their scores
        pieces.append(rest.pop(text, None) or own.get(text) or unused(text, model))
    return Subwords(write_pieces(model, [*pieces, *rest.values()], (UNKNOWN, BEGIN, END, PAD)))
