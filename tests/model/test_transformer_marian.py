"""The whole model against Hugging Face's Marian, the paper's model in its own words: equal logits, equal gradients."""

import re

import pytest
import torch
from rows import SMALL, assert_near, gradients, make_model, random_row, run
from rows import one_thread as one_thread
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianConfig, MarianMTModel

from transduce.model.positions import sinusoids
from transduce.model.transformer import Transformer

LONGEST = 16
# Our names, and Marian's; W^Q, W^K and W^V are one below the other in ours.
NAMES = {
    r"embedding\.weight": "shared.weight",
    r"(..coder)\.(\d+)\.self_attention\.output": r"\1.layers.\2.self_attn.out_proj.weight",
    r"(..coder)\.(\d+)\.cross_attention\.output": r"\1.layers.\2.encoder_attn.out_proj.weight",
    r"(..coder)\.(\d+)\.self_attention\.projection": r"\1.layers.\2.self_attn.*_proj.weight",
    r"(..coder)\.(\d+)\.cross_attention\.projection": r"\1.layers.\2.encoder_attn.*_proj.weight",
    r"(..coder)\.(\d+)\.self_residual\.norm\.(\w+)": r"\1.layers.\2.self_attn_layer_norm.\3",
    r"(..coder)\.(\d+)\.cross_residual\.norm\.(\w+)": r"\1.layers.\2.encoder_attn_layer_norm.\3",
    r"(..coder)\.(\d+)\.feed_forward_residual\.norm\.(\w+)": r"\1.layers.\2.final_layer_norm.\3",
    r"(..coder)\.(\d+)\.feed_forward\.inner\.(\w+)": r"\1.layers.\2.fc1.\3",
    r"(..coder)\.(\d+)\.feed_forward\.outer\.(\w+)": r"\1.layers.\2.fc2.\3",
}


def their_names(name: str) -> list[str]:
    """Marian's names of one of our parameters; three for a projection."""
    (theirs,) = (re.sub(ours, other, name) for ours, other in NAMES.items() if re.fullmatch(ours, name))
    return [f"model.{theirs.replace('*', part)}" for part in ("qkv" if "*" in theirs else "_")]


def make_marian(ours: Transformer) -> MarianMTModel:
    """Marian of the same sizes, with the same weights, its biases zero and its positions in our order."""
    config = ours.config
    encoder_layers, decoder_layers = config.stacks()
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=config.vocabulary,
            d_model=config.d_model,
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            activation_function="relu",
            dropout=0.0,
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            max_position_embeddings=LONGEST,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
            use_cache=False,
        )
    ).double()
    with torch.no_grad():
        for parameter in marian.parameters():
            parameter.zero_()
        for name, parameter in ours.named_parameters():
            theirs = [marian.get_parameter(other) for other in their_names(name)]
            for part, weight in zip(parameter.chunk(len(theirs)), theirs):
                weight.copy_(part)
        table = sinusoids(torch.arange(LONGEST), config.d_model)
        for stack in (marian.model.encoder, marian.model.decoder):
            stack.embed_positions.weight.copy_(table)
    return marian


@pytest.mark.parametrize("seed", [0, 1])
def test_logits_and_gradients_are_marians(seed: int):
    ours = make_model(SMALL, seed=seed)
    marian = make_marian(ours)
    source, target = random_row([4, 16, 9, 1, 9]), random_row([16, 2, 10, 1, 3])
    source_tokens, target_tokens = (pad_sequence(row.split(row.tokens.long()), True) for row in (source, target))
    our_logits = run(ours, source, target)
    result = marian(
        input_ids=source_tokens,
        attention_mask=(source_tokens != 0).long(),
        decoder_input_ids=target_tokens,
        decoder_attention_mask=(target_tokens != 0).long(),
    )
    their_logits = result.logits[target_tokens != 0]
    assert_near(our_logits, their_logits)
    cotangent = torch.randn_like(our_logits)
    our_logits.backward(cotangent)
    their_logits.backward(cotangent)
    for name, gradient in gradients(ours).items():
        expected = torch.cat([torch.as_tensor(marian.get_parameter(other).grad) for other in their_names(name)])
        assert_near(gradient, expected, 1e-9, name)
