"""The settings of the model, its training and its search, with the paper's values as defaults."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from transduce.strict import Settings


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Settings):
    """The sizes of the Transformer (section 3, Table 3)."""

    section: ClassVar[str] = "model"

    vocabulary: int = 37_000
    """subwords shared by source and target (section 5.1)"""
    layers: int = 6
    """layers of the encoder, and as many of the decoder: N"""
    d_model: int = 512
    """width of the embeddings and of every sub-layer's output"""
    d_ff: int = 2048
    """inner width of the feed-forward networks (section 3.3)"""
    heads: int = 8
    """attention heads: h"""
    d_k: int | None = None
    """width of a head's queries and keys; off: d_model / heads"""
    d_v: int | None = None
    """width of a head's values; off: d_model / heads"""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """how positions are encoded (section 3.5; learned is Table 3, row E)"""
    max_positions: int = 1024
    """longest sentence learned positions can hold; sinusoidal positions do not use it"""
    dropout: float = 0.1
    """dropout on every sub-layer's output and on the embeddings with their positions (section 5.4)"""

    def head_widths(self) -> tuple[int, int]:
        """Return d_k and d_v in force: as given, or d_model / heads (section 3.2.2)."""
        share = self.d_model // self.heads
        return self.d_k or share, self.d_v or share

    def parameters(self) -> int:
        """Count the model's parameters; source, target and output share one embedding matrix (section 3.4)."""
        d_k, d_v = self.head_widths()
        # W^Q and W^K are d_model × h·d_k, W^V and W^O are d_model × h·d_v; no biases, as in the paper's equations.
        attention = 2 * self.d_model * self.heads * (d_k + d_v)
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        norm = 2 * self.d_model
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        embedding = self.vocabulary * self.d_model
        positions = 2 * self.max_positions * self.d_model if self.positions == "learned" else 0
        return embedding + positions + self.layers * (encoder_layer + decoder_layer)

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "vocabulary", "layers", "d_model", "d_ff", "heads", "d_k", "d_v", "max_positions")
        yield from self.fraction("dropout")
        if self.d_model < 1 or self.heads < 1:
            return
        if self.d_model % self.heads and None in (self.d_k, self.d_v):
            divisors = [number for number in range(1, self.d_model + 1) if self.d_model % number == 0]
            shown = sum(number < self.heads for number in divisors) + 1
            remedy = ", ".join(map(str, divisors[:shown])) + (", …" if shown < len(divisors) else "")
            yield f"model.heads = {self.heads} does not divide model.d_model = {self.d_model}; use {remedy}"
        if self.d_model % 2 and self.positions == "sinusoidal":
            yield (
                f"model.d_model = {self.d_model} is odd, and sinusoidal positions are pairs of sine and cosine; "
                f'use {self.d_model + 1}, or model.positions = "learned"'
            )


@dataclass(frozen=True, kw_only=True)
class BatchConfig(Settings):
    """How sentence pairs are put into batches (section 5.1)."""

    section: ClassVar[str] = "batch"

    source_tokens: int = 25_000
    """most source tokens in a batch"""
    target_tokens: int = 25_000
    """most target tokens in a batch"""
    parts: int = 8
    """parts a batch is dealt out in to processes and accumulation steps"""
    similar_lengths: bool = True
    """whether sentences of similar length are batched together"""
    sentences: int | None = None
    """most sentences in a batch; off: a quarter of the larger budget"""
    subword_dropout: float = 0.0
    """how often a merge of subwords is passed over (BPE-dropout), so that words are split anew each time"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "source_tokens", "target_tokens", "parts", "sentences")
        yield from self.fraction("subword_dropout")
        if self.parts < 1:
            return
        for name in ("source_tokens", "target_tokens"):
            tokens = getattr(self, name)
            if tokens > 0 and tokens % self.parts:
                below, above = tokens // self.parts * self.parts, -(-tokens // self.parts) * self.parts
                remedy = f"{below} or {above}" if below else f"{above}"
                yield f"batch.{name} = {tokens} does not divide into batch.parts = {self.parts}; use {remedy}"
        if self.sentences is not None and 0 < self.sentences < self.parts:
            yield (
                f"batch.sentences = {self.sentences} leaves some of batch.parts = {self.parts} empty; "
                f"use {self.parts} or more"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Settings):
    """How the model is trained (section 5)."""

    section: ClassVar[str] = "training"

    steps: int = 100_000
    """optimiser steps (section 5.2)"""
    warmup_steps: int = 4000
    """steps over which the learning rate rises (equation 3)"""
    beta1: float = 0.9
    """Adam's decay of the mean gradient (section 5.3)"""
    beta2: float = 0.98
    """Adam's decay of the mean squared gradient (section 5.3)"""
    epsilon: float = 1e-9
    """Adam's guard against division by zero (section 5.3)"""
    label_smoothing: float = 0.1
    """share of the target's probability spread over the vocabulary (section 5.4)"""
    average_checkpoints: int = 5
    """last checkpoints averaged into the final model (section 6.1)"""
    checkpoint_minutes: float = 10.0
    """minutes between checkpoints (section 6.1)"""
    seed: int = 1
    """seed of the initial weights, the order of batches and dropout"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "steps", "warmup_steps", "average_checkpoints")
        yield from self.fraction("beta1", "beta2", "label_smoothing")
        yield from self.above(0, "epsilon", "checkpoint_minutes")
        yield from self.at_least(0, "seed")


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Settings):
    """How translations are searched for (section 6.1)."""

    section: ClassVar[str] = "search"

    beam: int = 4
    """hypotheses kept at each step; 1 is greedy search"""
    alpha: float = 0.6
    """strength of the length penalty; 0 turns it off"""
    extra_tokens: int = 50
    """at most this many tokens more than the input"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "beam")
        yield from self.at_least(0, "alpha", "extra_tokens")


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """All settings of a model: its sizes, batches, training and search."""

    model: ModelConfig = field(default_factory=ModelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
