"""The whole model against `torch.nn.Transformer` with the same weights: equal logits, equal gradients."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from rows import SMALL, Row, assert_near, gradients, make_model, random_row, run
from threads import always_one_thread as always_one_thread
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transduce.model.transformer import Transformer

SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 12, 1, 7, 9], [5, 8, 11, 2, 1, 9]


def sinusoids_of_the_paper(longest: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same), number by number."""
    table = np.empty((longest, d_model))
    for pos in range(longest):
        for i in range(d_model // 2):
            table[pos, 2 * i] = np.sin(pos / 10_000 ** (2 * i / d_model))
            table[pos, 2 * i + 1] = np.cos(pos / 10_000 ** (2 * i / d_model))
    return torch.from_numpy(table)


class Reference(nn.Module):
    """Figure 1 built of torch's layers, on padded batches; embeddings, positions and projection by hand."""

    def __init__(self, ours: Transformer):
        super().__init__()
        config = ours.config
        encoder_layers, decoder_layers = config.stacks()
        pre = config.norm == "pre"
        sizes = (config.d_model, config.heads, config.d_ff, 0.0, config.activation, 1e-5, True, pre)
        # Without a norm behind the last layer, as in the paper, unless norms come before the sub-layers.
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes),
            encoder_layers,
            norm=nn.LayerNorm(config.d_model) if pre else None,
            enable_nested_tensor=False,
        ).double()
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes),
            decoder_layers,
            norm=nn.LayerNorm(config.d_model) if pre else None,
        ).double()
        self.embedding = nn.Parameter(ours.embedding.weight.detach().clone())
        tables = [ours.source_positions, ours.target_positions] if config.positions == "learned" else []
        self.positions = nn.ParameterList(nn.Parameter(table.weight.detach().clone()) for table in tables)
        self.pairs = dict(self.pair(ours))
        with torch.no_grad():
            for theirs in self.parameters():
                if theirs.ndim == 1:
                    theirs.zero_()  # the biases that only torch's attention has; all others are copied now
            for name, theirs in self.pairs.items():
                theirs.copy_(ours.get_parameter(name))

    def pair(self, ours: Transformer) -> list[tuple[str, nn.Parameter]]:
        """Return which of our parameters is which of torch's."""
        attentions = {"self": "self_attn", "cross": "multihead_attn"}
        pairs = [("embedding.weight", self.embedding)]
        pairs += [(f"{side}_positions.weight", table) for side, table in zip(("source", "target"), self.positions)]
        for stack, parts in (("encoder", ("self", None)), ("decoder", ("self", "cross", None))):
            for number, layer in enumerate(getattr(self, stack).layers):
                for place, part in enumerate(parts, start=1):
                    name, norm = f"{stack}.{number}.{part or 'feed_forward'}", getattr(layer, f"norm{place}")
                    if part:
                        attention = getattr(layer, attentions[part])
                        pairs.append((f"{name}_attention.projection", attention.in_proj_weight))
                        pairs.append((f"{name}_attention.output", attention.out_proj.weight))
                    else:
                        for inside, linear in (("inner", layer.linear1), ("outer", layer.linear2)):
                            pairs.append((f"{name}.{inside}.weight", linear.weight))
                            pairs.append((f"{name}.{inside}.bias", linear.bias))
                    pairs.append((f"{name}_residual.norm.weight", norm.weight))
                    pairs.append((f"{name}_residual.norm.bias", norm.bias))
            if ours.config.norm == "pre":
                norm = getattr(self, stack).norm
                pairs += [(f"{stack}_norm.weight", norm.weight), (f"{stack}_norm.bias", norm.bias)]
        return pairs

    def embed(self, tokens: Tensor, side: int) -> Tensor:
        longest, d_model = tokens.shape[1], self.embedding.shape[1]
        table = self.positions[side][:longest] if self.positions else sinusoids_of_the_paper(longest, d_model)
        return self.embedding[tokens] * d_model**0.5 + table

    def forward(self, source: Row, target: Row) -> Tensor:
        source_tokens, target_tokens = (pad_sequence(row.split(row.tokens.long()), True) for row in (source, target))
        source_behind, target_behind = source_tokens == 0, target_tokens == 0  # the filler is in no sentence
        future = torch.ones(target_tokens.shape[1], target_tokens.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(source_tokens, 0), src_key_padding_mask=source_behind)
        states = self.decoder(
            self.embed(target_tokens, 1),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=target_behind,
            memory_key_padding_mask=source_behind,
        )
        return (states @ self.embedding.T)[~target_behind]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_logits_and_gradients_are_torchs(
    norm: Literal["post", "pre"], activation: Literal["relu", "gelu"], positions: Literal["sinusoidal", "learned"]
):
    config = replace(SMALL, encoder_layers=3, norm=norm, activation=activation, positions=positions, max_positions=13)
    ours = make_model(config)
    theirs = Reference(ours)
    assert theirs.pairs.keys() == dict(ours.named_parameters()).keys()
    source, target = random_row(SOURCE_LENGTHS), random_row(TARGET_LENGTHS)
    our_logits, their_logits = run(ours, source, target), theirs(source, target)
    # Sinusoids are computed in float32; everything else here is float64.
    tolerance = 1e-10 if positions == "learned" else 1e-5
    assert_near(our_logits, their_logits, tolerance)
    cotangent = torch.randn_like(our_logits)
    our_logits.backward(cotangent)
    their_logits.backward(cotangent)
    for name, gradient in gradients(ours).items():
        expected = theirs.pairs[name].grad
        assert expected is not None
        assert expected.abs().max() > 1e-3, name
        assert_near(gradient, expected, tolerance, name)
