"""The Transformer (section 3, Figure 1), on rows of sentences without padding."""

from functools import partial

import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor, nn
from torch.nn import functional

from transduce.config import ModelConfig
from transduce.kernels.products import compute_dtype
from transduce.model.attention import MultiHeadAttention, Spans, Weights
from transduce.model.layers import DecoderLayer, EncoderLayer, FeedForward, attention_block, can_fuse
from transduce.model.positions import rotations, sinusoids, token_positions
from transduce.text.shards import Side


class Transformer(nn.Module):
    """Encoder and decoder; sentence i of a row is `row[offsets[i]:offsets[i + 1]]`."""

    config: ModelConfig
    embedding: nn.Embedding
    source_embedding: nn.Embedding
    source_positions: nn.Embedding
    target_positions: nn.Embedding
    output: nn.Linear
    output_bias: nn.Parameter | None
    dropout: nn.Dropout
    encoder: nn.ModuleList
    decoder: nn.ModuleList
    encoder_norm: nn.LayerNorm | nn.Identity
    decoder_norm: nn.LayerNorm | nn.Identity

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        encoder_layers, decoder_layers = config.stacks()
        # Section 3.4: one matrix for both embeddings and the output, unless the settings say otherwise.
        self.embedding = nn.Embedding(config.vocabulary, config.d_model)
        if config.tie != "all":
            self.source_embedding = nn.Embedding(config.source_vocabulary or config.vocabulary, config.d_model)
        if config.tie == "none":
            self.output = nn.Linear(config.d_model, config.vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.empty(config.vocabulary)) if config.biases else None
        if config.positions == "learned":
            self.source_positions = nn.Embedding(config.max_positions, config.d_model)
            self.target_positions = nn.Embedding(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(decoder_layers))
        # With norms before the sub-layers, the residual sums themselves are normed only here.
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model, config.norm_epsilon) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model, config.norm_epsilon) if pre else nn.Identity()
        self._tables: list[Tensor] = []
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights: matrices as Glorot and Bengio (2010) or smaller, embeddings with variance 1 / d_model."""
        for module in self.modules():
            if isinstance(module, MultiHeadAttention | FeedForward):
                module.reset_parameters()
            elif isinstance(module, nn.Embedding):
                # Multiplied by sqrt(d_model) they have variance 1, about that of the positions.
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        if self.config.tie == "none":
            nn.init.xavier_uniform_(self.output.weight)
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)

    def encode(
        self,
        source: Int[Tensor, " source"],
        source_offsets: Int[Tensor, " sentences+1"],
        *,
        longest: int | None = None,
        tiles: Int32[Tensor, "2 tiles 5"] | None = None,
        weights: list[Weights] | None = None,
    ) -> Float[Tensor, "source d_model"]:
        """Return the encoder's output; a list given as `weights` receives each layer's attention weights.

        On a GPU, `longest` (no sentence is longer) allows our embedding kernel, and `tiles` save waiting until they are
        computed.
        """
        positions = token_positions(source_offsets, len(source))
        size = len(source)
        spans = Spans(source_offsets, source_offsets, queries=size, keys=size, tiles=tiles)
        turn = self.turn(positions)
        x = self.embed(source, positions, "source", longest)
        for layer in self.encoder:
            x = layer(x, spans, turn, weights)
        return self.encoder_norm(x)

    def decode(
        self,
        target_input: Int[Tensor, " target"],
        target_offsets: Int[Tensor, " sentences+1"],
        memory: Float[Tensor, "source d_model"],
        source_offsets: Int[Tensor, " sentences+1"],
        *,
        longest: int | None = None,
        tiles: tuple[Tensor | None, Tensor | None] = (None, None),
        weights: list[Weights] | None = None,
        cross_weights: list[Weights] | None = None,
    ) -> Float[Tensor, "target d_model"]:
        """Return the decoder's states, which `project` turns into logits; lists given receive the attention weights.

        `longest` bounds the target's sentences; `tiles` are those of its self-attention and of attention to the source.
        """
        positions = token_positions(target_offsets, len(target_input))
        tokens = len(target_input)
        spans = Spans(target_offsets, target_offsets, queries=tokens, keys=tokens, causal=True, tiles=tiles[0])
        cross_spans = Spans(target_offsets, source_offsets, queries=tokens, keys=len(memory), tiles=tiles[1])
        turn = self.turn(positions)
        x = self.embed(target_input, positions, "target", longest)
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            x = layer(
                x,
                partial(
                    attention_block,
                    memory=None,
                    attention=layer.self_attention,
                    residual=layer.self_residual,
                    spans=spans,
                    turn=turn,
                    weights=weights,
                ),
                partial(
                    attention_block,
                    memory=memory,
                    attention=layer.cross_attention,
                    residual=layer.cross_residual,
                    spans=cross_spans,
                    weights=cross_weights,
                ),
            )
        return self.decoder_norm(x)

    def forward(
        self,
        source: Int[Tensor, " source"],
        source_offsets: Int[Tensor, " sentences+1"],
        target_input: Int[Tensor, " target"],
        target_offsets: Int[Tensor, " sentences+1"],
    ) -> Float[Tensor, "target vocabulary"]:
        """Return the logits of the token after each target token."""
        return self.project(self.states(source, source_offsets, target_input, target_offsets))

    def states(
        self,
        source: Int[Tensor, " source"],
        source_offsets: Int[Tensor, " sentences+1"],
        target_input: Int[Tensor, " target"],
        target_offsets: Int[Tensor, " sentences+1"],
        *,
        longest: tuple[int, int] | None = None,
        tiles: Int32[Tensor, "3 2 tiles 5"] | None = None,
    ) -> Float[Tensor, "target d_model"]:
        """Run the encoder and the decoder, and return the decoder's states."""
        within_source, within_target, across = (None, None, None) if tiles is None else tiles
        source_longest, target_longest = longest or (None, None)
        memory = self.encode(source, source_offsets, longest=source_longest, tiles=within_source)
        rows = target_input, target_offsets, memory, source_offsets
        return self.decode(*rows, longest=target_longest, tiles=(within_target, across))

    def embed(
        self,
        tokens: Int[Tensor, " tokens"],
        positions: Int[Tensor, " tokens"],
        side: Side,
        longest: int | None = None,
    ) -> Float[Tensor, "tokens d_model"]:
        """Return embeddings times sqrt(d_model), plus positions, then dropout (sections 3.4, 3.5, 5.4).

        No sentence is longer than `longest`, if given.
        """
        embedding = self.source_embedding if side == "source" and self.config.tie != "all" else self.embedding
        if longest is not None and self.config.positions != "learned" and can_fuse(embedding.weight):
            from transduce.kernels.embedding import embed

            # Residual sums that are normed only at the end stay as precise as the weights.
            dtype = embedding.weight.dtype if self.config.norm == "pre" else compute_dtype(embedding.weight)
            dropout = self.dropout.p if self.training else 0.0
            return embed(tokens, embedding.weight, positions, self._table(longest), dropout, dtype)
        x = embedding(tokens) * self.config.d_model**0.5
        match self.config.positions:
            case "sinusoidal":
                x = x + sinusoids(positions, self.config.d_model).to(x.dtype)
            case "learned":
                table = self.source_positions if side == "source" else self.target_positions
                # Only filler behind the last sentence can lie beyond the table.
                x = x + table(positions.clamp(max=self.config.max_positions - 1))
            case "rotary":
                pass  # queries and keys are turned instead
        return self.dropout(x)

    def _table(self, longest: int) -> Float[Tensor, "longest d_model"] | None:
        """Return a table of sinusoids of at least `longest` positions, or None if positions are of another kind.

        A recorded graph goes on reading the table that it was recorded with, so none is ever freed; each is at least
        twice as long as the one before.
        """
        if self.config.positions != "sinusoidal":
            return None
        known = next((table for table in self._tables if len(table) >= longest and table.device == self.device), None)
        if known is None:
            steps = torch.arange(1 << (longest - 1).bit_length(), device=self.device)
            known = sinusoids(steps, self.config.d_model)
            self._tables.append(known)
        return known

    def turn(self, positions: Int[Tensor, " tokens"]) -> Float[Tensor, "2 tokens half"] | None:
        """Return the rotations of queries and keys in self-attention, if positions are rotary."""
        return rotations(positions, self.config.head_widths()[0]) if self.config.positions == "rotary" else None

    def project(self, states: Float[Tensor, "target d_model"]) -> Float[Tensor, "target vocabulary"]:
        """Return the logits: the pre-softmax linear transformation (section 3.4)."""
        return functional.linear(states, self.output_weight, self.output_bias)

    @property
    def output_weight(self) -> Tensor:
        """The matrix that `project` multiplies by."""
        return self.output.weight if self.config.tie == "none" else self.embedding.weight

    @property
    def device(self) -> torch.device:
        """The device that holds the model."""
        return self.embedding.weight.device
