"""Forced decoding: the log-probability of given translations (teacher forcing)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN

LOGITS = 1 << 25  # most logits in memory at once

Tokens = Int[np.ndarray, " tokens"]
Pair = tuple[Tokens, Tokens]
Encoded = dict[int, Tensor]  # the encoder's output by the source array's id(); the array must stay alive


@torch.inference_mode()
def score_pairs(
    model: Transformer, pairs: Sequence[Pair], first: Sequence[int] = (), encoded: Encoded | None = None
) -> list[Float[np.ndarray, " target"]]:
    """Return the log-probability of each target's tokens, given its source and the tokens before; both with their ends.

    `first` is the place in each target from which scores are wanted; `encoded` keeps sources encoded between calls.
    """
    scores: list[np.ndarray] = [np.empty(0, np.float32)] * len(pairs)
    for numbers, targets, logits in _follow(model, pairs, first, encoded):
        said = torch.from_numpy(np.concatenate(targets).astype(np.int64)).to(model.device)
        found = logits.float().log_softmax(-1).gather(1, said[:, None]).flatten().cpu().numpy()
        for number, part in zip(numbers, np.split(found, np.cumsum([len(target) for target in targets])[:-1])):
            scores[number] = part
    return scores


@torch.inference_mode()
def find_likely(
    model: Transformer,
    pairs: Sequence[Pair],
    first: Sequence[int],
    many: int,
    less: float,
    encoded: Encoded | None = None,
) -> list[list[list[int]]]:
    """Return the most probable tokens at each place of each target from `first` on, given the tokens before.

    They are at most `many`, none more than `less` nats below the best.
    """
    likely: list[list[list[int]]] = [[]] * len(pairs)
    for numbers, targets, logits in _follow(model, pairs, first, encoded):
        values, found = logits.float().topk(many)
        counts = (values >= values[:, :1] - less).sum(1).tolist()
        rows = iter([row[:count] for row, count in zip(found.tolist(), counts)])
        for number, target in zip(numbers, targets):
            likely[number] = [next(rows) for _ in target]
    return likely


def _follow(
    model: Transformer, pairs: Sequence[Pair], first: Sequence[int], encoded: Encoded | None
) -> Iterator[tuple[list[int], list[Tokens], Tensor]]:
    """Yield pairs in batches: their numbers, their targets from `first` on, and the logits at each token of these.

    A source that several targets of a batch share is encoded once; with `encoded`, once for all calls.
    """
    first = first or [0] * len(pairs)
    lengths = [len(target) - begin for (_, target), begin in zip(pairs, first)]
    for numbers in cut_batches(lengths, LOGITS // model.config.vocabulary):
        known = {} if encoded is None else encoded
        if new := {id(pairs[number][0]): pairs[number][0] for number in numbers if id(pairs[number][0]) not in known}:
            memory = model.encode(*make_row(list(new.values()), model.device))
            known |= zip(new, memory.split([len(each) for each in new.values()]))
        memory = torch.cat([known[id(pairs[number][0])] for number in numbers])
        _, source_offsets = make_row([pairs[number][0] for number in numbers], model.device)
        targets = [np.asarray(pairs[number][1], np.int32) for number in numbers]
        row, offsets = make_row([np.concatenate(([BEGIN], target[:-1])) for target in targets], model.device)
        states = model.decode(row, offsets, memory, source_offsets)
        ends = np.cumsum([len(target) for target in targets])
        asked = [np.arange(end - lengths[number], end) for number, end in zip(numbers, ends)]
        states = states[torch.from_numpy(np.concatenate(asked)).to(model.device)]
        yield numbers, [target[first[number] :] for number, target in zip(numbers, targets)], model.project(states)


def make_row(sentences: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return sentences as one row, and their offsets."""
    row = torch.from_numpy(np.concatenate(sentences).astype(np.int32)).to(device)
    return row, torch.from_numpy(np.cumsum([0, *map(len, sentences)], dtype=np.int32)).to(device)


def cut_batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield batches of sentence numbers, the longest first, with at most this many tokens or one sentence each."""
    batch: list[int] = []
    used = 0
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and used + lengths[number] > tokens:
            yield batch
            batch, used = [], 0
        batch.append(number)
        used += lengths[number]
    if batch:
        yield batch
