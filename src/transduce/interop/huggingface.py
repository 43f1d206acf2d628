"""Read Marian models saved by Hugging Face, such as the OPUS-MT pairs: a folder of settings, weights and pieces.

Its files: config.json, model.safetensors (or pytorch_model.bin), source.spm, target.spm, vocab.json, target_vocab.json
if each side has its own, tokenizer_config.json, generation_config.json.
"""

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.interop.checkpoint import as_tensors, read_checkpoint
from transduce.interop.rewrite import Draft, Embeddings, Imported, Tensors, find_activation, make_config
from transduce.interop.vocabulary import Foreign, number_sides
from transduce.model.positions import sinusoids
from transduce.model.saved import read_tensors
from transduce.text.pieces import read_pieces
from transduce.text.shards import SIDES


def read_huggingface(folder: Path) -> Imported:
    """Read a folder that Hugging Face's MarianMTModel and MarianTokenizer were saved to."""
    config = _read_json(folder / "config.json")
    _refuse_others(folder, config)
    tensors = Tensors(_read_weights(folder), str(folder))
    tokenizer = _read_json(folder / "tokenizer_config.json", otherwise={})
    generation = _read_json(folder / "generation_config.json", otherwise=config)
    models = {side: read_pieces(_read(folder / f"{side}.spm"), str(folder / f"{side}.spm")) for side in SIDES}
    separate = bool(tokenizer.get("separate_vocabs"))
    pad, begin = config["pad_token_id"], config.get("decoder_start_token_id", config["pad_token_id"])
    embeddings = _embeddings(tensors, config)
    target_tokens = _read_tokens(folder / ("target_vocab.json" if separate else "vocab.json"), embeddings.target)
    target_foreign = _foreign(folder, target_tokens, config, tokenizer, pad, begin)
    if separate:
        source_tokens = _read_tokens(folder / "vocab.json", embeddings.source)
        source_foreign = _foreign(folder, source_tokens, config, tokenizer, pad, begin)
    else:
        source_foreign = target_foreign
    numberings, subwords = number_sides({"source": source_foreign, "target": target_foreign}, models)

    draft = Draft()
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    for stack, layers in (("encoder", config["encoder_layers"]), ("decoder", config["decoder_layers"])):
        for number in range(layers):
            draft.layer(tensors, "model.", stack, number)
        _check_positions(tensors.find(f"model.{stack}.embed_positions.weight"), folder)
    tensors.refuse_unused()
    model = ModelConfig(
        **sizes,
        layers=config["encoder_layers"],
        decoder_layers=None if config["decoder_layers"] == config["encoder_layers"] else config["decoder_layers"],
        d_model=config["d_model"],
        d_ff=config["encoder_ffn_dim"],
        heads=config["encoder_attention_heads"],
        activation=find_activation(config.get("activation_function", "gelu"), str(folder / "config.json")),
        biases=True,
        dropout=config.get("dropout", 0.1),
        attention_dropout=config.get("attention_dropout", 0.0),
        feed_forward_dropout=config.get("activation_dropout", 0.0),
    )
    weights = draft.finish(model, "halves", str(folder))
    whole = make_config(model, generation.get("num_beams"), generation.get("length_penalty", 1.0))
    return Imported(whole, weights, subwords, _languages(folder, config, tokenizer))


def _embeddings(tensors: Tensors, config: dict[str, Any]) -> Embeddings:
    shared = tensors.find("model.shared.weight")
    source, target = (tensors.find(f"model.{stack}.embed_tokens.weight") for stack in ("encoder", "decoder"))
    output = tensors.find("lm_head.weight")
    if config.get("share_encoder_decoder_embeddings", True):
        source = target = next((some for some in (shared, source, target, output) if some is not None), None)
    if target is None:
        target = output if source is None or config.get("tie_word_embeddings", True) else None
    if source is None or target is None:
        raise DataError(f"{tensors.origin}: its weights have no embeddings; it is not a MarianMTModel")
    if output is None or config.get("tie_word_embeddings", True):
        output = target
    bias = tensors.find("final_logits_bias")
    return Embeddings(source, target, output, bias, bool(config.get("scale_embedding")))


def _foreign(
    folder: Path, tokens: list[str], config: dict[str, Any], tokenizer: dict[str, Any], pad: int, begin: int
) -> Foreign:
    """Return the vocabulary with its special tokens: padding and begin are the model's, the others the tokenizer's."""
    names = {name: _content(tokenizer.get(f"{name}_token")) or usual for name, usual in _SPECIAL.items()}
    missing = [name for name in names.values() if name not in tokens]
    if missing:
        raise DataError(f"{folder}: its vocabulary has no {', '.join(missing)}")
    unknown, end = (tokens.index(name) for name in names.values())
    if end != config.get("eos_token_id", end):
        raise DataError(f"{folder}: config.json ends sentences with {config['eos_token_id']}, vocab.json with {end}")
    return Foreign(tokens, unknown, end, pad, begin)


_SPECIAL = {"unk": "<unk>", "eos": "</s>"}


def _content(token: Any) -> str | None:
    """Return the text of a special token, which is stored as a string or as an object that holds it."""
    return token.get("content") if isinstance(token, dict) else token


def _check_positions(table: Tensor | None, folder: Path) -> None:
    """Refuse a saved table of positions that is not the sinusoids, since ours are computed."""
    if table is None:
        return
    turns = sinusoids(torch.arange(len(table)), table.shape[1])
    halves = torch.cat((turns[:, 0::2], turns[:, 1::2]), 1)
    if not torch.allclose(table, halves, atol=1e-3):
        raise DataError(f"{folder}: its positions are not sinusoids; Hugging Face's Marian has no others")


def _refuse_others(folder: Path, config: dict[str, Any]) -> None:
    path = folder / "config.json"
    if config.get("model_type") != "marian":
        raise DataError(f"{path}: model_type is {config.get('model_type')!r}; only marian (OPUS-MT) can be imported")
    problems = [
        f"{path}: {name} is set, which Hugging Face's Marian does not support; import the .npz it was made from"
        for name in ("normalize_before", "normalize_embedding", "add_final_layer_norm")
        if config.get(name)
    ]
    problems += [
        f"{path}: encoder_{name} is {config[f'encoder_{name}']} and decoder_{name} {config[f'decoder_{name}']}; "
        "our model has one for both"
        for name in ("ffn_dim", "attention_heads")
        if config[f"encoder_{name}"] != config[f"decoder_{name}"]
    ]
    if problems:
        raise DataError("\n".join(problems))


def _languages(folder: Path, config: dict[str, Any], tokenizer: dict[str, Any]) -> tuple[str, str] | None:
    """Return the languages that the tokenizer names, or else the model's name, as in opus-mt-en-de."""
    given = tuple(tokenizer.get(f"{side}_lang") for side in SIDES)
    if all(given):
        return str(given[0]), str(given[1])
    for name in (str(config.get("_name_or_path", "")), folder.resolve().name):
        if found := re.search(r"opus-mt-(?:tc-\w+-)?([a-zA-Z_]+)-([a-zA-Z_]+)$", name):
            return found[1], found[2]
    return None


def _read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").exists():
        return read_tensors(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").exists():
        path = folder / "pytorch_model.bin"
        return as_tensors(read_checkpoint(path), path)
    raise DataError(f"{folder}: has neither model.safetensors nor pytorch_model.bin")


def _read_tokens(path: Path, embedding: Tensor) -> list[str]:
    """Read a vocabulary, an object of tokens and their numbers; further rows of the embedding get made-up names."""
    numbers = _read_json(path)
    tokens = {number: token for token, number in numbers.items()}
    if sorted(tokens) != list(range(len(numbers))):
        raise DataError(f"{path}: its token numbers are not 0 to {len(numbers) - 1}, each once")
    if len(tokens) > len(embedding):
        raise DataError(f"{path}: has {len(tokens):,} tokens, but the model has embeddings for {len(embedding):,}")
    return [tokens.get(number, f"<row {number}>") for number in range(len(embedding))]


def _read_json(path: Path, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    if otherwise is not None and not path.exists():
        return otherwise
    try:
        found = json.loads(_read(path))
    except ValueError as error:
        raise DataError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: not a JSON object")
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
