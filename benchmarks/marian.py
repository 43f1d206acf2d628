"""Hugging Face's Marian with the weights of one of our models, for benchmarks and tests to compare with."""

from typing import Any

import torch

from transduce.config import ModelConfig
from transduce.model.positions import sinusoids
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD


def make_sized(config: ModelConfig, longest: int = 1024, dropout: float = 0.0) -> Any:
    """Return a Marian of the same sizes, with random weights."""
    from transformers import MarianConfig, MarianMTModel

    encoder_layers, decoder_layers = config.stacks()
    return MarianMTModel(
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
            dropout=dropout,
            scale_embedding=True,
            max_position_embeddings=longest,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
            forced_eos_token_id=None,
        )
    )


def make_marian(model: Transformer, longest: int = 1024) -> Any:
    """Return a Marian with our sizes, weights and positions; biases that our attention lacks are zero."""
    marian = make_sized(model.config, longest)
    marian.to(model.embedding.weight.dtype).eval()
    with torch.no_grad():
        for parameter in marian.parameters():
            parameter.zero_()
        for name, weight in model.named_parameters():
            theirs = [marian.get_parameter(other) for other in marian_names(name)]
            for part, parameter in zip(weight.chunk(len(theirs)), theirs):
                parameter.copy_(part)
        table = sinusoids(torch.arange(longest), model.config.d_model)
        for stack in (marian.model.encoder, marian.model.decoder):
            stack.embed_positions.weight.copy_(table)
    return marian


def marian_names(name: str) -> list[str]:
    """Return Marian's names for one of our parameters; three for a projection."""
    if name == "embedding.weight":
        return ["model.shared.weight"]
    stack, number, *path = name.split(".")
    attention = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    norms = {"self_residual": "self_attn", "cross_residual": "encoder_attn", "feed_forward_residual": "final"}
    layer = f"model.{stack}.layers.{number}"
    if path[0] in attention:
        parts = ["q_proj", "k_proj", "v_proj"] if path[1] == "projection" else ["out_proj"]
        return [f"{layer}.{attention[path[0]]}.{part}.weight" for part in parts]
    if path[0] in norms:
        return [f"{layer}.{norms[path[0]]}_layer_norm.{path[-1]}"]
    return [f"{layer}.{'fc1' if path[1] == 'inner' else 'fc2'}.{path[-1]}"]
