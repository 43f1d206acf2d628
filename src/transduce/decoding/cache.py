"""Decoding one token at a time: what was computed for earlier tokens is kept, so that each step costs one token."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.model.attention import MultiHeadAttention, attend
from transduce.model.layers import DecoderLayer
from transduce.model.positions import rotate
from transduce.model.transformer import Transformer


class Cache:
    """The decoder's keys and values of some sentences, and those of the encoder's output they look at."""

    def __init__(
        self,
        model: Transformer,
        memory: Float[Tensor, "source d_model"],
        source_offsets: Int[Tensor, " sentences+1"],
        capacity: int,
    ):
        self.model, self.step = model, 0
        places, self.mask = _dense_places(source_offsets)
        self.memory: list[tuple[Tensor, Tensor]] = []  # (sentences, heads, source, d) of each layer
        self.own: list[tuple[Tensor, Tensor]] = []  # (sentences, heads, capacity, d) of each layer
        for layer in model.decoder:
            assert isinstance(layer, DecoderLayer)
            key, value = (rows[places].transpose(1, 2) for rows in layer.cross_attention.project_memory(memory))
            self.memory.append((key.contiguous(), value.contiguous()))
            sentences, heads = key.shape[:2]
            self.own.append(
                (
                    key.new_empty(sentences, heads, capacity, key.shape[-1]),
                    value.new_empty(sentences, heads, capacity, value.shape[-1]),
                )
            )

    def advance(self, tokens: Int[Tensor, " sentences"]) -> Float[Tensor, "sentences vocabulary"]:
        """Take in one token of each sentence and return the logits of the next."""
        positions = torch.full_like(tokens, self.step)
        turn = self.model.turn(positions)
        x = self.model.embed(tokens, positions, "target")
        for layer, own, memory in zip(self.model.decoder, self.own, self.memory):
            assert isinstance(layer, DecoderLayer)
            attend_self = partial(self._attend_self, layer.self_attention, own, turn)
            x = layer(x, attend_self, partial(self._attend_memory, layer.cross_attention, memory))
        self.step += 1
        return self.model.project(self.model.decoder_norm(x))

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep some sentences, in the order given."""
        self.mask = self.mask[rows]
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]
        self.own = [(key[rows], value[rows]) for key, value in self.own]

    def _attend_self(
        self, attention: MultiHeadAttention, own: tuple[Tensor, Tensor], turn: Tensor | None, x: Tensor
    ) -> Tensor:
        query, key, value = attention.project(x)
        if turn is not None:
            query, key = rotate(query, turn), rotate(key, turn)
        keys, values = own
        keys[:, :, self.step], values[:, :, self.step] = key, value
        seen = slice(self.step + 1)
        heads = attend(query[:, :, None], keys[:, :, seen], values[:, :, seen], attention.score)
        return attention.combine(heads.squeeze(2))

    def _attend_memory(self, attention: MultiHeadAttention, memory: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        query = attention.project_query(x)
        heads = attend(query[:, :, None], *memory, attention.score, mask=self.mask)
        return attention.combine(heads.squeeze(2))


def _dense_places(offsets: Int[Tensor, " sentences+1"]) -> tuple[Tensor, Tensor]:
    """For each sentence a line of places in the row, and where they are its own: (sentences, longest) and a mask."""
    first, lengths = offsets[:-1, None], offsets.diff()
    steps = torch.arange(int(lengths.max()), device=offsets.device)
    inside = steps < lengths[:, None]
    return torch.where(inside, first + steps, first), inside[:, None, None, :]
