"""The settings of the model, its training and its search, with the paper's values as defaults."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from transduce.strict import Settings


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Settings):
    """The architecture of the Transformer (section 3, Table 3)."""

    section: ClassVar[str] = "model"

    vocabulary: int = 37_000
    """subwords shared by source and target (section 5.1), or the target's alone if the source has its own; `train`
    takes the data set's"""
    source_vocabulary: int | None = None
    """subwords of the source if it has its own; off: shared; `train` takes the data set's"""
    layers: int = 6
    """layers of the encoder, and as many of the decoder: N"""
    encoder_layers: int | None = None
    """layers of the encoder alone; off: as many as model.layers"""
    decoder_layers: int | None = None
    """layers of the decoder alone; off: as many as model.layers"""
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
    attention: Literal["scaled", "unscaled", "additive"] = "scaled"
    """how queries are compared with keys: dot products scaled by 1/sqrt(d_k), unscaled, or additive (section 3.2.1)"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """how positions are encoded (section 3.5; learned is Table 3, row E; rotary rotates queries and keys instead)"""
    max_positions: int = 1024
    """longest sentence that learned positions can hold; the other kinds do not use it"""
    norm: Literal["post", "pre"] = "post"
    """layer norm after each sub-layer's sum, as in the paper, or before the sub-layer"""
    norm_epsilon: float = 1e-5
    """added to the variance in every layer norm"""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    """activation in the feed-forward networks (equation 2); swiglu has a third matrix"""
    biases: bool = False
    """biases in attention and on the logits, for imported models; the paper's equations have none"""
    tie: Literal["all", "output", "none"] = "all"
    """which matrices are one: both embeddings and the output (section 3.4), target embedding and output, or none"""
    dropout: float = 0.1
    """dropout on every sub-layer's output and on the sums of embeddings and positions (section 5.4)"""
    attention_dropout: float = 0.0
    """dropout on the attention weights; the paper has none"""
    feed_forward_dropout: float = 0.0
    """dropout inside the feed-forward networks; the paper has none"""

    def stacks(self) -> tuple[int, int]:
        """Return the numbers of encoder and decoder layers in force."""
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers

    def head_widths(self) -> tuple[int, int]:
        """Return d_k and d_v in force: as given, or d_model / heads (section 3.2.2)."""
        share = self.d_model // self.heads
        return self.d_k or share, self.d_v or share

    def encoder_settings(self) -> dict[str, Any]:
        """Return the settings in force that the encoder's weights depend on."""
        names = ("d_model", "d_ff", "heads", "attention", "positions", "norm", "norm_epsilon", "activation", "biases")
        names = (*names, "max_positions") if self.positions == "learned" else names
        d_k, d_v = self.head_widths()
        settings = {name: getattr(self, name) for name in names}
        return {"encoder_layers": self.stacks()[0], **settings, "d_k": d_k, "d_v": d_v}

    def parameters(self) -> int:
        """Count the model's parameters; shared matrices count once (section 3.4)."""
        d_k, d_v = self.head_widths()
        encoder_layers, decoder_layers = self.stacks()
        # W^Q and W^K are d_model × h·d_k, W^V and W^O are d_model × h·d_v.
        attention = 2 * self.d_model * self.heads * (d_k + d_v) + self.heads * d_k * (self.attention == "additive")
        attention += (self.heads * d_k + self.d_model) * self.biases
        inner = 2 * self.d_ff if self.activation == "swiglu" else self.d_ff
        feed_forward = (self.d_model + 1) * inner + (self.d_ff + 1) * self.d_model
        norm = 2 * self.d_model
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        final_norms = 2 * norm if self.norm == "pre" else 0
        source = 0 if self.tie == "all" else self.source_vocabulary or self.vocabulary
        output = self.vocabulary if self.tie == "none" else 0
        embeddings = (self.vocabulary + source + output) * self.d_model + self.vocabulary * self.biases
        positions = 2 * self.max_positions * self.d_model if self.positions == "learned" else 0
        return embeddings + positions + encoder_layers * encoder_layer + decoder_layers * decoder_layer + final_norms

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "vocabulary", "source_vocabulary", "layers", "encoder_layers", "decoder_layers")
        yield from self.at_least(1, "d_model", "d_ff", "heads", "d_k", "d_v", "max_positions")
        yield from self.fraction("dropout", "attention_dropout", "feed_forward_dropout")
        yield from self.above(0, "norm_epsilon")
        if self.d_model < 1 or self.heads < 1:
            return
        shared = None in (self.d_k, self.d_v)  # the heads share d_model
        divided = not shared or self.d_model % self.heads == 0
        if not divided:
            small = [number for number in range(1, math.isqrt(self.d_model) + 1) if self.d_model % number == 0]
            divisors = sorted({*small, *(self.d_model // number for number in small)})
            shown = sum(number < self.heads for number in divisors) + 1
            remedy = ", ".join(map(str, divisors[:shown])) + (", …" if shown < len(divisors) else "")
            yield f"model.heads = {self.heads} does not divide model.d_model = {self.d_model}; use {remedy}"
        d_k = self.head_widths()[0]
        if self.positions == "rotary" and (divided or self.d_k) and d_k > 0 and d_k % 2:
            yield f"model.d_k = {d_k} is odd, and rotary positions turn pairs of numbers; use {d_k + 1}"
        if self.d_model % 2 and self.positions == "sinusoidal":
            step = 2 * self.heads if shared and divided else 2
            even = -(-self.d_model // step) * step
            yield (
                f"model.d_model = {self.d_model} is odd, and sinusoidal positions are pairs of sine and cosine; "
                f'use {even}, or model.positions = "learned"'
            )
        if self.tie == "all" and self.source_vocabulary not in (None, self.vocabulary):
            yield (
                f"model.source_vocabulary = {self.source_vocabulary} is not model.vocabulary = {self.vocabulary}, "
                'and model.tie = "all" shares one matrix; use model.tie = "output"'
            )


@dataclass(frozen=True, kw_only=True)
class BatchConfig(Settings):
    """How sentence pairs are grouped into batches (section 5.1)."""

    section: ClassVar[str] = "batch"

    source_tokens: int = 25_000
    """most source tokens in a batch"""
    target_tokens: int = 25_000
    """most target tokens in a batch"""
    parts: int = 8
    """parts that a batch is cut into, to be shared among processes and accumulation steps"""
    similar_lengths: bool = True
    """batch sentences of similar length together"""
    sentences: int | None = None
    """most sentences in a batch; off: a quarter of the larger token limit"""
    subword_dropout: float = 0.0
    """share of subword merges skipped at random (BPE-dropout), so that words are split anew each time"""

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
    """optimiser steps to train for (section 5.2)"""
    epochs: int | None = None
    """stop after this many passes over the data, unless another limit comes first"""
    tokens: int | None = None
    """stop after this many source and target tokens, unless another limit comes first"""
    patience: int | None = None
    """stop after this many validations in a row without a new best one"""
    schedule: Literal["inverse-sqrt", "linear", "cosine", "constant"] = "inverse-sqrt"
    """how the learning rate falls after the warm-up: as in equation 3, to zero at the first limit (linear, cosine), or
    not at all"""
    warmup_steps: int = 4000
    """steps over which the learning rate rises (equation 3)"""
    peak_rate: float | None = None
    """learning rate at the end of the warm-up; off: (d_model · warmup_steps)^-0.5, as in equation 3"""
    encoder_rate: float = 1.0
    """factor on that rate for the encoder; less than 1 if the encoder has been trained before"""
    optimiser: Literal["adam", "muon"] = "adam"
    """Adam (section 5.3), or Muon for the layers' matrices and Adam for the rest"""
    beta1: float = 0.9
    """decay of Adam's mean gradient (section 5.3)"""
    beta2: float = 0.98
    """decay of Adam's mean squared gradient (section 5.3)"""
    epsilon: float = 1e-9
    """keeps Adam from dividing by zero (section 5.3)"""
    clip: float | None = None
    """largest gradient norm; larger ones are scaled down to it; the paper has no limit"""
    label_smoothing: float = 0.1
    """share of the target's probability spread over the vocabulary (section 5.4)"""
    agreement: float = 0.0
    """how strongly two passes with different dropout must agree (R-Drop, Liang et al. 2021); a step computes both"""
    accumulate: int = 1
    """pieces into which each process splits its batch, computed one after another to save memory"""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """arithmetic of matrix products; weights are always kept in float32; auto: bf16 where it is faster"""
    sharded: bool = False
    """split the weights over the processes (FSDP2), for models too large for one GPU"""
    average_checkpoints: int = 5
    """last checkpoints to average (section 6.1); the final model is their mean, or a checkpoint that is better on the
    dev set"""
    average_decay: float | None = None
    """keep an exponential moving average of the weights with this decay, and validate and save it"""
    checkpoint_minutes: float | None = 10.0
    """minutes between checkpoints (section 6.1); each is validated first"""
    checkpoint_steps: int | None = None
    """steps between checkpoints, instead of minutes"""
    keep_best: int = 1
    """how many of the best checkpoints on the dev set to keep, besides the last ones"""
    best_by: Literal["loss", "bleu", "f1"] = "loss"
    """score that ranks checkpoints on the dev set: (smoothed) loss, greedy BLEU or, for trees, F1"""
    bleu_sentences: int = 1000
    """most dev-set sentences to translate (greedily) for BLEU, or to parse for F1, at each validation; 0: none"""
    not_finite: Literal["stop", "skip"] = "stop"
    """on a loss or gradient that is not finite, stop or skip the update"""
    freeze: tuple[str, ...] = ()
    """names of weights to leave unchanged; * matches anything, as in encoder.*"""
    seed: int = 1
    """seed of the initial weights, the order of batches and dropout"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "steps", "epochs", "tokens", "patience", "warmup_steps", "accumulate")
        yield from self.at_least(1, "average_checkpoints", "checkpoint_steps", "keep_best")
        yield from self.fraction("beta1", "beta2", "label_smoothing", "average_decay")
        yield from self.above(0, "epsilon", "checkpoint_minutes", "peak_rate", "encoder_rate", "clip")
        yield from self.at_least(0, "seed", "bleu_sentences", "agreement")
        if self.checkpoint_minutes is None and self.checkpoint_steps is None:
            yield "training.checkpoint_minutes and training.checkpoint_steps are both off; give one of them"
        if self.best_by != "loss" and self.bleu_sentences == 0:
            yield f'training.best_by = "{self.best_by}" needs translations; use training.bleu_sentences = 1000'
        if self.optimiser == "muon" and self.sharded:
            yield 'training.optimiser = "muon" needs whole matrices; use training.optimiser = "adam"'
        if self.schedule in ("linear", "cosine") and self.warmup_steps >= self.steps:
            yield (
                f"training.warmup_steps = {self.warmup_steps} leaves no steps to fall in; "
                f"use fewer than training.steps = {self.steps}"
            )


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Settings):
    """How the model searches for its output (section 6.1)."""

    section: ClassVar[str] = "search"

    beam: int = 4
    """hypotheses kept at each step; 1 is greedy search"""
    alpha: float = 0.6
    """strength of the length penalty; 0 turns it off"""
    extra_tokens: int = 50
    """how many tokens longer than the input the output may be"""
    max_tokens: int | None = None
    """most tokens in the output, however long the input is"""
    min_tokens: int = 0
    """fewest tokens in the output"""
    n_best: int = 1
    """outputs to return for each sentence, the best first"""
    stop: Literal["exact", "full"] = "exact"
    """when to stop: once no open hypothesis can win (exact), or once as many have ended as the beam holds (full)"""
    no_repeat: int | None = None
    """never output the same sequence of this many tokens twice"""
    repetition_penalty: float = 1.0
    """above 1, tokens already in the output become less probable (Keskar et al. 2019)"""
    word_share: float = 1.0
    """for parsers prepared with leaves = words: weight of the words' log-probabilities; the sentence fixes the words
    anyway"""
    sample: bool = False
    """draw n_best outputs at random instead of searching for the best"""
    temperature: float = 1.0
    """for sampling: below 1 favours probable tokens, above 1 evens out the probabilities"""
    top_k: int | None = None
    """for sampling: draw from this many of the most probable tokens"""
    top_p: float = 1.0
    """for sampling: draw from the most probable tokens that together have this probability"""
    sample_seed: int = 1
    """for sampling: the same seed draws the same outputs"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "beam", "n_best", "max_tokens", "no_repeat", "top_k")
        yield from self.at_least(0, "alpha", "extra_tokens", "min_tokens", "sample_seed")
        yield from self.above(0, "temperature", "repetition_penalty", "top_p", "word_share")
        if self.top_p > 1:
            yield f"search.top_p = {self.top_p} is out of range; use 1 or less"
        if self.n_best > self.beam >= 1 and not self.sample:
            yield f"search.n_best = {self.n_best} is more than search.beam = {self.beam}; use a beam of {self.n_best}"
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            yield f"search.min_tokens = {self.min_tokens} is more than search.max_tokens = {self.max_tokens}"


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """All settings of a model: its sizes, batches, training and search."""

    model: ModelConfig = field(default_factory=ModelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
