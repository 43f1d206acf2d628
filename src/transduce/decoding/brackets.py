"""Trees in brackets: which tokens may come next, so that each tree is whole, over exactly its sentence's words.

What a line must still output is known: a leaf (XX or a tag) for each word left, a closing bracket for each open one,
and the end. A token is allowed if all of that still fits behind it. So no line ever gets stuck, and none is cut. Where
words follow their tags, only the sentence's next word may come after a tag.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.errors import DataError
from transduce.model.saved import Loaded
from transduce.text.shards import DataSet
from transduce.text.subwords import END, SPACE, UNKNOWN, Subwords
from transduce.text.trees import CLOSE, OPEN, WORD, Tree, TreeError, escape_word, from_sequence, say_word


@dataclass(frozen=True, eq=False)
class Brackets:
    """The role of each token in a parser's target vocabulary."""

    opens: Bool[np.ndarray, " vocabulary"]
    closes: Bool[np.ndarray, " vocabulary"]
    leaves: Bool[np.ndarray, " vocabulary"]
    """XX or a tag, which stands for a word or right before it"""
    words: dict[str, int]
    """the token of each word, if words follow their leaves; rare words have none and are unknown"""
    labels: Int[np.ndarray, " vocabulary"]
    """the number of each bracket's label; 0 for no label"""
    symbols: list[str]
    """each token as `from_sequence` reads it"""

    @classmethod
    def find(cls, pieces: Sequence[str]) -> "Brackets":
        """Read the roles from a vocabulary's pieces; refuse one that is not a parser's."""
        symbols = [piece.removeprefix(SPACE) for piece in pieces]
        closes = np.array([symbol.startswith(CLOSE) for symbol in symbols])
        leaves = ~(closes | [symbol.startswith((OPEN, WORD)) for symbol in symbols])
        words = {symbol: token for token, symbol in enumerate(symbols) if symbol.startswith(WORD)}
        # A bracket that no token closes must not be opened.
        closed = {"", *(symbol[1:] for symbol in symbols if symbol.startswith(CLOSE))}
        opens = np.array([symbol.startswith(OPEN) and symbol[1:] in closed for symbol in symbols])
        leaves[: END + 1] = False
        whole = all(piece.startswith(SPACE) and piece != SPACE + CLOSE for piece in pieces[END + 1 :])
        if not (whole and opens.any() and closes.any() and leaves.any()):
            raise DataError("the vocabulary is not one of trees; prepare trees with: transduce prepare --task parsing")
        names = sorted({symbol[1:] for symbol, one in zip(symbols, opens | closes) if one and len(symbol) > 1})
        numbers = {name: number for number, name in enumerate(names, 1)}
        found = [numbers.get(symbol[1:], 0) if one else 0 for symbol, one in zip(symbols, opens | closes)]
        symbols[: END + 1] = [CLOSE] * (END + 1)  # a bracket that closes nothing, so `from_sequence` refuses it
        if words:
            symbols[UNKNOWN] = WORD
        return cls(opens, closes, leaves, words, np.array(found), symbols)

    @property
    def to_a_word(self) -> int:
        """How many tokens a word takes."""
        return 2 if self.words else 1

    def find_words(self, words: Iterable[str]) -> list[int]:
        """Return the token of each word of a sentence."""
        return [self.words.get(say_word(word), UNKNOWN) for word in words]


@lru_cache(4)
def find_brackets(pieces: tuple[str, ...]) -> Brackets:
    """Return the brackets of a vocabulary, the same object each time."""
    return Brackets.find(pieces)


def is_parser(target: Subwords) -> bool:
    """Whether a model with this target vocabulary was trained on trees."""
    try:
        find_brackets(tuple(target.pieces(range(len(target)))))
    except DataError:
        return False
    return True


def refuse_other(loaded: Loaded, *, parses: bool) -> None:
    """Refuse a parser to translate with, or a translator to parse with: its output would mean nothing."""
    if is_parser(loaded.subwords["target"]) == parses:
        return
    what = "was not trained on trees, and does not parse" if parses else "was trained on trees, and does not translate"
    verb, name = ("translate", "Translator") if parses else ("parse", "Parser")
    raise DataError(f"{loaded.folder}: {what}; use transduce {verb}, or in Python {name}.load")


def trees_of(data: DataSet, split: str, most: int) -> Iterator[tuple[int, Tree]]:
    """Yield up to `most` trees of a split, each with its pair's number; skip those with a label unknown in training."""
    target, held = data.subwords["target"], data.splits[split]
    symbols = find_brackets(tuple(target.pieces(range(len(target))))).symbols
    for pair in held.spread(most):
        words = [escape_word(word) for word in data.text(split, "source", pair).split()]
        with suppress(TreeError):
            yield pair, from_sequence([symbols[token] for token in held.tokens("target", pair)[:-1]], words)


class OpenTrees:
    """How far each line's tree has grown, in tensors on the device that are updated in place and never read back."""

    def __init__(
        self,
        brackets: Brackets,
        slots: int,
        beam: int,
        longest: int,
        device: torch.device,
        word_share: float = 1.0,
    ):
        self.beam, self.device, self.word_share = beam, device, word_share
        self.opens, self.closes, self.leaves, self.labels = (
            torch.from_numpy(part).to(device)
            for part in (brackets.opens, brackets.closes, brackets.leaves, brackets.labels)
        )
        self.labelled = bool(brackets.labels[brackets.opens].any())
        self.to_a_word = brackets.to_a_word
        # All tokens that are not words; besides them only one word may come next.
        kinds = np.stack((brackets.opens, brackets.closes, brackets.leaves, np.arange(len(brackets.opens)) == END))
        symbols = np.flatnonzero(kinds.any(0))
        self.symbols, self.kinds = (
            torch.from_numpy(part).to(device) for part in (symbols, kinds[:, symbols].argmax(0))
        )
        self.many = len(symbols) + self.to_a_word - 1

        def zeros(*shape: int) -> Tensor:
            return torch.zeros((slots, *shape), dtype=torch.int64, device=device)

        self.words: Int[Tensor, "slots beam"] = zeros(beam)  # left to output
        self.due: Bool[Tensor, "slots beam"] = zeros(beam).bool()  # whether a word must follow now
        self.following: Int[Tensor, "slots longest"] = zeros(longest + 1)  # [n]: the next word if n are left
        self.depth: Int[Tensor, "slots beam"] = zeros(beam)  # open brackets
        self.empty: Bool[Tensor, "slots beam"] = zeros(beam).bool()  # whether the innermost bracket is still empty
        self.room: Int[Tensor, " slots"] = zeros()  # tokens left, the end counted
        # The labels of open brackets, if they have any: each must be closed with its own.
        self.stack: Int[Tensor, "slots beam depth"] = zeros(beam, longest + 1 if self.labelled else 1)

    def begin(self, slots: Sequence[int], words: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        """Begin trees over these words (as tokens) in slots; `limits` are the most tokens of each tree."""
        index = torch.tensor(slots, device=self.device)
        many = torch.tensor([len(tokens) for tokens in words], device=self.device)
        self.words[index] = many[:, None].expand(-1, self.beam)
        for slot, tokens in zip(slots, words):
            self.following[slot, 1 : len(tokens) + 1] = torch.tensor(tokens[::-1], device=self.device)
        self.due[index] = False
        self.room[index] = torch.tensor(limits, device=self.device)
        self.depth[index] = 0
        self.empty[index] = False

    def choices(
        self,
        logits: Float[Tensor, "lines vocabulary"],
        slots: Int[np.ndarray, " open"] | None = None,
        normaliser: Float[Tensor, " lines"] | None = None,
    ) -> tuple[Float[Tensor, "lines choices"], Int[Tensor, "lines choices"]]:
        """Return the logits of the tokens that may come next in the lines of some slots, or of all, and those tokens.

        The columns are all symbols that are not words, then the only one of thousands of words that may come next.
        What a line may not output has -inf. With the logits' normaliser, words count by `word_share` only.
        """
        index = torch.arange(len(self.words), device=self.device) if slots is None else torch.from_numpy(slots)
        index = index.to(self.device)
        words, due, depth, empty = (part[index] for part in (self.words, self.due, self.depth, self.empty))
        # An opening bracket needs room for itself, its closing one and the end.
        may_open = (words > 0) & ~due & (self.to_a_word * words + depth + 3 <= self.room[index][:, None])
        may_close = (depth > 0) & ~empty & ~due
        may_end = (words == 0) & (depth == 0)
        may = torch.stack((may_open, may_close, (words > 0) & ~due, may_end), 2)[..., self.kinds]
        if self.labelled:
            lines = torch.arange(self.beam, device=self.device)
            innermost = self.stack[index[:, None], lines, (depth - 1).clamp(min=0)][..., None]
            may &= ~self.closes[self.symbols] | (innermost == 0) | (innermost == self.labels[self.symbols])
        tokens = self.symbols.expand(len(logits), -1)
        found = logits.index_select(1, self.symbols).masked_fill_(~may.flatten(0, 1), -torch.inf)
        if self.to_a_word == 1:
            return found, tokens
        word = self.following[index[:, None], words].view(-1, 1)
        said = logits.gather(1, word)
        if normaliser is not None:
            said.lerp_(normaliser.to(said.dtype)[:, None], 1 - self.word_share)
        said.masked_fill_(~due.view(-1, 1), -torch.inf)
        return torch.cat((found, said), 1), torch.cat((tokens, word), 1)

    def go_on(self, parents: Int[Tensor, "slots beam"], tokens: Int[Tensor, "slots beam"]) -> None:
        """Continue the lines `parents` of each slot with tokens; ended lines are updated too, which does no harm."""
        parents, tokens = parents.long(), tokens.long()
        opens, closes, leaf = self.opens[tokens], self.closes[tokens], self.leaves[tokens]
        word = leaf
        if self.to_a_word > 1:
            word = self.due.gather(1, parents)
            self.due.copy_(leaf)
        self.words.copy_((self.words.gather(1, parents) - word.long()).clamp_(min=0))
        self.depth.copy_((self.depth.gather(1, parents) + opens.long() - closes.long()).clamp_(min=0))
        self.empty.copy_((self.empty.gather(1, parents) & ~(word | closes)) | opens)
        self.room -= 1
        if self.labelled:
            self.stack.copy_(self.stack.gather(1, parents[..., None].expand_as(self.stack)))
            deepest = self.stack.shape[2] - 1
            place = torch.where(opens, self.depth - 1, deepest).clamp(0, deepest)[..., None]
            self.stack.scatter_(2, place, self.labels[tokens][..., None])
