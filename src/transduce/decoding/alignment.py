"""Word alignments: which word of the source each word of a translation comes from, by the decoder's attention.

Some heads look at the source of the word that is due, others at that of the word just said, and models differ in where
such heads are. So those are used that agree best with what the model itself needs: at the end of a training, words of
dev sentences are left out one at a time, and a translated word comes from the one without which it is the least
probable. Where that is not known, for models of other toolkits, it is the place that Chen et al. (2020) found best in
deep decoders: the third layer of six, at the step that takes a word in; and the last layer of a few.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from transduce.decoding.force import Pair, Tokens, cut_batches, make_row, score_pairs
from transduce.errors import DataError
from transduce.model.attention import Weights
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, SPACE, UNKNOWN, Subwords

TOKENS = 1 << 13  # target tokens whose attention is in memory at once
DEEP = 4  # layers of a decoder that has a middle
# To find places by: pairs of sentences and their tokens, how much less probable a word must become without another, how
# many words must be linked so, and how many heads are used.
PAIRS, LENGTH, LOST, LEAST, MOST = 24, 40, 1.0, 50, 4

Links = list[tuple[int, int]]  # (source word, target word), counted from 0


class Place(NamedTuple):
    """A head that shows where words come from; layer and head are counted from 0."""

    layer: int
    head: int
    after: int
    """0: it looks as a word is said; 1: as the word is taken in, one step later"""


def usual_places(model: Transformer) -> list[Place]:
    """All heads of one layer."""
    layers = len(model.decoder)
    layer, after = (layers // 2 - 1, 1) if layers >= DEEP else (layers - 1, 0)
    return [Place(layer, head, after) for head in range(model.config.heads)]


def write_places(places: Sequence[Place]) -> list[dict[str, int]]:
    """As a model's manifest has them; layers and heads are counted from 1."""
    return [{"layer": layer + 1, "head": head + 1, "after": after} for layer, head, after in places]


def read_places(about: Mapping[str, Any], model: Transformer) -> list[Place]:
    """The places that a model's manifest names, or the usual ones."""
    try:
        places = [Place(one["layer"] - 1, one["head"] - 1, one["after"]) for one in about.get("alignment", [])]
    except (TypeError, KeyError):
        places = [Place(-1, -1, 0)]
    known = range(len(model.decoder)), range(model.config.heads), (0, 1)
    if any(part not in there for place in places for part, there in zip(place, known)):
        raise DataError(f"the model's manifest has {about['alignment']} for alignment, which are no heads of it")
    return places or usual_places(model)


def attention_shares(
    model: Transformer, pairs: Sequence[Pair], places: Sequence[Place] = ()
) -> list[Float[np.ndarray, "target source"]]:
    """For each pair, given as tokens with their ends, how much each target token looks at each source token.

    It is the mean over some heads.
    """
    shares: list[np.ndarray] = [np.empty((0, 0), np.float32)] * len(pairs)
    places = places or usual_places(model)
    for number, layers in _look(model, pairs):
        steps = len(pairs[number][1])
        parts = [layers[layer][head, after : after + steps] for layer, head, after in places]
        shares[number] = torch.stack(parts).float().mean(0).cpu().numpy()
    return shares


@torch.inference_mode()
def _look(
    model: Transformer, pairs: Sequence[Pair]
) -> Iterator[tuple[int, list[Float[torch.Tensor, "heads step source"]]]]:
    """Each pair's number and the decoder's attention to the source, layer by layer."""
    for numbers in cut_batches([len(target) for _, target in pairs], TOKENS):
        source, source_offsets = make_row([pairs[number][0] for number in numbers], model.device)
        # The whole target goes in, so that there is a step after its last word.
        row, offsets = make_row([np.concatenate(([BEGIN], pairs[number][1])) for number in numbers], model.device)
        seen: list[Weights] = []
        memory = model.encode(source, source_offsets)
        model.decode(row, offsets, memory, source_offsets, cross_weights=seen)
        for place, number in enumerate(numbers):
            yield number, [layer[place] for layer in seen]


def find_places(model: Transformer, pairs: Sequence[Pair], subwords: Mapping[Any, Subwords]) -> list[Place]:
    """The heads whose mean agrees best with what the model needs; none, if there are too few words to tell."""
    longest = min(LENGTH, model.config.max_positions - 1)
    pairs = [pair for pair in pairs if min(map(len, pair)) > 1 and max(map(len, pair)) <= longest][:PAIRS]
    own = subwords["source"], subwords["target"]
    source, target = (
        [number_words(side.pieces(side.open(pair[place]))) for pair in pairs] for place, side in enumerate(own)
    )
    sides = list(zip(source, target))
    needed = _find_needed(model, pairs, sides, own[0])
    if sum(map(len, needed)) < LEAST:
        return []
    places = [Place(*each) for each in product(range(len(model.decoder)), range(model.config.heads), (0, 1))]
    table, wanted = _tabulate(model, pairs, sides, needed)
    # The best, and then what makes it better.
    chosen: list[int] = []
    agreed = 0
    while len(chosen) < MOST:
        right = ((table + table[:, :, chosen].sum(2, keepdims=True)).argmax(1) == wanted[:, None]).sum(0)
        if right.max() <= agreed:
            break
        chosen.append(int(right.argmax()))
        agreed = int(right.max())
    return [places[place] for place in chosen]


def _find_needed(
    model: Transformer, pairs: Sequence[Pair], sides: Sequence[tuple[np.ndarray, np.ndarray]], subwords: Subwords
) -> list[Links]:
    """For target words, the source word without which they are the least probable, where it is needed at all."""
    asked: list[Pair] = []
    for (source, target), (words, _) in zip(pairs, sides):
        asked.append((source, target))
        left = (subwords.open(source)[words != word].tolist() for word in range(int(words[-1]) + 1))
        asked += [(np.array(subwords.close(tokens)), target) for tokens in left]
    scores = iter(score_pairs(model, asked))
    needed: list[Links] = []
    for source, target in sides:
        whole = next(scores)[:-1]
        lost = np.zeros((int(source[-1]) + 1, int(target[-1]) + 1))
        for word in lost:
            np.add.at(word, target, whole - next(scores)[:-1])
        best = lost.argmax(0)
        needed.append([(int(best[word]), word) for word in range(len(best)) if lost[best[word], word] > LOST])
    return needed


def _tabulate(
    model: Transformer, pairs: Sequence[Pair], sides: Sequence[tuple[np.ndarray, np.ndarray]], needed: Sequence[Links]
) -> tuple[Float[np.ndarray, "link word place"], Int[np.ndarray, " link"]]:
    """For all links, how much each place looks at each word of the source; and which of them is the right one."""
    widest = max(int(words[-1]) + 1 for words, _ in sides)
    tables: list[np.ndarray] = []
    wanted: list[int] = []
    for number, layers in _look(model, pairs):
        looks = torch.stack(layers).float().cpu().numpy()
        words, said = sides[number]
        for source, target in needed[number]:
            steps = np.flatnonzero(said == target)
            # By layer, by head, and as the word is said or taken in.
            weights = np.stack([looks[:, :, steps + after, : len(words)].sum(2) for after in (0, 1)], 2)
            table = np.zeros((widest, weights[..., 0].size))
            np.add.at(table, words, weights.reshape(-1, len(words)).T)
            tables.append(table)
            wanted.append(source)
    return np.stack(tables), np.array(wanted)


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


def match_unknown(shares: Float[np.ndarray, "target source"], source: Tokens, target: Tokens) -> list[int]:
    """For each unknown token of a target the unknown one of its source, counted among these, that it comes from.

    The one that it looks at most, where each is taken once as long as there are others.
    """
    table = shares[np.flatnonzero(target == UNKNOWN)][:, np.flatnonzero(source == UNKNOWN)]
    chosen = np.full(len(table), -1)
    while (chosen < 0).any():
        left = table.copy()
        left[chosen >= 0] = -1.0
        if not {*range(table.shape[1])} <= {*chosen}:
            left[:, chosen[chosen >= 0]] = -1.0
        row, column = np.unravel_index(left.argmax(), left.shape)
        chosen[row] = column
    return chosen.tolist()


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
