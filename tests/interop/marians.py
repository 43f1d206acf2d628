"""Marian models made and saved by Hugging Face's own code: random weights, SentencePiece models learned here."""

import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from transduce.text import numbers

SPECIAL = ("<s>", "</s>", "<unk>")
SIZES = {"source": 130, "target": 120}


class Saved(NamedTuple):
    """One of their models and the folder it was saved to."""

    folder: Path
    model: Any
    tokenizer: Any


def texts(split: numbers.Split, count: int) -> dict[str, list[str]]:
    """Return sentences of the built-in corpus, English and German."""
    english, german = zip(*numbers.corpus(split, count))
    return {"source": list(english), "target": list(german)}


@cache
def learn_pieces(side: str, kind: str) -> bytes:
    """Learn a SentencePiece model as OPUS-MT does: from one side alone, with SentencePiece's own normalisation."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts("train", 600)[side]),
        model_writer=model,
        vocab_size=SIZES[side],
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def list_pieces(*models: bytes) -> list[str]:
    """Return the pieces of models, each once, in a new order."""
    found: dict[str, None] = {}
    for model in models:
        inner = sentencepiece.SentencePieceProcessor(model_proto=model)
        found |= dict.fromkeys(inner.id_to_piece(number) for number in range(inner.get_piece_size()))
    pieces = [piece for piece in found if piece not in SPECIAL]
    random.Random(1).shuffle(pieces)
    return pieces


def save_marian(folder: Path, *, kind: str = "unigram", separate: bool = False, **changes: Any) -> Saved:
    """Save a model and its tokenizer as `save_pretrained` does it."""
    models = {side: learn_pieces(side, kind) for side in SIZES}
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for side, model in models.items():
        (raw / f"{side}.spm").write_bytes(model)
    groups = [[models["source"]], [models["target"]]] if separate else [list(models.values())]
    # The last piece of each is missing from the vocabulary, as some of OPUS-MT's are.
    vocabularies = [["</s>", "<unk>", ">>de<<", ">>fr<<", *list_pieces(*some)[:-1], "<pad>"] for some in groups]
    if separate:  # one number for padding in both
        longest = max(map(len, vocabularies))
        vocabularies = [
            [*some[:-1], *(f"filler{number}" for number in range(longest - len(some))), "<pad>"]
            for some in vocabularies
        ]
    for name, vocabulary in zip(("vocab", "target_vocab"), vocabularies):
        numbered = {token: number for number, token in enumerate(vocabulary)}
        (raw / f"{name}.json").write_text(json.dumps(numbered), encoding="utf-8")
    own = {"separate_vocabs": True, "target_vocab_file": str(raw / "target_vocab.json")} if separate else {}
    tokenizer = MarianTokenizer(
        *(str(raw / name) for name in ("source.spm", "target.spm", "vocab.json")),
        source_lang="en",
        target_lang="de",
        **own,
    )
    model = make_model(len(vocabularies[0]), separate, **changes)
    model.save_pretrained(folder / "theirs")
    tokenizer.save_pretrained(folder / "theirs")
    return Saved(folder / "theirs", model, tokenizer)


def make_model(size: int, separate: bool, **changes: Any) -> Any:
    """Make a model with random weights, norms and biases, large enough to vary its output."""
    sizes: dict[str, Any] = {
        **{"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "activation_function": "swish"},
        **{"scale_embedding": True, "share_encoder_decoder_embeddings": not separate},
        **{"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0},
        **{"forced_eos_token_id": None, "max_position_embeddings": 128},
    }
    torch.manual_seed(0)
    model: Any = MarianMTModel(MarianConfig(vocab_size=size, **{**sizes, **changes})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.normal_(mean=float(name.endswith("norm.weight")), std=0.3 if weight.ndim == 1 else 0.4)
        if not model.config.scale_embedding:
            model.model.shared.weight *= 4
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] += 2  # so that some come to an end
    return model
