"""Search for the most probable translation: greedy, the best token at each step."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transduce.config import ModelConfig
from transduce.decoding.cache import Cache
from transduce.errors import DataError
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD

# Sentences translated together: their sources and the longest translations they may get have so many tokens at most.
BATCH_TOKENS = 1 << 15


@torch.inference_mode()
def greedy(
    model: Transformer,
    source: Int[Tensor, " source"],
    source_offsets: Int[Tensor, " sentences+1"],
    longest: Int[Tensor, " sentences"],
) -> list[np.ndarray]:
    """Translate each sentence token by token, up to its end (left out) or to the longest it may become."""
    memory = model.encode(source, source_offsets)
    capacity = int(longest.max())
    cache = Cache(model, memory, source_offsets, capacity)
    sentences = len(longest)
    outputs = torch.full((sentences, capacity), END, dtype=torch.int32, device=source.device)
    open_rows = torch.arange(sentences, device=source.device)
    tokens = torch.full((sentences,), BEGIN, dtype=torch.int32, device=source.device)
    for step in range(capacity):
        logits = cache.advance(tokens)
        logits[:, [PAD, BEGIN]] = -torch.inf  # never said in training
        tokens = logits.argmax(-1).int()
        outputs[open_rows, step] = tokens
        going = (tokens != END) & (step + 1 < longest[open_rows])
        rows = going.nonzero()[:, 0]
        if len(rows) == 0:
            break
        if len(rows) < len(open_rows):
            cache.select(rows)
            open_rows, tokens = open_rows[rows], tokens[rows]
    return [_until_end(row) for row in outputs.cpu().numpy()]


def greedy_all(model: Transformer, sources: Sequence[np.ndarray | list[int]], extra_tokens: int) -> list[np.ndarray]:
    """Translate any number of sentences, given as tokens with their ends, in batches of similar length."""
    _check_lengths(sources, model.config)
    outputs: list[np.ndarray] = [np.empty(0, np.int32)] * len(sources)
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]), reverse=True)
    first = 0
    while first < len(order):
        many = max(1, BATCH_TOKENS // (2 * len(sources[order[first]]) + extra_tokens))
        chosen = order[first : first + many]
        first += many
        lengths = torch.tensor([len(sources[place]) for place in chosen])
        longest = lengths + extra_tokens
        if model.config.positions == "learned":
            longest = longest.clamp(max=model.config.max_positions)
        row = torch.from_numpy(np.concatenate([sources[place] for place in chosen]).astype(np.int32))
        offsets = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0))).int()
        device = model.device
        translations = greedy(model, row.to(device), offsets.to(device), longest.to(device))
        for place, translation in zip(chosen, translations):
            outputs[place] = translation
    return outputs


def _check_lengths(sources: Sequence[np.ndarray | list[int]], config: ModelConfig) -> None:
    assert all(len(source) for source in sources)  # the shortest sentence is an end
    known = config.max_positions
    long = [number for number, source in enumerate(sources, 1) if len(source) > known]
    if long and config.positions == "learned":
        others = f" (and {len(long) - 1:,} more like it)" if len(long) > 1 else ""
        raise DataError(
            f"sentence {long[0]:,} has {len(sources[long[0] - 1]):,} tokens{others}, and the model has learned "
            f"positions for {known:,} (model.max_positions); split long sentences before translating them"
        )


def _until_end(tokens: np.ndarray) -> np.ndarray:
    ends = np.flatnonzero(tokens == END)
    return tokens[: ends[0]] if len(ends) else tokens
