"""Attention over rows of sentences without padding (section 3.2).

A row holds all sentences of a batch back to back. `Spans` knows where each begins, and lets a query see only the keys
of its own sentence. It gathers sentences of similar length into small dense blocks, which works on any device; this is
the reference that our own kernels (`layers.py` chooses them) must match.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int32
from torch import Tensor, nn
from torch.nn import functional

from transduce.model.positions import rotate
from transduce.text.tiles import lay_tiles

if TYPE_CHECKING:  # Triton is not installed everywhere
    from transduce.kernels.attention import Tiles

# No sentence of a block is shorter than this share of the longest, and the sentences of a block together have at most
# this many pairs of query and key, padding included, unless one alone has more.
SIMILAR = 0.7
BLOCK_PAIRS = 1 << 21
LONG_PAIRS = 1 << 18  # from here on, torch's fused attention is as fast in bf16 on a CPU, and needs less memory

Weights = list[Tensor]  # one layer's attention weights: (heads, query, key) of each sentence


class Choice(NamedTuple):
    """Which rows to gather, and which places of the result to fill with zeros."""

    rows: Int[Tensor, " results"]
    zeros: Int[Tensor, " some"]


class Places:
    """Moves the tokens of a row into dense blocks and back; `into` has the token of each place, or -1 for none."""

    def __init__(self, into: Int[Tensor, " dense"], tokens: int, device: torch.device):
        returns = into.new_full((tokens + 1,), -1)
        # Empty places (-1) all write to the last element, which is cut off.
        returns[into] = torch.arange(len(into), device=into.device)
        self.into, self.returns = _choice(into, device), _choice(returns[:-1], device)

    def spread(self, rows: Float[Tensor, " tokens *width"]) -> Float[Tensor, " dense *width"]:
        """Return the row's tokens in their blocks, with zeros between."""
        return _Gather.apply(rows, self.into, self.returns)  # pyright: ignore[reportReturnType]

    def collect(self, dense: Float[Tensor, " dense *width"]) -> Float[Tensor, " tokens *width"]:
        """Return the blocks' tokens as a row again, with zeros behind the last sentence."""
        return _Gather.apply(dense, self.returns, self.into)  # pyright: ignore[reportReturnType]


class _Gather(torch.autograd.Function):
    """Gather rows; `back` is the inverse choice, so the gradient is a gather too and nothing is summed."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, choice: Choice, back: Choice) -> Tensor:
        ctx.back = back
        return _take(rows, choice)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _take(gradient, ctx.back), None, None


def _choice(places: Int[Tensor, " results"], device: torch.device) -> Choice:
    return Choice(places.clamp(min=0).to(device), (places < 0).nonzero().flatten().to(device))


def _take(rows: Tensor, choice: Choice) -> Tensor:
    if len(rows) == 0:  # a batch without sentences
        return rows.new_zeros(len(choice.rows), *rows.shape[1:])
    taken = rows.index_select(0, choice.rows)
    return taken.index_fill_(0, choice.zeros, 0) if len(choice.zeros) else taken


@dataclass(frozen=True)
class DenseBlock:
    """Sentences of similar length, padded to a rectangle: their numbers, their lengths and a mask of their keys."""

    sentences: list[int]
    query_lengths: list[int]
    key_lengths: list[int]
    mask: Bool[Tensor, "sentences 1 1 key"] | None  # True for a sentence's keys, False for padding; None if not needed

    def fold(self, dense: Float[Tensor, "dense heads d"]) -> Float[Tensor, "sentences heads row d"]:
        """Return this block's dense rows with one sentence per line."""
        return dense.unflatten(0, (len(self.sentences), -1)).transpose(1, 2)


class Spans:
    """Which keys each query may see: those of its own sentence, and if `causal` only those up to its own position."""

    query_offsets: Tensor
    key_offsets: Tensor
    queries: int
    keys: int
    causal: bool

    def __init__(
        self,
        query_offsets: Int[Tensor, " sentences+1"],
        key_offsets: Int[Tensor, " sentences+1"],
        *,
        queries: int,
        keys: int,
        causal: bool = False,
        tiles: Int32[Tensor, "2 tiles 5"] | None = None,
    ):
        self.query_offsets, self.key_offsets = query_offsets, key_offsets
        self.queries, self.keys, self.causal = queries, keys, causal
        self._tiles = tiles

    @cached_property
    def tiles(self) -> "Tiles":
        """The tiles for our own kernels: those given, or else computed here, for which a GPU has to wait."""
        from transduce.kernels.attention import Tiles, seen_keys

        sides = self.query_offsets, self.key_offsets
        if self._tiles is not None:
            by_query, by_key = self._tiles
        else:
            query, key = torch.stack(sides).cpu().numpy()
            laid = lay_tiles(query, key, queries=self.queries, keys=self.keys, causal=self.causal)
            by_query, by_key = (torch.from_numpy(side).to(self.query_offsets.device) for side in laid)
        return Tiles(by_query, by_key, seen_keys(*sides, self.queries, causal=self.causal))

    @cached_property
    def _dense(self) -> tuple[list[DenseBlock], Places, Places]:
        offsets = torch.stack((self.query_offsets, self.key_offsets)).cpu().long()
        lengths = offsets.diff()
        longer = lengths.amax(0)
        order = longer.argsort(descending=True, stable=True)
        held = order[lengths[0, order] > 0]
        # A batch without sentences gets an empty one, so that all weights have a gradient (of zeros).
        order = held if len(held) else order[:1]
        device = self.query_offsets.device
        blocks: list[DenseBlock] = []
        into: tuple[list[Tensor], list[Tensor]] = ([], [])
        for chosen in _similar(order, longer):
            inside = torch.empty(0)
            for side, first, many in zip(into, offsets, lengths):
                steps = torch.arange(int(many[chosen].max()), device=many.device)
                inside = steps < many[chosen, None]
                side.append(torch.where(inside, first[chosen, None] + steps, -1).flatten())
            # A causal query sees no further than its own position, so it never sees the padding.
            mask = None if self.causal or bool(inside.all()) else inside[:, None, None, :].to(device)
            query_lengths, key_lengths = lengths[:, chosen].tolist()
            blocks.append(DenseBlock(chosen.tolist(), query_lengths, key_lengths, mask))
        query_places, key_places = (
            Places(torch.cat(side), tokens, device) for side, tokens in zip(into, (self.queries, self.keys))
        )
        return blocks, query_places, key_places

    def attend(
        self,
        query: Float[Tensor, "query heads d_k"],
        key: Float[Tensor, "key heads d_k"],
        value: Float[Tensor, "key heads d_v"],
        score: "Score",
        *,
        dropout: float = 0.0,
        weights: list[Weights] | None = None,
    ) -> Float[Tensor, "query heads d_v"]:
        """Attend within each sentence; `weights`, if given, receives a list of their weights (heads, query, key)."""
        blocks, query_places, key_places = self._dense
        query, key, value = query_places.spread(query), key_places.spread(key), key_places.spread(value)
        query_sizes = [len(block.sentences) * max(block.query_lengths) for block in blocks]
        key_sizes = [len(block.sentences) * max(block.key_lengths) for block in blocks]
        parts = zip(blocks, query.split(query_sizes), key.split(key_sizes), value.split(key_sizes))
        results: list[Tensor] = []
        seen: Weights = [query.new_zeros(query.shape[1], 0, 0)] * (len(self.query_offsets) - 1)
        for block, queries, keys, values in parts:
            some: list[Tensor] = []
            result = attend(
                block.fold(queries),
                block.fold(keys),
                block.fold(values),
                score,
                mask=block.mask,
                causal=self.causal,
                dropout=dropout,
                weights=None if weights is None else some,
            )
            results.append(result.transpose(1, 2).flatten(0, 1))
            for share in some:
                for place, sentence in enumerate(block.sentences):
                    seen[sentence] = share[place, :, : block.query_lengths[place], : block.key_lengths[place]]
        if weights is not None:
            weights.append(seen)
        return query_places.collect(torch.cat(results))


def _similar(order: Tensor, longer: Tensor) -> Iterator[Tensor]:
    """Yield the sentences, longest first, in runs of similar length with at most `BLOCK_PAIRS` pairs."""
    lengths = longer[order].tolist()
    first = 0
    while first < len(lengths):
        most = BLOCK_PAIRS // max(1, lengths[first]) ** 2
        end = first + 1
        while end < len(lengths) and end - first < most and lengths[end] >= SIMILAR * lengths[first]:
            end += 1
        yield order[first:end]
        first = end


class Score(nn.Module):
    """How well a query and a key agree: dot products, scaled (equation 1) or not, or an additive network."""

    scale: float
    additive: nn.Parameter | None

    def __init__(self, kind: Literal["scaled", "unscaled", "additive"], heads: int, d_k: int):
        super().__init__()
        self.scale = d_k**-0.5 if kind == "scaled" else 1.0
        self.additive = nn.Parameter(torch.empty(heads, d_k)) if kind == "additive" else None

    def forward(
        self, query: Float[Tensor, "sentences heads query d_k"], key: Float[Tensor, "sentences heads key d_k"]
    ) -> Float[Tensor, "sentences heads query key"]:
        if self.additive is None:
            return query @ key.transpose(-1, -2) * self.scale
        # v · tanh(W q + U k) (Bahdanau et al. 2015), with W^Q as W and W^K as U.
        return torch.einsum("shqkd,hd->shqk", (query[..., :, None, :] + key[..., None, :, :]).tanh(), self.additive)


def attend(
    query: Float[Tensor, "sentences heads query d_k"],
    key: Float[Tensor, "sentences heads key d_k"],
    value: Float[Tensor, "sentences heads key d_v"],
    score: Score,
    *,
    mask: Bool[Tensor, "sentences 1 #query key"] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    weights: list[Tensor] | None = None,
) -> Float[Tensor, "sentences heads query d_v"]:
    """softmax(score(Q, K)) V (equation 1) on dense blocks; a list given as `weights` receives the softmax."""
    if weights is None and score.additive is None:
        if not _is_slow_fused(query, key):
            return functional.scaled_dot_product_attention(
                query, key, value, mask, dropout, is_causal=causal, scale=score.scale
            )
        with torch.autocast("cpu", enabled=False):
            scores = score(query.float(), key.float())
    else:
        scores = score(query, key)
    if causal:
        may = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        mask = may if mask is None else mask & may
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    share = scores.softmax(-1)
    if weights is not None:
        weights.append(share)
    return functional.dropout(share, dropout, training=dropout > 0).to(value.dtype) @ value


def _is_slow_fused(query: Tensor, key: Tensor) -> bool:
    """Whether torch's fused attention takes longer than the formula.

    On a CPU its gradient in bf16 does, but for long sentences. The formula's scores are in float32 there, so it is as
    exact.
    """
    short = query.shape[-2] * key.shape[-2] <= LONG_PAIRS
    return query.is_cpu and query.dtype == torch.bfloat16 and query.requires_grad and short


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (section 3.2.2)."""

    heads: int
    widths: tuple[int, int, int]
    dropout: float
    projection: nn.Parameter
    output: nn.Parameter
    query_bias: nn.Parameter | None
    output_bias: nn.Parameter | None
    score: "Score"

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        kind: Literal["scaled", "unscaled", "additive"] = "scaled",
        dropout: float = 0.0,
        depth: int = 1,
        biases: bool = False,
    ):
        super().__init__()
        self.heads, self.widths, self.dropout = heads, (heads * d_k, heads * d_k, heads * d_v), dropout
        self.depth = depth
        # W^Q, W^K and W^V of all heads, stacked: self-attention multiplies by all three at once.
        self.projection = nn.Parameter(torch.empty(sum(self.widths), d_model))
        self.output = nn.Parameter(torch.empty(d_model, heads * d_v))
        # Two biases suffice: one of the keys would add the same to all scores of a query and cancel in the softmax; one
        # of the values would reach the output as a constant, because the weights add up to 1.
        self.query_bias = nn.Parameter(torch.empty(heads * d_k)) if biases else None
        self.output_bias = nn.Parameter(torch.empty(d_model)) if biases else None
        self.score = Score(kind, heads, d_k)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W^Q, W^K, W^V and W^O each as Glorot and Bengio (2010) do, the last two divided by sqrt(depth).

        At first, attention gives every token nearly the mean of its sentence. Six such layers would make all tokens
        alike, and attention could no longer tell them apart and learn (Noci et al. 2022).
        """
        query, key, value = self.projection.split(self.widths)
        for weight, gain in ((query, 1.0), (key, 1.0), (value, self.depth**-0.5), (self.output, self.depth**-0.5)):
            nn.init.xavier_uniform_(weight, gain)
        if self.score.additive is not None:
            nn.init.xavier_uniform_(self.score.additive)
        for bias in (self.query_bias, self.output_bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def forward(
        self,
        x: Float[Tensor, "query d_model"],
        memory: Float[Tensor, "key d_model"] | None,
        spans: Spans,
        *,
        turn: Float[Tensor, "2 query half"] | None = None,
        weights: list[Weights] | None = None,
    ) -> Float[Tensor, "query d_model"]:
        """Attend from x to memory, or to x itself; `turn` gives rotary positions."""
        if memory is None:
            query, key, value = self.project(x)
        else:
            query, (key, value) = self.project_query(x), self.project_memory(memory)
        if turn is not None:
            query, key = rotate(query, turn), rotate(key, turn)
        dropout = self.dropout if self.training else 0.0
        return self.combine(spans.attend(query, key, value, self.score, dropout=dropout, weights=weights))

    def shape(self) -> tuple[int, int, int, float]:
        """Return the number of heads, d_k, d_v, and the factor of the scores."""
        return self.heads, self.widths[0] // self.heads, self.widths[2] // self.heads, self.score.scale

    def fits_kernels(self) -> bool:
        """Whether our own kernels support this kind of attention."""
        return self.score.additive is None

    def project(self, x: Float[Tensor, "tokens d_model"]) -> list[Float[Tensor, "tokens heads d"]]:
        """Return queries, keys and values of the same tokens."""
        query, key, value = functional.linear(x, self.projection).split(self.widths, -1)
        query = query if self.query_bias is None else query + self.query_bias
        return [self._split(part) for part in (query, key, value)]

    def project_query(self, x: Float[Tensor, "query d_model"]) -> Float[Tensor, "query heads d_k"]:
        """Return the queries alone."""
        return self._split(functional.linear(x, self.projection[: self.widths[0]], self.query_bias))

    def project_memory(self, memory: Float[Tensor, "key d_model"]) -> list[Float[Tensor, "key heads d"]]:
        """Return keys and values of the tokens attended to."""
        both = functional.linear(memory, self.projection[self.widths[0] :])
        return [self._split(part) for part in both.split(self.widths[1:], -1)]

    def combine(self, heads: Float[Tensor, "query heads d_v"]) -> Float[Tensor, "query d_model"]:
        """Multiply the concatenated heads by W^O."""
        return functional.linear(heads.flatten(-2), self.output, self.output_bias)

    def _split(self, x: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens heads d"]:
        return x.unflatten(-1, (self.heads, -1))
