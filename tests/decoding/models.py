"""Tiny models on disk, with subwords learned for them."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from transduce.config import Config, ModelConfig, SearchConfig
from transduce.model.saved import save_model
from transduce.model.transformer import Transformer
from transduce.text import numbers
from transduce.text.subwords import END, Subwords, SubwordsConfig, learn

# Translations that never come to an end are cut soon.
SEARCH = SearchConfig(beam=2, extra_tokens=4)


@cache
def learn_subwords(size: int = 330) -> Subwords:
    """Learn subwords of the built-in numbers, English and German."""
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    return Subwords(learn(lines, SubwordsConfig(size=size, coverage=1.0)))


def learn_tagged(*languages: str) -> Subwords:
    """Learn the same subwords with a tag for each of these languages."""
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    tags = tuple(f">>{language}<<" for language in languages)
    return Subwords(learn(lines, SubwordsConfig(size=330 + len(tags), coverage=1.0, symbols=tags)))


def save_tiny(
    folder: Path,
    *,
    seed: int = 1,
    subwords: Subwords | None = None,
    search: SearchConfig = SEARCH,
    about: dict[str, Any] | None = None,
    spells: bool = False,
    **changes: Any,
) -> Path:
    """Save a model with random weights, which rarely produces byte subwords unless it is one that spells."""
    subwords = subwords or learn_subwords()
    sizes: dict[str, Any] = {"layers": 2, "d_model": 32, "d_ff": 48, "heads": 2, "tie": "none"}
    config = Config(model=ModelConfig(vocabulary=len(subwords), **{**sizes, **changes}), search=search)
    torch.manual_seed(seed)
    model = Transformer(config.model)
    with torch.no_grad():
        for name, weight in model.named_parameters():  # large, so that translations differ and none is nearly as good
            weight.normal_(mean=float(name.endswith("norm.weight")), std=0.3 if weight.ndim == 1 else 1.0)
        if not spells:
            model.output.weight[[subwords.processor.is_byte(token) for token in range(len(subwords))]] = 0
        model.output.weight[END] *= 2  # so that some come to an end
    save_model(folder, config, model.state_dict(), {"source": subwords, "target": subwords}, about or {})
    return folder
