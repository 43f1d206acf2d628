"""Word alignments: which word of the source each word of a translation comes from, by the decoder's attention.

Some heads attend to the source of the word about to be output, others to that of the word just output, and which heads
do so differs between models. So we use those that agree best with what the model itself needs: at the end of training,
source words of dev sentences are left out one at a time, and each target word is linked to the one without which it
becomes least probable. For models without such a list, such as imported ones, we use the place that Chen et al. (2020)
found best in deep decoders: the third layer of six, at the step that reads a word in; in shallow ones the last layer.
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

TOKENS = 1 << 13  # most target tokens whose attention is in memory at once
DEEP = 4  # from this many layers on, a middle layer is the usual place
# For `find_places`: most pairs, most tokens in a sentence, nats that a target word must lose without a source word to
# be linked to it, fewest links needed, most heads used.
PAIRS, LENGTH, LOST, LEAST, MOST = 24, 40, 1.0, 50, 4

Links = list[tuple[int, int]]  # (source word, target word), counted from 0


class Place(NamedTuple):
    """A head that shows where words come from; layer and head are counted from 0."""

    layer: int
    head: int
    after: int
    """0: its attention at the step that outputs a word; 1: at the next step, which reads that word in"""


def usual_places(model: Transformer) -> list[Place]:
    """Return all heads of one layer: a middle one of a deep decoder, otherwise the last."""
    layers = len(model.decoder)
    layer, after = (layers // 2 - 1, 1) if layers >= DEEP else (layers - 1, 0)
    return [Place(layer, head, after) for head in range(model.config.heads)]


def write_places(places: Sequence[Place]) -> list[dict[str, int]]:
    """Return places as a model's manifest stores them, with layers and heads counted from 1."""
    return [{"layer": layer + 1, "head": head + 1, "after": after} for layer, head, after in places]


def read_places(about: Mapping[str, Any], model: Transformer) -> list[Place]:
    """Return the places that a model's manifest names, or the usual ones."""
    try:
        places = [Place(one["layer"] - 1, one["head"] - 1, one["after"]) for one in about.get("alignment", [])]
    except (TypeError, KeyError):
        places = [Place(-1, -1, 0)]
    known = range(len(model.decoder)), range(model.config.heads), (0, 1)
    if any(part not in there for place in places for part, there in zip(place, known)):
        raise DataError(f"the model's manifest names heads that it does not have: alignment = {about['alignment']}")
    return places or usual_places(model)


def attention_shares(
    model: Transformer, pairs: Sequence[Pair], places: Sequence[Place] = ()
) -> list[Float[np.ndarray, "target source"]]:
    """Return how much each target token attends to each source token, as the mean over `places` (or the usual heads).

    Pairs are tokens with their ends.
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
    """Yield each pair's number and the decoder's attention to the source, layer by layer."""
    for numbers in cut_batches([len(target) for _, target in pairs], TOKENS):
        source, source_offsets = make_row([pairs[number][0] for number in numbers], model.device)
        # The input is the whole target, so that its last token too has a step that reads it in.
        row, offsets = make_row([np.concatenate(([BEGIN], pairs[number][1])) for number in numbers], model.device)
        seen: list[Weights] = []
        memory = model.encode(source, source_offsets)
        model.decode(row, offsets, memory, source_offsets, cross_weights=seen)
        for place, number in enumerate(numbers):
            yield number, [layer[place] for layer in seen]


def find_places(model: Transformer, pairs: Sequence[Pair], subwords: Mapping[Any, Subwords]) -> list[Place]:
    """Return the heads whose mean agrees best with the words the model needs; none if too few words can be linked."""
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
    # Greedily: the best head, then whichever improves the agreement most.
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
    """Link target words to the source word without which they become least probable, if they lose more than LOST."""
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
    """Return how much each place attends to each source word, for all needed links, and the right word of each."""
    widest = max(int(words[-1]) + 1 for words, _ in sides)
    tables: list[np.ndarray] = []
    wanted: list[int] = []
    for number, layers in _look(model, pairs):
        looks = torch.stack(layers).float().cpu().numpy()
        words, said = sides[number]
        for source, target in needed[number]:
            steps = np.flatnonzero(said == target)
            # (layer, head, at the step that outputs the word or the next, source token)
            weights = np.stack([looks[:, :, steps + after, : len(words)].sum(2) for after in (0, 1)], 2)
            table = np.zeros((widest, weights[..., 0].size))
            np.add.at(table, words, weights.reshape(-1, len(words)).T)
            tables.append(table)
            wanted.append(source)
    return np.stack(tables), np.array(wanted)


def align_words(
    shares: Float[np.ndarray, "target source"], source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> Links:
    """Link each target word to the source word it attends to most; pieces are subwords without the ends."""
    source_words, target_words = number_words(source_pieces), number_words(target_pieces)
    if not len(source_words) or not len(target_words):
        return []
    inner = shares[: len(target_words), : len(source_words)]
    table = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    np.add.at(table, (target_words[:, None], source_words[None, :]), inner)
    return sorted((int(best), word) for word, best in enumerate(table.argmax(1)))


def match_unknown(shares: Float[np.ndarray, "target source"], source: Tokens, target: Tokens) -> list[int]:
    """Return for each unknown token of a target the number of the source's unknown token that it comes from.

    That is the one it attends to most; none is used twice before all have been used.
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
    """Return the number of each subword's word; a word begins at the first character after a space."""
    words, spaced = -1, True
    numbers: list[int] = []
    for piece in pieces:
        spaced = spaced or piece.startswith(SPACE)
        if spaced and piece.strip(SPACE):
            words, spaced = words + 1, False
        numbers.append(max(0, words))
        spaced = spaced or piece.endswith(SPACE)
    return np.array(numbers, np.int64)
