"""What a translation may not say next: lengths, prefixes, repetitions, forbidden phrases, characters in bytes.

A rule changes logits in place between the model and the choice. Probabilities are those of the model all the same:
they are normalised before, so that a score is log P(target | source) whatever was forbidden on the way.
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
    """Forbids tokens to the lines of one sentence."""

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Set the logits of what must not be said next to -inf, given what each line has said so far."""
        ...


class AtLeast:
    """No end before so many tokens were said."""

    def __init__(self, tokens: int):
        self.tokens = tokens

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid the end."""
        if said.shape[1] < self.tokens:
            logits[:, END] = -torch.inf


class Prefix:
    """The translation begins with these tokens, whatever other rules say; then those hold."""

    def __init__(self, tokens: Sequence[int], rules: Sequence[Rule]):
        self.tokens, self.rules = tokens, rules

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid everything but the prefix's next token, or what the rules forbid."""
        if said.shape[1] < len(self.tokens):
            token = self.tokens[said.shape[1]]
            kept = logits[:, token].clone()
            logits.fill_(-torch.inf)
            logits[:, token] = kept
            return
        for rule in self.rules:
            rule.forbid(logits, said)


class NoRepeat:
    """No run of so many tokens comes twice."""

    def __init__(self, many: int):
        self.many = many

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid what followed wherever the last tokens stood before."""
        before = self.many - 1
        if said.shape[1] < self.many:
            return
        for line, tokens in enumerate(said):
            runs = np.lib.stride_tricks.sliding_window_view(tokens, self.many)
            last = tokens[len(tokens) - before :]
            again = runs[(runs[:, :before] == last).all(1), -1]
            logits[line, torch.from_numpy(again.astype(np.int64)).to(logits.device)] = -torch.inf


class Spellings:
    """The target's subwords as UTF-8, as which those that are single bytes can be read too."""

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
        """The same where capitals and small letters are the same."""
        return Spellings(self.pieces, fold=True)

    @cached_property
    def characters(self) -> Characters:
        """What may be spelled in those that are single bytes."""
        return Characters(self.texts)

    @cached_property
    def order(self) -> list[int]:
        """The subwords by their texts."""
        return sorted(range(len(self.texts)), key=self.texts.__getitem__)

    @cached_property
    def sorted(self) -> list[bytes]:
        """Their texts in that order."""
        return [self.texts[token] for token in self.order]

    def spell(self, tokens: Sequence[int]) -> bytes:
        """The text of some tokens; nothing where no subwords are known."""
        return b"".join(self.texts[token] for token in tokens) if self.texts else b""

    def apart(self, last: str, begun: bytes) -> Bool[np.ndarray, " vocabulary"]:
        """Which subwords do not go on with a word that ends so; of the next character some bytes may be said."""
        if (last, begun) not in self._apart:
            firsts = [first_of(begun + own) for own in self.texts]
            own_word = {first for first in set(firsts) if is_one_word(last, first)}
            self._apart[last, begun] = np.array([first not in own_word for first in firsts])
        return self._apart[last, begun]

    def phrase(self, text: str) -> "_Phrase":
        """Which subwords complete a phrase; found once."""
        if text not in self.phrases:
            self.phrases[text] = _Phrase(text.encode(), self)
        return self.phrases[text]

    def beginning_with(self, text: bytes) -> Iterator[int]:
        """The subwords that begin with a text."""
        for place in range(bisect_left(self.sorted, text), len(self.sorted)):
            if not self.sorted[place].startswith(text):
                break
            yield self.order[place]

    def tail(self, tokens: Int[np.ndarray, " said"], many: int) -> bytes:
        """The last bytes of what was said, so many of them at least."""
        text = b""
        for token in reversed(tokens.tolist()):
            if len(text) >= many:
                break
            text = self.texts[token] + text
        return text


class _Phrase:
    """Which subwords complete a phrase, given how much of it was said."""

    def __init__(self, text: bytes, spellings: Spellings):
        self.text = text
        # By how many bytes of it stand before.
        self.completing = [
            [
                token
                for token in spellings.beginning_with(rest)
                if self._apart_behind(spellings.texts[token][len(rest) :])
            ]
            for rest in (text[begun:] for begun in range(len(text)))
        ]
        # Those that say all of it, and something before.
        self.containing = [token for token, own in enumerate(spellings.texts) if self._within(own)]

    def after(self, said: bytes) -> Iterator[int]:
        """The subwords that would complete the phrase after what was said."""
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
    """Phrases that are never said as whole words, in whatever subwords they might be spelled.

    What would complete one is forbidden even where a longer word could still be made of it.
    """

    def __init__(self, phrases: Sequence[str], spellings: Spellings):
        self.spellings = spellings
        self.phrases = [spellings.phrase(phrase) for phrase in map(str.strip, phrases) if phrase]
        # And the character before.
        self.longest = max((len(phrase.text) for phrase in self.phrases), default=0) + 4

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid each subword that would complete a phrase."""
        for line, tokens in enumerate(said):
            text = self.spellings.tail(tokens, self.longest)
            logits[line, [token for phrase in self.phrases for token in phrase.after(text)]] = -torch.inf


class Spelled:
    """What is spelled in bytes are whole characters, of those that a translation is likely to have."""

    def __init__(self, source: Set[str], spellings: Spellings):
        self.source, self.spellings = frozenset(map(str.encode, source)), spellings

    def forbid(self, logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"]) -> None:
        """Forbid what would leave a character unfinished, and bytes of others."""
        for line, tokens in enumerate(said):
            begun = find_unfinished(self.spellings.tail(tokens, 3))
            logits[line, self.spellings.characters.breaking(begun, self.source)] = -torch.inf


def spell_piece(piece: str) -> bytes:
    """A subword as UTF-8, its space as one."""
    byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace(SPACE, " ").encode()


def _fold(text: bytes) -> bytes:
    return text.decode(errors="surrogateescape").casefold().encode(errors="surrogateescape")


def _read(text: bytes) -> str:
    return text.decode(errors="replace")


def first_of(text: bytes) -> str:
    """The first character of a text, or nothing while bytes of it are missing."""
    return getincrementaldecoder("utf-8")("replace").decode(text[:4])[:1]


def penalise_repetition(
    logits: Float[Tensor, "beam vocabulary"], said: Int[np.ndarray, "beam said"], penalty: float
) -> None:
    """Make what was said before less probable (Keskar et al. 2019): before probabilities are normalised."""
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
    """The rules for one sentence; phrases may be forbidden in capitals and small letters alike."""
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
