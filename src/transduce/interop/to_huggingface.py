"""Export models for Hugging Face's transformers: a folder that AutoModelForSeq2SeqLM and AutoTokenizer load.

The paper's model is Marian there, one with norms before the sub-layers is Pegasus, and one that also has learned
positions is Blenderbot: three classes with the same names of weights. The tokenizer is always Marian's.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.disk import write_json, write_synced
from transduce.interop.check import Pair, Said
from transduce.interop.parts import AttentionParts, Parts, longest_known, position_tables, take_apart
from transduce.interop.rewrite import Linear
from transduce.interop.to_ctranslate2 import LIMIT, token_names
from transduce.model.saved import Loaded, Precision, write_tensors
from transduce.text.shards import SIDES
from transduce.text.subwords import BEGIN, END, PAD, UNKNOWN

_CLASSES = {
    ("post", "sinusoidal"): ("marian", "MarianMTModel"),
    ("pre", "sinusoidal"): ("pegasus", "PegasusForConditionalGeneration"),
    ("pre", "learned"): ("blenderbot", "BlenderbotForConditionalGeneration"),
}
# Their tokenizer leaves the space behind a tag: normalizer_spec { remove_extra_whitespaces: true }
_NO_EXTRA_SPACES = bytes([3 << 3 | 2, 2, 4 << 3, 1])
_EPSILON = 1e-5  # in all their norms
_BATCH = 16

PRECISIONS: tuple[str, ...] = ("float32",)
WRITTEN_WITH: tuple[str, ...] = ()
CHECKED_WITH: tuple[str, ...] = ("transformers",)
ALIKE: bool = False
UNSAID: tuple[int, ...] = ()
USE: str = """\
```sh
pip install transformers torch sentencepiece sacremoses
```

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
found = model.generate(**tokenizer(["EXAMPLE"], return_tensors="pt", padding=True))
print(tokenizer.batch_decode(found, skip_special_tokens=True))
```

The length penalty of `generate` is tokens ** length_penalty; that of transduce is ((5 + tokens) / 6) **
length_penalty."""


def find_problems(loaded: Loaded) -> list[str]:
    """Return what no class of transformers computes."""
    config = loaded.config.model
    kind = _CLASSES.get((config.norm, config.positions))
    share = config.d_model // config.heads
    problems = []
    if kind is None:
        problems.append(
            f'model.norm = "{config.norm}" with model.positions = "{config.positions}", but transformers has '
            "no translation model of that kind"
        )
    if config.attention == "additive":
        problems.append('model.attention = "additive", but transformers supports dot products only')
    if config.activation == "swiglu":
        problems.append('model.activation = "swiglu", but the feed-forward networks of transformers have two matrices')
    if config.norm_epsilon != _EPSILON:
        problems.append(f"model.norm_epsilon = {config.norm_epsilon}, but the norms of transformers have {_EPSILON}")
    if config.d_model % config.heads or max(config.head_widths()) > share:
        problems.append(
            f"heads of {max(config.head_widths())} numbers, but those of transformers have at most d_model / heads = "
            f"{share}"
        )
    if not loaded.subwords["source"].ends:
        problems.append("sources without an end token, but the tokenizer of transformers adds one")
    if kind and kind[0] != "marian" and config.tie != "all":
        problems.append(f'model.tie = "{config.tie}", but {kind[1]} shares one matrix (model.tie = "all")')
    return problems


def write(loaded: Loaded, folder: Path, precision: Precision) -> None:
    """Write the export into a folder."""
    config = loaded.config.model
    kind, architecture = _CLASSES[config.norm, config.positions]
    order = "turns" if config.positions == "learned" else "halves"
    parts = take_apart(loaded.model, config.d_model // config.heads, order)
    weights = dict(_weights(parts))
    if kind == "pegasus":  # it would compute the same table, but only Marian does so without a warning
        for stack, table in zip(("encoder", "decoder"), position_tables(parts, config)):
            halves = torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)  # all sines, then all cosines
            weights[f"model.{stack}.embed_positions.weight"] = halves
    write_tensors(folder / "model.safetensors", weights, {"format": "pt"})
    separate = not loaded.subwords["source"].numbers_like(loaded.subwords["target"])
    names = {side: token_names(loaded, side) for side in SIDES}
    write_json(folder / "config.json", _settings(config, kind, architecture))
    search = loaded.config.search
    generation = {
        **{"bos_token_id": BEGIN, "decoder_start_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD},
        **{"num_beams": search.beam, "length_penalty": search.alpha, "suppress_tokens": [PAD, BEGIN]},
        **{"max_length": min(512, longest_known(config)), "early_stopping": "never"},
    }
    write_json(folder / "generation_config.json", generation)
    for side in SIDES:
        write_synced(folder / f"{side}.spm", loaded.subwords[side].model + _NO_EXTRA_SPACES)
    write_json(folder / "vocab.json", _numbers(names["source"]))
    if separate:
        write_json(folder / "target_vocab.json", _numbers(names["target"]))
    special = {"unk_token": UNKNOWN, "eos_token": END, "pad_token": PAD}
    languages = loaded.about.get("languages") or (None, None)
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        **{name: names["target"][number] for name, number in special.items()},
        **{f"{side}_lang": language for side, language in zip(SIDES, languages)},
        "separate_vocabs": separate,
        "model_max_length": min(512, longest_known(config)),
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / "tokenizer_config.json", tokenizer)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep transformers offline and silent, then restore its logging settings."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@_quietly()
def translate(folder: Path, lines: Sequence[str], beam: int, most: int | None) -> list[Said]:
    """Translate with transformers itself, without a length penalty."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(str(folder))
    settings = {"num_beams": beam, "max_length": (most or LIMIT) + 1, "do_sample": False}
    settings |= {"length_penalty": 0.0, "early_stopping": "never"} if beam > 1 else {"early_stopping": False}
    found: list[Said] = []
    for first in range(0, len(lines), _BATCH):
        given = tokenizer(list(lines[first : first + _BATCH]), return_tensors="pt", padding=True)
        with torch.inference_mode():
            tokens = model.generate(**given, **settings)
        texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        found += [Said(text, END in line) for text, line in zip(texts, tokens.tolist())]
    return found


@_quietly()
def score(loaded: Loaded, folder: Path, pairs: Sequence[Pair]) -> list[float]:
    """Return the log-probabilities that transformers gives to translations."""
    from transformers import AutoModelForSeq2SeqLM

    model: Any = AutoModelForSeq2SeqLM.from_pretrained(str(folder))
    found: list[float] = []
    for source, target in pairs:
        given = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[BEGIN, *target[:-1]]])}
        with torch.inference_mode():
            logits = model(**given).logits[0]
        found.append(float(logits.log_softmax(-1)[range(len(target)), target].sum()))
    return found


def _numbers(names: list[str]) -> dict[str, int]:
    return {_plain(name): number for number, name in enumerate(names)}


def _plain(name: str) -> str:
    """Return a token's name there: tags such as >>de<< are whole tokens, without a space before them."""
    return name[1:] if name[1:].startswith(">>") and name.endswith("<<") else name


def _settings(config: ModelConfig, kind: str, architecture: str) -> dict[str, Any]:
    encoder_layers, decoder_layers = config.stacks()
    settings = {
        "model_type": kind,
        "architectures": [architecture],
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocabulary or config.vocabulary,
        "d_model": config.d_model,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        "scale_embedding": True,
        "max_position_embeddings": longest_known(config),
        "tie_word_embeddings": config.tie != "none",
        **{"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END},
        **{"decoder_start_token_id": BEGIN, "forced_eos_token_id": None},
        "dtype": "float32",
    }
    for stack in ("encoder", "decoder"):
        settings |= {f"{stack}_attention_heads": config.heads, f"{stack}_ffn_dim": config.d_ff}
    if kind == "marian":
        settings["decoder_vocab_size"] = config.vocabulary
        settings["share_encoder_decoder_embeddings"] = config.tie == "all"
    return settings


def _weights(parts: Parts) -> Iterator[tuple[str, Tensor]]:
    if parts.source is parts.target:
        yield "model.shared.weight", parts.target
    else:
        yield "model.encoder.embed_tokens.weight", parts.source
        yield "model.decoder.embed_tokens.weight", parts.target
    if parts.output is not parts.target:
        yield "lm_head.weight", parts.output
    yield "final_logits_bias", parts.bias[None]
    for (stack, layers, norm), place in zip(parts.stacks(), parts.positions or (None, None)):
        if place is not None:
            yield f"model.{stack}.embed_positions.weight", place
        for number, layer in enumerate(layers):
            name = f"model.{stack}.layers.{number}"
            yield from _attention(f"{name}.self_attn", layer.self_attention)
            if layer.cross_attention:
                yield from _attention(f"{name}.encoder_attn", layer.cross_attention)
            for theirs, linear in (("fc1", layer.inner), ("fc2", layer.outer), ("final_layer_norm", layer.norm)):
                yield from _linear(f"{name}.{theirs}", linear)
        if norm:
            yield from _linear(f"model.{stack}.layer_norm", norm)


def _attention(name: str, attention: AttentionParts) -> Iterator[tuple[str, Tensor]]:
    for part in ("query", "key", "value", "output"):
        yield from _linear(f"{name}.{'out' if part == 'output' else part[0]}_proj", getattr(attention, part))
    yield from _linear(f"{name}_layer_norm", attention.norm)


def _linear(name: str, linear: Linear) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", linear.weight
    if linear.bias is not None:
        yield f"{name}.bias", linear.bias
