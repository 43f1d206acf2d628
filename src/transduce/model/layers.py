"""The layers of the encoder and the decoder (sections 3.1 and 3.3).

A block is a sub-layer with its residual connection and norm. On NVIDIA GPUs our own kernels compute a whole block and
its gradient where they can; the code here is the reference that they must match.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from transduce.config import ModelConfig
from transduce.model.attention import MultiHeadAttention, Spans, Weights
from transduce.model.device import has_kernels

if TYPE_CHECKING:  # Triton is not installed everywhere
    from transduce.kernels.blocks import Around


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (equation 2), or with another activation in the middle."""

    dropout: nn.Dropout
    inner: nn.Linear
    outer: nn.Linear

    def __init__(self, d_model: int, d_ff: int, activation: Literal["relu", "gelu", "silu", "swiglu"], dropout: float):
        super().__init__()
        self.activation, self.dropout = activation, nn.Dropout(dropout)
        # SwiGLU (Shazeer 2020) has a second inner matrix, whose output gates the first's.
        self.inner = nn.Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def reset_parameters(self) -> None:
        """Draw the matrices as Glorot and Bengio (2010) do, and set the biases to 0."""
        for weight in (*self.inner.weight.split(self.outer.in_features), self.outer.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Float[Tensor, "tokens d_model"]) -> Float[Tensor, "tokens d_model"]:
        inner = self.inner(x)
        match self.activation:
            case "relu":
                inner = functional.relu(inner)
            case "gelu":
                inner = functional.gelu(inner)
            case "silu":
                inner = functional.silu(inner)
            case "swiglu":
                inner, gate = inner.chunk(2, -1)
                inner = functional.silu(inner) * gate
        return self.outer(self.dropout(inner))


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) (section 3.1), or with the norm before the sub-layer."""

    norm: nn.LayerNorm
    dropout: nn.Dropout
    pre: bool

    def __init__(self, d_model: int, dropout: float, norm: Literal["post", "pre"], epsilon: float = 1e-5):
        super().__init__()
        self.norm, self.dropout, self.pre = nn.LayerNorm(d_model, epsilon), nn.Dropout(dropout), norm == "pre"

    def forward(
        self, x: Float[Tensor, "tokens d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "tokens d_model"]:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))

    def around(self) -> "Around":
        """Return the norm and dropout around the sub-layer, for our own kernels."""
        from transduce.kernels.blocks import Around

        dropout = self.dropout.p if self.training else 0.0
        return Around(self.norm.weight, self.norm.bias, self.norm.eps, self.pre, dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network."""

    self_attention: MultiHeadAttention
    self_residual: Residual
    feed_forward: FeedForward
    feed_forward_residual: Residual

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = make_attention(config, config.stacks()[0])
        self.self_residual = make_residual(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = make_residual(config)

    def forward(
        self, x: Float[Tensor, "source d_model"], spans: Spans, turn: Tensor | None, weights: list[Weights] | None
    ) -> Float[Tensor, "source d_model"]:
        x = attention_block(x, None, self.self_attention, self.self_residual, spans, turn=turn, weights=weights)
        return feed_forward_block(x, self.feed_forward, self.feed_forward_residual)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then a feed-forward network."""

    self_attention: MultiHeadAttention
    self_residual: Residual
    cross_attention: MultiHeadAttention
    cross_residual: Residual
    feed_forward: FeedForward
    feed_forward_residual: Residual

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = make_attention(config, config.stacks()[1])
        self.self_residual = make_residual(config)
        self.cross_attention = make_attention(config, config.stacks()[1])
        self.cross_residual = make_residual(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = make_residual(config)

    def forward(
        self,
        x: Float[Tensor, "target d_model"],
        attend_self: Callable[[Tensor], Tensor],
        attend_memory: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "target d_model"]:
        """Run the layer; its attention blocks are functions, over whole sentences or one token at a time."""
        x = attend_memory(attend_self(x))
        return feed_forward_block(x, self.feed_forward, self.feed_forward_residual)


def can_fuse(x: Tensor) -> bool:
    """Whether our own kernels can compute with this tensor."""
    return x.is_cuda and x.dtype != torch.float64 and _has_kernels(x.device)


_has_kernels = cache(has_kernels)


def attention_block(
    x: Float[Tensor, "query d_model"],
    memory: Float[Tensor, "key d_model"] | None,
    attention: MultiHeadAttention,
    residual: Residual,
    spans: Spans,
    *,
    turn: Float[Tensor, "2 query half"] | None = None,
    weights: list[Weights] | None = None,
) -> Float[Tensor, "query d_model"]:
    """Apply attention over whole sentences, with its residual connection and norm."""
    if weights is None and attention.fits_kernels() and can_fuse(x):
        from transduce.kernels import blocks

        return blocks.attend(
            x,
            memory,
            attention.projection,
            attention.output,
            spans.tiles,
            blocks.Heads(*attention.shape(), attention.dropout if attention.training else 0.0),
            residual.around(),
            turn,
            attention.query_bias,
            attention.output_bias,
        )
    return residual(x, lambda x: attention(x, memory, spans, turn=turn, weights=weights))


def feed_forward_block(
    x: Float[Tensor, "tokens d_model"], feed_forward: FeedForward, residual: Residual
) -> Float[Tensor, "tokens d_model"]:
    """Apply a feed-forward network, with its residual connection and norm."""
    drops = feed_forward.training and feed_forward.dropout.p > 0
    if feed_forward.activation == "relu" and not drops and can_fuse(x):
        from transduce.kernels import blocks

        inner, outer = feed_forward.inner, feed_forward.outer
        return blocks.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, residual.around())
    return residual(x, feed_forward)


def make_attention(config: ModelConfig, depth: int) -> MultiHeadAttention:
    """Make multi-head attention of the configured sizes, for a stack of `depth` layers."""
    d_k, d_v = config.head_widths()
    kind, dropout = config.attention, config.attention_dropout
    return MultiHeadAttention(config.d_model, config.heads, d_k, d_v, kind, dropout, depth, config.biases)


def make_residual(config: ModelConfig) -> Residual:
    """Make a residual connection and its norm, as configured."""
    return Residual(config.d_model, config.dropout, config.norm, config.norm_epsilon)


def make_feed_forward(config: ModelConfig) -> FeedForward:
    """Make a feed-forward network of the configured sizes."""
    return FeedForward(config.d_model, config.d_ff, config.activation, config.feed_forward_dropout)
