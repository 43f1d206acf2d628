"""Rules for what may not come next: lengths, prefixes, repetitions, forbidden phrases, characters in bytes.

A rule changes logits in place before tokens are chosen. Probabilities stay the model's, as they are normalised before
that: a score is log P(target | source) whatever was forbidden on the way.
"""

import re
from bisect import bisect_left
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import SearchConfig
from transduce.decoding.characters import Characters, find_unfinished
from transduce.text.subwords import BEGIN, END, PAD, SPACE, UNKNOWN
from transduce.text.words import is_one_word


class Rule(Protocol):
    """Forbids tokens in the lines of one sentence."""

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Set the logits of forbidden next tokens to -inf, given each line's tokens so far."""
        ...


class AtLeast:
    """No end before this many tokens."""

    def __init__(self, tokens: int):
        self.tokens = tokens

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid the end while the lines are too short."""
        if said.shape[1] < self.tokens:
            logits[:, END] = -torch.inf


class Prefix:
    """The translation begins with these tokens, whatever other rules say; those apply after them."""

    def __init__(self, tokens: Sequence[int], rules: Sequence[Rule]):
        self.tokens, self.rules = tokens, rules

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid everything but the prefix's next token; after the prefix, what the rules forbid."""
        if said.shape[1] < len(self.tokens):
            token = self.tokens[said.shape[1]]
            kept = logits[:, token].clone()
            logits.fill_(-torch.inf)
            logits[:, token] = kept
            return
        for rule in self.rules:
            rule.forbid(logits, said)


class NoRepeat:
    """No sequence of this many tokens occurs twice."""

    def __init__(self, many: int):
        self.many = many

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid the tokens that followed earlier occurrences of a line's last tokens."""
        before = self.many - 1
        if said.shape[1] < self.many:
            return
        for line, tokens in enumerate(said):
            runs = np.lib.stride_tricks.sliding_window_view(tokens, self.many)
            last = tokens[len(tokens) - before :]
            again = runs[(runs[:, :before] == last).all(1), -1]
            logits[line, torch.from_numpy(again.astype(np.int64)).to(logits.device)] = -torch.inf


class Spellings:
    """The target's subwords as UTF-8, so that single-byte subwords can be read too."""

    def __init__(self, pieces: Sequence[str], *, fold: bool = False):
        self.pieces = pieces
        self.texts = [_fold(spell_piece(piece)) if fold else spell_piece(piece) for piece in pieces]
        for token in {PAD, BEGIN, END} & set(range(len(pieces))):
            self.texts[token] = b""
        if len(pieces) > UNKNOWN:
            self.texts[UNKNOWN] = " ⁇ ".encode()
        self.phrases: dict[str, _Phrase] = {}
        self._apart: dict[tuple[str, bytes], np.ndarray] = {}

    @cached_property
    def folded(self) -> "Spellings":
        """The same without the difference between capitals and lower case."""
        return Spellings(self.pieces, fold=True)

    @cached_property
    def characters(self) -> Characters:
        """What may be spelled in single-byte subwords."""
        return Characters(self.texts)

    @cached_property
    def order(self) -> list[int]:
        """The subwords sorted by their texts."""
        return sorted(range(len(self.texts)), key=self.texts.__getitem__)

    @cached_property
    def sorted(self) -> list[bytes]:
        """Their texts in that order."""
        return [self.texts[token] for token in self.order]

    def spell(self, tokens: Sequence[int]) -> bytes:
        """Return the text of some tokens as UTF-8; empty if no subwords are known."""
        return b"".join(self.texts[token] for token in tokens) if self.texts else b""

    def apart(self, last: str, begun: bytes) -> Bool[np.ndarray, " vocabulary"]:
        """Return which subwords do not continue a word ending in `last`; `begun` starts the next character."""
        if (last, begun) not in self._apart:
            firsts = [first_of(begun + own) for own in self.texts]
            own_word = {first for first in set(firsts) if is_one_word(last, first)}
            self._apart[last, begun] = np.array([first not in own_word for first in firsts])
        return self._apart[last, begun]

    def phrase(self, text: str) -> "_Phrase":
        """Return which subwords complete a phrase, computed once."""
        if text not in self.phrases:
            self.phrases[text] = _Phrase(text.encode(), self)
        return self.phrases[text]

    def beginning_with(self, text: bytes) -> Iterator[int]:
        """Yield the subwords that begin with a text."""
        for place in range(bisect_left(self.sorted, text), len(self.sorted)):
            if not self.sorted[place].startswith(text):
                break
            yield self.order[place]

    def tail(self, tokens: Int[np.ndarray, " said"], many: int) -> bytes:
        """Return the last bytes of what was output, at least `many` if there are."""
        text = b""
        for token in reversed(tokens.tolist()):
            if len(text) >= many:
                break
            text = self.texts[token] + text
        return text


class _Phrase:
    """Which subwords complete a phrase, given how much of it stands before."""

    def __init__(self, text: bytes, spellings: Spellings):
        self.text = text
        # [n]: those that complete it after its first n bytes.
        self.completing = [
            [
                token
                for token in spellings.beginning_with(rest)
                if self._apart_behind(spellings.texts[token][len(rest) :])
            ]
            for rest in (text[begun:] for begun in range(len(text)))
        ]
        # Those that contain all of it after something else.
        self.containing = [token for token, own in enumerate(spellings.texts) if self._within(own)]

    def after(self, said: bytes) -> Iterator[int]:
        """Yield the subwords that would complete the phrase after `said`."""
        for begun, tokens in enumerate(self.completing):
            if tokens and said.endswith(self.text[:begun]) and self._apart_before(said[: len(said) - begun]):
                yield from tokens
        yield from self.containing

    def _within(self, own: bytes) -> bool:
        place = own.find(self.text, 1)
        while place > 0:
            if self._apart_before(own[:place]) and self._apart_behind(own[place + len(self.text) :]):
                return True
            place = own.find(self.text, place + 1)
        return False

    def _apart_before(self, before: bytes) -> bool:
        return not is_one_word(_read(before[-4:]), _read(self.text))

    def _apart_behind(self, behind: bytes) -> bool:
        return not is_one_word(_read(self.text), _read(behind[:4]))


class Forbidden:
    """Phrases that never appear as whole words, whatever subwords they might be split into.

    A token that would complete one is forbidden even if a longer word could still come of it.
    """

    def __init__(self, phrases: Sequence[str], spellings: Spellings):
        self.spellings = spellings
        self.phrases = [spellings.phrase(phrase) for phrase in map(str.strip, phrases) if phrase]
        # And the bytes of the character before.
        self.longest = max((len(phrase.text) for phrase in self.phrases), default=0) + 4

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid each subword that would complete a phrase."""
        for line, tokens in enumerate(said):
            text = self.spellings.tail(tokens, self.longest)
            logits[line, [token for phrase in self.phrases for token in phrase.after(text)]] = -torch.inf


class Spelled:
    """Characters spelled in bytes are whole, and ones that a translation is likely to have."""

    def __init__(self, source: Set[str], spellings: Spellings):
        self.source, self.spellings = frozenset(map(str.encode, source)), spellings

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid what would leave a character unfinished, and the bytes of unlikely ones."""
        for line, tokens in enumerate(said):
            begun = find_unfinished(self.spellings.tail(tokens, 3))
            logits[line, self.spellings.characters.breaking(begun, self.source)] = -torch.inf


def spell_piece(piece: str) -> bytes:
    """Return a subword as UTF-8, with a space for its space mark."""
    byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace(SPACE, " ").encode()


def _fold(text: bytes) -> bytes:
    return text.decode(errors="surrogateescape").casefold().encode(errors="surrogateescape")


def _read(text: bytes) -> str:
    return text.decode(errors="replace")


def first_of(text: bytes) -> str:
    """Return the first character of a text; empty while bytes of it are missing."""
    return getincrementaldecoder("utf-8")("replace").decode(text[:4])[:1]


def penalise_repetition(
    logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"], penalty: float
) -> None:
    """Make the tokens that a line already has less probable (Keskar et al. 2019), before normalising."""
    index = torch.from_numpy(said.astype(np.int64)).to(logits.device)
    found = logits.gather(1, index)
    logits.scatter_(1, index, torch.where(found < 0, found * penalty, found / penalty))


def make_rules(
    config: SearchConfig,
    prefix: Sequence[int],
    forbidden: Sequence[str],
    spellings: Spellings,
    *,
    in_any_case: bool = False,
    spelled: Set[str] | None = None,
) -> list[Rule]:
    """Make the rules for one sentence; `in_any_case` forbids phrases in capitals and lower case alike."""
    rules: list[Rule] = []
    if spelled is not None:
        rules.append(Spelled(spelled, spellings))
    if config.min_tokens:
        rules.append(AtLeast(config.min_tokens))
    if config.no_repeat:
        rules.append(NoRepeat(config.no_repeat))
    if forbidden and in_any_case:
        rules.append(Forbidden([phrase.casefold() for phrase in forbidden], spellings.folded))
    elif forbidden:
        rules.append(Forbidden(forbidden, spellings))
    return [Prefix(prefix, rules)] if prefix else rules
