"""The model on padded sentences, in two parts that other runtimes can take: an encoder and a decoder step.

The model's own layers compute everything; only the layout of the sentences differs. The encoder returns the keys and
values that each decoder layer attends to. A step takes one token of every hypothesis with the keys and values of all
tokens before it, and returns the logits of the next token and the keys and values with this token's appended.

Legend of shapes: `sentences` of at most `source` tokens, `beam` hypotheses of each, `past` tokens in each so far.
"""

from copy import copy
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transduce.model.attention import MultiHeadAttention, attend
from transduce.model.layers import DecoderLayer, EncoderLayer
from transduce.model.positions import rotate
from transduce.model.transformer import Transformer


class Encoder(nn.Module):
    """Turns padded source tokens and their lengths into keys and values for every decoder layer."""

    def __init__(self, model: Transformer):
        super().__init__()
        without = ["decoder", "decoder_norm", "output", "target_positions"]
        self.model = _without(model, *without, *(() if model.config.tie == "all" else ["embedding"]))
        self.cross = nn.ModuleList(layer.cross_attention for layer in model.decoder if isinstance(layer, DecoderLayer))

    def forward(
        self, source: Int[Tensor, "sentences source"], lengths: Int[Tensor, " sentences"]
    ) -> tuple[Float[Tensor, "layers sentences heads source d_k"], Float[Tensor, "layers sentences heads source d_v"]]:
        positions = torch.arange(source.shape[1])
        mask = _own_places(positions, lengths)
        turn = self.model.turn(positions)
        x = self.model.embed(source, positions, "source")
        for layer in self.model.encoder:
            assert isinstance(layer, EncoderLayer)
            x = layer.self_residual(x, partial(_attend_self, layer.self_attention, mask, turn))
            x = layer.feed_forward_residual(x, layer.feed_forward)
        memory = self.model.encoder_norm(x)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for attention in self.cross:
            assert isinstance(attention, MultiHeadAttention)
            key, value = attention.project_memory(memory)
            keys.append(key.transpose(1, 2))
            values.append(value.transpose(1, 2))
        return torch.stack(keys), torch.stack(values)


class DecoderStep(nn.Module):
    """Turns one token of every hypothesis into the logits of the next."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = _without(model, "encoder", "encoder_norm", "source_embedding", "source_positions")

    def forward(
        self,
        tokens: Int[Tensor, "sentences beam"],
        lengths: Int[Tensor, " sentences"],
        memory_keys: Float[Tensor, "layers sentences heads source d_k"],
        memory_values: Float[Tensor, "layers sentences heads source d_v"],
        keys: Float[Tensor, "layers sentences beam heads past d_k"],
        values: Float[Tensor, "layers sentences beam heads past d_v"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits, and the keys and values with this token's appended."""
        past = keys.shape[-2]
        position = torch.arange(past, past + 1)
        mask = _own_places(torch.arange(memory_keys.shape[-2]), lengths)
        turn = self.model.turn(position)
        x = self.model.embed(tokens, position, "target")
        new_keys: list[Tensor] = []
        new_values: list[Tensor] = []
        for number, layer in enumerate(self.model.decoder):
            assert isinstance(layer, DecoderLayer)

            def attend_self(
                x: Tensor, attention: MultiHeadAttention = layer.self_attention, at: int = number
            ) -> Tensor:
                query, key, value = attention.project(x)  # (sentences, beam, heads, d)
                if turn is not None:
                    query, key = rotate(query, turn), rotate(key, turn)
                new_keys.append(torch.cat((keys[at], key[..., None, :]), -2))
                new_values.append(torch.cat((values[at], value[..., None, :]), -2))
                query, key, value = (part.flatten(0, 1) for part in (query[..., None, :], new_keys[at], new_values[at]))
                heads = attend(query, key, value, attention.score)
                return attention.combine(heads.squeeze(-2).unflatten(0, tokens.shape))

            def attend_memory(
                x: Tensor, attention: MultiHeadAttention = layer.cross_attention, at: int = number
            ) -> Tensor:
                # All hypotheses of a sentence are queries to the same keys.
                query = attention.project_query(x).transpose(1, 2)
                heads = attend(query, memory_keys[at], memory_values[at], attention.score, mask=mask)
                return attention.combine(heads.transpose(1, 2))

            x = layer.cross_residual(layer.self_residual(x, attend_self), attend_memory)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        return self.model.project(self.model.decoder_norm(x)), torch.stack(new_keys), torch.stack(new_values)


def _attend_self(
    attention: MultiHeadAttention, mask: Tensor, turn: Tensor | None, x: Float[Tensor, "sentences source d_model"]
) -> Float[Tensor, "sentences source d_model"]:
    query, key, value = attention.project(x)
    if turn is not None:
        query, key = rotate(query, turn), rotate(key, turn)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    heads = attend(query, key, value, attention.score, mask=mask)
    return attention.combine(heads.transpose(1, 2))


def _own_places(
    places: Int[Tensor, " source"], lengths: Int[Tensor, " sentences"]
) -> Bool[Tensor, "sentences 1 1 source"]:
    return (places < lengths[:, None])[:, None, None, :]


def _without(model: Transformer, *names: str) -> Transformer:
    """Return the model without the named parts, which are not used but would be exported."""
    kept = copy(model)
    kept._modules = {name: module for name, module in model._modules.items() if name not in names}
    return kept
