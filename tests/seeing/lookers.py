"""Tiny models whose attention is shown, in memory and on disk."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transduce.config import Config, ModelConfig, SearchConfig
from transduce.model.saved import save_model
from transduce.model.transformer import Transformer
from transduce.text import numbers
from transduce.text.subwords import END, Subwords, SubwordsConfig, learn

VOCABULARY = 23
CHOICES: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned, additive, uneven": {"positions": "learned", "attention": "additive", "encoder_layers": 1},
    "rotary, pre-norm, d_k, d_v": {"positions": "rotary", "norm": "pre", "d_k": 6, "d_v": 5, "tie": "none"},
    "unscaled": {"attention": "unscaled", "decoder_layers": 3},
}


def make_model(seed: int = 0, **changes: Any) -> Transformer:
    """Return a model in float64 whose heads all attend to different places."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"vocabulary": VOCABULARY, "layers": 2, "d_model": 12, "d_ff": 20, "heads": 3}
    model = Transformer(ModelConfig(**{**sizes, **changes})).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float(name.endswith("norm.weight")), std=0.2 if weight.ndim == 1 else 0.6)
    return model


def make_pairs(lengths: list[tuple[int, int]], seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return sources and targets of these lengths, with their ends."""
    random = np.random.default_rng(seed)

    def sentence(length: int) -> np.ndarray:
        return np.append(random.integers(4, VOCABULARY, length - 1), END).astype(np.int32)

    return [(sentence(source), sentence(target)) for source, target in lengths]


@cache
def learn_subwords() -> Subwords:
    """Learn subwords of the built-in numbers, English and German."""
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    return Subwords(learn(lines, SubwordsConfig(size=330, coverage=1.0)))


def save_tiny(folder: Path, **changes: Any) -> Path:
    """Save a model with random weights, whose translations are soon cut."""
    subwords = learn_subwords()
    sizes: dict[str, Any] = {"layers": 2, "d_model": 32, "d_ff": 48, "heads": 2, "tie": "none"}
    search = SearchConfig(beam=3, extra_tokens=4)
    config = Config(model=ModelConfig(vocabulary=len(subwords), **{**sizes, **changes}), search=search)
    torch.manual_seed(1)
    model = Transformer(config.model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float(name.endswith("norm.weight")), std=0.3 if weight.ndim == 1 else 1.0)
        model.output.weight[END] *= 2  # so that some come to an end
    save_model(folder, config, model.state_dict(), {"source": subwords, "target": subwords}, {})
    return folder
