"""Where two sentences differ, word by word."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from transduce.text.words import is_one_word

Kind = Literal["same", "moved", "other"]
_BEST_FIRST: tuple[Kind, ...] = ("same", "moved", "other")

# Space, a character of a script without spaces, a word with its inner apostrophes and hyphens, or a single sign.
_TOKEN = re.compile(
    r"\s+|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+(?:['’-]\w+)*|."
)


@dataclass(frozen=True)
class Piece:
    """Consecutive words of a sentence that are also in the other, there but elsewhere, or not there."""

    text: str
    kind: Kind


def cut_words(sentence: str) -> list[str]:
    """Return the words and signs of a sentence."""
    return [token for token in _cut(sentence) if not token.isspace()]


def _cut(sentence: str) -> list[str]:
    """Return the words, signs and spaces of a sentence; marks, such as Hindi vowels, stay with their letters."""
    tokens: list[str] = []
    for token in _TOKEN.findall(sentence):
        if tokens and is_one_word(tokens[-1], token):
            tokens[-1] += token
        else:
            tokens.append(token)
    return tokens


def closest(sentence: str, others: Sequence[str]) -> int:
    """Return the index of the sentence that shares most with this one."""
    words = cut_words(sentence)
    return max(range(len(others)), key=lambda number: _matcher(words, cut_words(others[number])).ratio())


def compare_words(sentence: str, *others: str) -> list[Piece]:
    """Cut a sentence into pieces by whether any of the others has their words, in the same order or elsewhere."""
    words = cut_words(sentence)
    kinds = [_find(words, cut_words(other)) for other in others]
    best: list[Kind] = [next(kind for kind in _BEST_FIRST if kind in of_word) for of_word in zip(*kinds)]
    return list(_join(sentence, best))


def _find(words: list[str], others: list[str]) -> list[Kind]:
    kinds: list[Kind] = ["other"] * len(words)
    left = Counter(others)
    for block in _matcher(words, others).get_matching_blocks():
        for place in range(block.a, block.a + block.size):
            kinds[place] = "same"
            left[words[place]] -= 1
    for place, word in enumerate(words):
        if kinds[place] == "other" and left[word] > 0:
            kinds[place] = "moved"
            left[word] -= 1
    return kinds


def _matcher(words: list[str], others: list[str]) -> "SequenceMatcher[str]":
    return SequenceMatcher(None, words, others, autojunk=False)


def _join(sentence: str, kinds: Sequence[Kind]) -> Iterator[Piece]:
    """Join consecutive words of one kind, with the space between them."""
    text, kind, space = "", None, ""
    remaining = iter(kinds)
    for token in _cut(sentence):
        if token.isspace():
            space += token
            continue
        here = next(remaining)
        if here == kind:
            text += space + token
        else:
            if kind:
                yield Piece(text, kind)
            if space:
                yield Piece(space, "same")
            text, kind = token, here
        space = ""
    if kind:
        yield Piece(text, kind)
    if space:
        yield Piece(space, "same")
