"""Forced decoding: the log-probability of translations that are given (teacher forcing)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN

LOGITS = 1 << 25  # logits that may be in memory at once

Tokens = Int[np.ndarray, " tokens"]
Pair = tuple[Tokens, Tokens]


@torch.inference_mode()
def score_pairs(model: Transformer, pairs: Sequence[Pair]) -> list[Float[np.ndarray, " target"]]:
    """The log-probability of each target's tokens, given its source and the tokens before; both with their ends."""
    scores: list[np.ndarray] = [np.empty(0, np.float32)] * len(pairs)
    for numbers in cut_batches([len(target) for _, target in pairs], LOGITS // model.config.vocabulary):
        source, source_offsets = make_row([pairs[number][0] for number in numbers], model.device)
        targets = [np.asarray(pairs[number][1], np.int32) for number in numbers]
        row, offsets = make_row([np.concatenate(([BEGIN], target[:-1])) for target in targets], model.device)
        logits = model(source, source_offsets, row, offsets)
        said = torch.from_numpy(np.concatenate(targets).astype(np.int64)).to(model.device)
        found = logits.float().log_softmax(-1).gather(1, said[:, None]).flatten().cpu().numpy()
        for number, part in zip(numbers, np.split(found, np.cumsum([len(target) for target in targets])[:-1])):
            scores[number] = part
    return scores


def make_row(sentences: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Sentences in one row, and their offsets."""
    row = torch.from_numpy(np.concatenate(sentences).astype(np.int32)).to(device)
    return row, torch.from_numpy(np.cumsum([0, *map(len, sentences)], dtype=np.int32)).to(device)


def cut_batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Cut numbered sentences, the longest first, into batches of at most so many tokens, or one sentence."""
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
