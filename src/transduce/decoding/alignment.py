"""Word alignments: which word of the source each word of a translation comes from, by the decoder's attention.

In deep decoders as Chen et al. (2020) found best: the third layer of six, at the step that takes a word in, not the one
that says it. A decoder of a few layers has no such place: there the last layer looks at what it is about to say.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from transduce.decoding.force import Pair, cut_batches, make_row
from transduce.model.attention import Weights
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, SPACE

TOKENS = 1 << 13  # target tokens whose attention is in memory at once

DEEP = 4  # layers of a decoder that has a middle

Links = list[tuple[int, int]]  # (source word, target word), counted from 0


@torch.inference_mode()
def attention_shares(model: Transformer, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "target source"]]:
    """For each pair, given as tokens with their ends, how much each target token looks at each source token.

    It is the mean of the heads.
    """
    shares: list[np.ndarray] = [np.empty((0, 0), np.float32)] * len(pairs)
    layer, after = choose_place(len(model.decoder))
    for numbers in cut_batches([len(target) for _, target in pairs], TOKENS):
        source, source_offsets = make_row([pairs[number][0] for number in numbers], model.device)
        # The whole target goes in, so that there is a step after its last word.
        targets = [np.concatenate(([BEGIN], pairs[number][1])) for number in numbers]
        row, offsets = make_row(targets, model.device)
        seen: list[Weights] = []
        memory = model.encode(source, source_offsets)
        model.decode(row, offsets, memory, source_offsets, cross_weights=seen)
        for number, weights in zip(numbers, seen[layer]):
            shares[number] = weights.float().mean(0)[after : after + len(pairs[number][1])].cpu().numpy()
    return shares


def choose_place(layers: int) -> tuple[int, int]:
    """Which of a decoder's layers tells where a word comes from, and how many steps after the word is said."""
    return (layers // 2 - 1, 1) if layers >= DEEP else (layers - 1, 0)


def align_words(
    shares: Float[np.ndarray, "target source"], source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> Links:
    """Link each target word with the source word it looks at most; pieces are subwords without the ends."""
    source_words, target_words = number_words(source_pieces), number_words(target_pieces)
    if not len(source_words) or not len(target_words):
        return []
    inner = shares[: len(target_words), : len(source_words)]
    table = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    np.add.at(table, (target_words[:, None], source_words[None, :]), inner)
    return sorted((int(best), word) for word, best in enumerate(table.argmax(1)))


def number_words(pieces: Sequence[str]) -> Int[np.ndarray, " pieces"]:
    """The word each subword belongs to: a new one begins at the first letter after a space."""
    words, spaced = -1, True
    numbers: list[int] = []
    for piece in pieces:
        spaced = spaced or piece.startswith(SPACE)
        if spaced and piece.strip(SPACE):
            words, spaced = words + 1, False
        numbers.append(max(0, words))
        spaced = spaced or piece.endswith(SPACE)
    return np.array(numbers, np.int64)
