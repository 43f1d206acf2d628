"""Tiny models of ours, of every kind that is exported: random weights with varied output, subwords learned here."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from marians import texts

from transduce.config import Config, ModelConfig, SearchConfig
from transduce.model.saved import Loaded, load_model, save_model
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD, Subwords, SubwordsConfig, learn

KINDS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre-norm": {"norm": "pre", "activation": "gelu"},
    "learned positions": {"positions": "learned", "max_positions": 64},
    "pre-norm, learned positions": {"norm": "pre", "positions": "learned", "max_positions": 64},
    "rotary, SwiGLU": {"norm": "pre", "positions": "rotary", "activation": "swiglu", "d_v": 10},
    "biases, SiLU": {"biases": True, "activation": "silu", "decoder_layers": 1},
    "another epsilon": {"norm_epsilon": 0.01, "tie": "none"},
    "narrow heads, unscaled": {"d_k": 6, "d_v": 5, "attention": "unscaled"},
    "wide heads": {"d_k": 12, "d_v": 20},
    "separate vocabularies": {"tie": "output", "separate": True},
    "separate vocabularies, untied": {"tie": "none", "separate": True, "biases": True},
    "additive": {"attention": "additive", "norm": "pre", "positions": "rotary", "activation": "swiglu"},
}


@cache
def learn_subwords(side: str, symbols: tuple[str, ...] = ()) -> Subwords:
    """Learn subwords of one language of the built-in numbers, or of both."""
    pairs = texts("train", 400)
    lines = pairs["source"] + pairs["target"] if side == "both" else pairs[side]
    size = {"both": 340, "source": 320, "target": 330}[side]
    return Subwords(learn(lines, SubwordsConfig(size=size, coverage=1.0, symbols=symbols)))


def save_kind(
    folder: Path,
    kind: str = "the paper's",
    about: dict[str, Any] | None = None,
    layers: int = 2,
    symbols: tuple[str, ...] = (),
) -> Loaded:
    """Save a model of a kind and load it."""
    changes = dict(KINDS[kind])
    separate = changes.pop("separate", False)
    subwords = {side: learn_subwords(side if separate else "both", symbols) for side in ("source", "target")}
    sizes: dict[str, Any] = {
        "layers": layers,
        "d_model": 32,
        "d_ff": 48,
        "heads": 4,
        "vocabulary": len(subwords["target"]),
    }
    sizes |= {"source_vocabulary": len(subwords["source"])} if separate else {}
    config = Config(model=ModelConfig(**{**sizes, **changes}), search=SearchConfig(beam=3, extra_tokens=8))
    torch.manual_seed(1)
    model = Transformer(config.model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float(name.endswith("norm.weight")), std=0.2 if weight.ndim == 1 else 0.3)
        bytes_ = [subwords["target"].processor.is_byte(token) for token in range(config.model.vocabulary)]
        model.output_weight[bytes_] = 0.0  # seldom said
        _fix_states(model)
    save_model(folder, config, model.state_dict(), subwords, about or {})
    return load_model(folder)


def _fix_states(model: Transformer) -> None:
    """Fix the decoder's first output number at 1, to weigh for the end and against tokens never generated.

    If their search takes no probability away from padding and begin, ours and theirs agree.
    """
    norm: Any = model.decoder_norm
    if model.config.norm == "post":
        norm = model.decoder[-1].get_submodule("feed_forward_residual.norm")
    norm.weight *= 5.0  # so that it is sure of what it says
    norm.weight[0], norm.bias[0] = 0.0, 1.0
    weight = model.output_weight
    weight[:, 0] = 0.0
    weight[[PAD, BEGIN], 0] = -4.0
    weight[END] = 0.0
    weight[END, 0] = 16.0 if model.config.norm == "post" else 6.0
