"""Split our weights into the parts that other toolkits have, without changing what the model computes.

This is `rewrite.py` in reverse. Attention is split into its four products, with zeros for biases that ours lacks; heads
narrower than theirs are padded with zeros; another scale of the scores goes into the queries; another order of sines
and cosines is given to every weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from transduce.config import ModelConfig
from transduce.interop.rewrite import POSITIONS, Linear, SineOrder, reorder
from transduce.model.positions import sinusoids
from transduce.model.transformer import Transformer


@dataclass(frozen=True)
class AttentionParts:
    """The four products of multi-head attention, with heads side by side, and the norm of its sub-layer."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    norm: Linear


@dataclass(frozen=True)
class Layer:
    """A layer of the encoder, or of the decoder, which also attends to the encoder."""

    self_attention: AttentionParts
    cross_attention: AttentionParts | None
    inner: Linear
    outer: Linear
    norm: Linear


@dataclass(frozen=True)
class Parts:
    """A whole model."""

    source: Tensor
    """the embeddings of the source; the same object as `target` if they are one matrix"""
    target: Tensor
    output: Tensor
    """the matrix of the logits; the same object as `target` if they are one"""
    bias: Tensor
    positions: tuple[Tensor, Tensor] | None
    """learned, of source and target"""
    encoder: list[Layer]
    decoder: list[Layer]
    encoder_norm: Linear | None
    decoder_norm: Linear | None

    def stacks(self) -> Iterator[tuple[str, list[Layer], Linear | None]]:
        """Yield both stacks: name, layers, and the norm after them."""
        yield "encoder", self.encoder, self.encoder_norm
        yield "decoder", self.decoder, self.decoder_norm


def take_apart(model: Transformer, width: int, order: SineOrder = "turns") -> Parts:
    """Return the model's parts, with heads of this width for queries, keys and values."""
    config = model.config
    weights = {name: weight.detach().float().cpu() for name, weight in model.named_parameters()}
    if order == "halves":
        steps = torch.arange(config.d_model)
        places = torch.cat((steps[0::2], steps[1::2]))  # all sines, then all cosines
        weights = {name: reorder(name, weight, places) for name, weight in weights.items()}
    layers, decoder_layers = config.stacks()
    target = weights["embedding.weight"]
    bias = weights.get("output_bias")
    learned = config.positions == "learned"
    return Parts(
        source=target if config.tie == "all" else weights["source_embedding.weight"],
        target=target,
        output=weights["output.weight"] if config.tie == "none" else target,
        bias=torch.zeros(config.vocabulary) if bias is None else bias,
        positions=(weights["source_positions.weight"], weights["target_positions.weight"]) if learned else None,
        encoder=[_layer(weights, config, f"encoder.{number}", width) for number in range(layers)],
        decoder=[_layer(weights, config, f"decoder.{number}", width) for number in range(decoder_layers)],
        encoder_norm=_linear(weights, "encoder_norm") if config.norm == "pre" else None,
        decoder_norm=_linear(weights, "decoder_norm") if config.norm == "pre" else None,
    )


def position_tables(parts: Parts, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Return what is added to the embeddings of source and target: learned positions, or the first sinusoids."""
    if parts.positions:
        return parts.positions
    table = sinusoids(torch.arange(POSITIONS), config.d_model)
    return table, table


def longest_known(config: ModelConfig) -> int:
    """Return how many positions an export with tables has."""
    return config.max_positions if config.positions == "learned" else POSITIONS


def _layer(weights: dict[str, Tensor], config: ModelConfig, name: str, width: int) -> Layer:
    cross = _attention(weights, config, name, "cross", width) if name.startswith("decoder") else None
    return Layer(
        self_attention=_attention(weights, config, name, "self", width),
        cross_attention=cross,
        inner=_linear(weights, f"{name}.feed_forward.inner"),
        outer=_linear(weights, f"{name}.feed_forward.outer"),
        norm=_linear(weights, f"{name}.feed_forward_residual.norm"),
    )


def _attention(weights: dict[str, Tensor], config: ModelConfig, layer: str, kind: str, width: int) -> AttentionParts:
    name, heads = f"{layer}.{kind}_attention", config.heads
    d_k, d_v = config.head_widths()
    query, key, value = weights[f"{name}.projection"].split((heads * d_k, heads * d_k, heads * d_v))
    query_bias = weights.get(f"{name}.query_bias", query.new_zeros(len(query)))
    output_bias = weights.get(f"{name}.output_bias", query.new_zeros(config.d_model))
    # Other toolkits divide the scores by the square root of this width.
    if config.attention == "unscaled" or d_k != width:
        factor = (width if config.attention == "unscaled" else width / d_k) ** 0.5
        query, query_bias = query * factor, query_bias * factor
    output = weights[f"{name}.output"]
    return AttentionParts(
        query=Linear(_widen(query, heads, width), _widen(query_bias, heads, width)),
        key=Linear(_widen(key, heads, width), query.new_zeros(heads * width)),
        value=Linear(_widen(value, heads, width), query.new_zeros(heads * width)),
        output=Linear(_widen(output.T, heads, width).T.contiguous(), output_bias),
        norm=_linear(weights, f"{layer}.{kind}_residual.norm"),
    )


def _widen(rows: Tensor, heads: int, width: int) -> Tensor:
    """Pad each head's rows with zeros up to the width."""
    split = rows.unflatten(0, (heads, -1))
    missing = width - split.shape[1]
    return functional.pad(split, (*(0, 0) * (split.ndim - 2), 0, missing)).flatten(0, 1) if missing else rows


def _linear(weights: dict[str, Tensor], name: str) -> Linear:
    return Linear(weights[f"{name}.weight"], weights[f"{name}.bias"])
