"""Small models and random sentences for the tests of decoding."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model.attention import MultiHeadAttention
from transduce.model.transformer import Transformer
from transduce.text.subwords import END

VOCABULARY = 19
# Each kind of position, norm, score and tying; heads whose queries and values differ in width; uneven stacks.
KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned, additive": {"positions": "learned", "max_positions": 40, "attention": "additive"},
    "rotary, pre-norm, untied": {"positions": "rotary", "norm": "pre", "tie": "none", "activation": "swiglu"},
    "unscaled, d_k, d_v": {"attention": "unscaled", "d_k": 5, "d_v": 3, "tie": "output", "source_vocabulary": 31},
    "rotary, additive, d_k": {"positions": "rotary", "attention": "additive", "d_k": 6, "d_v": 2, "decoder_layers": 1},
    "biases, silu": {"biases": True, "activation": "silu", "norm_epsilon": 0.1},
    "learned, pre-norm": {"positions": "learned", "max_positions": 40, "norm": "pre", "encoder_layers": 1},
}


def make_model(*, seed: int = 0, **changes: Any) -> Transformer:
    """Return a model in float64 for decoding; its norms, biases and outputs are random, large enough to matter."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"vocabulary": VOCABULARY, "layers": 2, "d_model": 12, "d_ff": 20, "heads": 3}
    model = Transformer(ModelConfig(**{**sizes, **changes})).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.normal_(mean=float(name.endswith("norm.weight")), std=0.3)
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):  # undo its small initial weights
                module.projection[sum(module.widths[:2]) :] *= module.depth**0.5
                module.output *= module.depth**0.5
    return model


def random_sentences(lengths: Sequence[int], vocabulary: int = VOCABULARY, seed: int = 0) -> list[list[int]]:
    """Return random sentences of these lengths, each with its end mark."""
    torch.manual_seed(seed)
    return [[*torch.randint(4, vocabulary, (length - 1,)).tolist(), END] for length in lengths]


def make_row(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return sentences back to back, and their offsets."""
    lengths = torch.tensor([0, *map(len, sentences)], dtype=torch.int32)
    tokens = torch.tensor([token for sentence in sentences for token in sentence], dtype=torch.int32)
    return tokens, lengths.cumsum(0).int()
