"""A model's attention weights, of all three kinds (section 3.2.3), and its predictions at each step.

They come from the model's own plain path; nothing is computed a second way. A pair is a source and a target as tokens,
end marks included. The decoder reads the begin mark and the target without its end; at step i it predicts target[i].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from transduce.config import ModelConfig
from transduce.decoding.force import Pair, cut_batches, make_row
from transduce.errors import DataError
from transduce.model.attention import Weights
from transduce.model.transformer import Transformer
from transduce.seeing.kinds import Kind
from transduce.text.subwords import BEGIN

WEIGHTS = 1 << 24  # about how many weights of a batch may be in memory at once

Layers = list[Float[np.ndarray, "heads query key"]]


@dataclass(frozen=True)
class Attention:
    """One pair's attention weights, one array per layer; every row is a distribution over the keys."""

    encoder: Layers
    """self-attention of the source"""
    decoder: Layers
    """self-attention of the decoder's input, never ahead: row i and column i are the token read at step i"""
    cross: Layers
    """attention to the source: row i is the step that predicts target[i]"""

    def of(self, kind: Kind) -> Layers:
        """Return the layers of one kind."""
        return getattr(self, kind)


@dataclass(frozen=True)
class Looked:
    """A model's attention and predictions for one pair."""

    attention: Attention
    log_probabilities: Float[np.ndarray, " target"]
    """of each target token, given those before it"""
    rivals: Int[np.ndarray, "target rivals"]
    """the most probable tokens at each step, best first; the target's own may be among them"""
    rival_scores: Float[np.ndarray, "target rivals"]
    """their log-probabilities"""


@torch.inference_mode()
def look(model: Transformer, pairs: Sequence[Pair], rivals: int = 0) -> Iterator[tuple[int, Looked]]:
    """Yield each pair's index and the model's results, with the `rivals` best tokens of each step, batch by batch."""
    _refuse_long(model.config, pairs)
    encoder_layers, decoder_layers = model.config.stacks()
    rivals = min(rivals, model.config.vocabulary)
    tables = model.config.heads * (encoder_layers + 2 * decoder_layers)
    sizes = [tables * max(len(source), len(target)) ** 2 for source, target in pairs]
    for numbers in cut_batches(sizes, WEIGHTS):
        source, source_offsets = make_row([pairs[number][0] for number in numbers], model.device)
        targets = [np.asarray(pairs[number][1]) for number in numbers]
        row, offsets = make_row([np.concatenate(([BEGIN], target[:-1])) for target in targets], model.device)
        encoder: list[Weights] = []
        decoder: list[Weights] = []
        cross: list[Weights] = []
        memory = model.encode(source, source_offsets, weights=encoder)
        states = model.decode(row, offsets, memory, source_offsets, weights=decoder, cross_weights=cross)
        first = 0
        for place, (number, target) in enumerate(zip(numbers, targets)):
            scores = model.project(states[first : first + len(target)]).float().log_softmax(-1)
            first += len(target)
            said = torch.from_numpy(target.astype(np.int64)).to(scores.device)
            values, tokens = scores.topk(rivals)
            yield (
                number,
                Looked(
                    Attention(*(_layers_of(layers, place) for layers in (encoder, decoder, cross))),
                    scores.gather(1, said[:, None]).flatten().cpu().numpy(),
                    tokens.cpu().numpy(),
                    values.cpu().numpy(),
                ),
            )


def _refuse_long(config: ModelConfig, pairs: Sequence[Pair]) -> None:
    longest = max((max(map(len, pair)) for pair in pairs), default=0)
    if config.positions == "learned" and longest > config.max_positions:
        raise DataError(
            f"a sentence has {longest:,} tokens, but the model has learned positions for only {config.max_positions:,} "
            "(model.max_positions); leave it out"
        )


def _layers_of(layers: Sequence[Weights], sentence: int) -> Layers:
    return [weights[sentence].float().cpu().numpy() for weights in layers]
