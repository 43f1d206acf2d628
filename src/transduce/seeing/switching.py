"""Switching heads off: they add nothing, and the rest of the model stays as it is."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from transduce.errors import UsageError
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import DecoderLayer, EncoderLayer
from transduce.model.transformer import Transformer
from transduce.seeing.kinds import Kind


class Head(NamedTuple):
    """One head of a model; layer and head are counted from 0."""

    kind: Kind
    layer: int
    head: int


def all_heads(model: Transformer) -> list[Head]:
    """Return every head of a model: the encoder's, the decoder's own, and those that attend to the encoder."""
    encoder_layers, decoder_layers = model.config.stacks()
    stacks: tuple[tuple[Kind, int], ...] = (
        ("encoder", encoder_layers),
        ("decoder", decoder_layers),
        ("cross", decoder_layers),
    )
    return [
        Head(kind, layer, head)
        for kind, layers in stacks
        for layer in range(layers)
        for head in range(model.config.heads)
    ]


def find_head(model: Transformer, name: str) -> Head:
    """Return a head by its name: cross.1.2 is the second head of the first layer."""
    found = {f"{head.kind}.{head.layer + 1}.{head.head + 1}": head for head in all_heads(model)}
    if name not in found:
        raise UsageError(f"{name} is not a head of this model; its heads are {next(iter(found))} to {[*found][-1]}")
    return found[name]


def attention_of(model: Transformer, kind: Kind, layer: int) -> MultiHeadAttention:
    """Return the attention module of one kind and layer."""
    if kind == "encoder":
        found = model.encoder[layer]
        assert isinstance(found, EncoderLayer)
        return found.self_attention
    found = model.decoder[layer]
    assert isinstance(found, DecoderLayer)
    return found.self_attention if kind == "decoder" else found.cross_attention


@contextmanager
def switched_off(model: Transformer, heads: Iterable[Head]) -> Iterator[None]:
    """Switch heads off inside the block; afterwards the weights are restored bit for bit.

    A head reaches the rest of the model only through its own columns of W^O, so zeros there switch it off.
    """
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        with torch.no_grad():
            for kind, layer, head in heads:
                attention = attention_of(model, kind, layer)
                width = attention.shape()[2]
                columns = attention.output[:, head * width : (head + 1) * width]
                kept.append((columns, columns.clone()))
                columns.zero_()
        yield
    finally:
        with torch.no_grad():
            for columns, before in reversed(kept):  # a head named twice was already zero the second time
                columns.copy_(before)
