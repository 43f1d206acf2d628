"""More subwords for a vocabulary that a model knows: new ones stand behind the old, which keep their numbers.

What the old subwords leave in pieces is put together: the most frequent neighbours in the new text become a subword,
and so on, as byte-pair encoding learns; characters that were unknown or spelled in bytes become subwords of their own.
A text in which no new subword occurs is split as before. In BPE new merges come after all old ones; in a unigram model
a new subword scores as its parts do together and a hair more, so that it takes their place and changes nothing else.
"""

import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from transduce.text.pieces import NORMAL, UNUSED, USER_DEFINED, Piece, read_pieces, unused, write_pieces
from transduce.text.shards import SIDES, Side
from transduce.text.subwords import BEGIN, END, HIDDEN, PAD, SPACE, UNKNOWN, Subwords

FEWEST = 5  # a subword that occurs less often in the new text is not learned: nor would its vector be
LONGEST = 16  # characters, as in SentencePiece
MOST_WORDS = 300_000  # the most frequent words, from which is learned
HAIR = 1e-3  # of a logarithm: less than what tells one split from another
Candidate = tuple[str, ...]  # an unknown symbol, or two neighbours


def count_words(lines: Iterable[str]) -> Counter[str]:
    """The words of a text, the most frequent ones."""
    words: Counter[str] = Counter()
    for line in lines:
        words.update(line.split())
    kept = ((word, count) for word, count in words.most_common(MOST_WORDS) if SPACE not in word and HIDDEN not in word)
    return Counter(dict(kept))


def extend(
    subwords: dict[Side, Subwords], words: dict[Side, Counter[str]], count: int, symbols: Sequence[str] = ()
) -> dict[Side, Subwords]:
    """Both sides' subwords with at most so many new ones, learned from their words, and with the symbols.

    Two sides that share one vocabulary still do: what the one learns has its number in the other too.
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
    """At most so many new pieces, those first that occur most often."""
    texts = _Text(subwords, words)
    scores = _scores(subwords)
    lowest = min(scores.values(), default=0.0)
    learned: list[Piece] = []
    while len(learned) < count and (parts := texts.most_frequent()):
        score = lowest - 1 - len(learned)
        if subwords.kind == "unigram":
            # Those learned first win over others that would take one of the same parts.
            hair = HAIR * (2 - len(learned) / count)
            score = sum(scores[part] for part in parts) + hair if len(parts) > 1 else lowest
        text = "".join(parts)
        learned.append(Piece(text, score))
        scores[text] = score
        texts.join(parts, scores)
    return learned


class _Text:
    """The words of a text in their symbols, and how often unknown symbols and pairs of neighbours occur."""

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
        """What occurs most often; of equals the first in the alphabet."""
        while self.heap:
            count, parts = heapq.heappop(self.heap)
            now = self.tally[parts]
            if now == -count:
                return parts
            if now >= FEWEST:
                heapq.heappush(self.heap, (-now, parts))
        return None

    def join(self, parts: Candidate, scores: dict[str, float]) -> None:
        """Make a symbol known, or one symbol of two, wherever they stand."""
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
        """Letters go with letters, digits with digits where they did so far, signs with signs; a space with all."""
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
    """Merge, as BPE does, what has become two parts of a known subword: the best first."""
    while found := [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(row)) if a + b in scores]:
        _, at = min(found)
        row = [*row[:at], row[at] + row[at + 1], *row[at + 2 :]]
    return row


def _split(subwords: Subwords, words: list[str]) -> list[list[str]]:
    """Words in their subwords; unknown characters one by one, also where they are spelled in bytes."""
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
    """The subwords that a text of this side is split into and that may be joined, with their scores."""
    return {piece.text: piece.score for piece in _own_pieces(subwords) if piece.kind == NORMAL}


def _symbols(subwords: Subwords, symbols: Sequence[str]) -> list[Piece]:
    known = subwords.processor.piece_to_id
    fixed = [symbol for symbol in symbols if not subwords.processor.is_control(known(symbol))]
    return [Piece(symbol, 0.0, USER_DEFINED) for symbol in dict.fromkeys(fixed)]


def _add(subwords: Subwords, new: Sequence[Piece], numbered: Sequence[str] | None = None) -> Subwords:
    """The model with new pieces behind its own; `numbered` are all that get a number, here or on the other side."""
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
            del texts[text]  # it has its number already: of the other side, or as a part of words
            pieces.append(own.get(text, piece) if piece.kind in (UNUSED, NORMAL) else piece)
        else:
            pieces.append(piece)
    for text in texts:  # those that are split into already, but had no number, keep their scores
        pieces.append(rest.pop(text, None) or own.get(text) or unused(text, model))
    return Subwords(write_pieces(model, [*pieces, *rest.values()], (UNKNOWN, BEGIN, END, PAD)))
