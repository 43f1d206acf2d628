"""Warm starts: another model's weights as the first ones, for the same or another vocabulary."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from transduce import strict
from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.model.saved import Loaded, Vocabularies
from transduce.model.transformer import Transformer
from transduce.text.subwords import END, UNKNOWN, Subwords

# Which side's subwords the rows of a matrix stand for.
_ROWS = {
    "embedding.weight": "target",
    "source_embedding.weight": "source",
    "output.weight": "target",
    "output_bias": "target",
}


@dataclass(frozen=True)
class Carried:
    """How many subwords kept their vectors, how many were put together from others, how many begin as the unknown."""

    kept: int
    composed: int
    fresh: int


def warm_start(model: Transformer, subwords: Vocabularies, start: Loaded) -> Carried:
    """Fill a model with another's weights; subwords that the other does not know begin as the mean of their pieces."""
    if differences := _differences(model.config, start.config.model):
        lines = [
            f"{start.folder}: model.{name} is {theirs} there and {ours} here; use {_flag(name)} {theirs}"
            for name, (theirs, ours) in differences.items()
        ]
        raise DataError("\n".join(lines))
    own, others = dict(model.named_parameters()), dict(start.model.named_parameters())
    carried: dict[str, Carried] = {}
    with torch.no_grad():
        for name, weight in own.items():
            if name in _ROWS:
                side = _ROWS[name]
                carried[side] = _carry_rows(weight, others[name], _sides(subwords, start.subwords, side))
            else:
                weight.copy_(others[name])
    counts = list(carried.values())
    return Carried(sum(c.kept for c in counts), sum(c.composed for c in counts), sum(c.fresh for c in counts))


def _differences(own: ModelConfig, other: ModelConfig) -> dict[str, tuple[str, str]]:
    """Settings that make the same weights mean something else: all but dropout and the vocabularies."""
    ours, theirs = map(_essence, (own, other))
    return {
        name: (strict.literal(theirs[name]).strip('"'), strict.literal(value).strip('"'))
        for name, value in ours.items()
        if theirs.get(name, value) != value
    }


def _essence(config: ModelConfig) -> dict[str, Any]:
    (encoder_layers, decoder_layers), (d_k, d_v) = config.stacks(), config.head_widths()
    settled = replace(config, encoder_layers=encoder_layers, decoder_layers=decoder_layers, d_k=d_k, d_v=d_v)
    left_out = {"vocabulary", "source_vocabulary", "dropout", "attention_dropout", "feed_forward_dropout", "layers"}
    if config.positions != "learned":
        left_out.add("max_positions")
    return {name: value for name, value in strict.to_dict(settled).items() if name not in left_out}


def _flag(name: str) -> str:
    return f"--model.{name.replace('_', '-')}"


def _sides(subwords: Vocabularies, known: Vocabularies, side: str) -> list[tuple[Subwords, Subwords]]:
    """The subwords that rows stand for and those they are carried from; of both sides where they share the rows."""
    other = "source" if side == "target" else "target"
    shared = subwords[side] is not subwords[other] and subwords[side].numbers_like(subwords[other])
    return [(subwords[name], known[name]) for name in ((side, other) if shared else (side,))]


def _carry_rows(weight: nn.Parameter, other: Tensor, sides: list[tuple[Subwords, Subwords]]) -> Carried:
    """Fill an embedding row by row; new subwords whose pieces were unknown begin as the unknown did."""
    subwords, known = sides[0]
    ids = {piece: number for number, piece in enumerate(known.pieces(range(len(known))))}
    counts = {"kept": 0, "composed": 0, "fresh": 0}
    for number, piece in enumerate(subwords.pieces(range(len(subwords)))):
        if piece in ids:
            weight[number] = other[ids[piece]]
            counts["kept"] += 1
            continue
        # Of two sides with one vocabulary the one counts whose texts are split into this subword.
        known = next((old for new, old in sides if new.splits_into(number)), sides[0][1])
        if pieces := [token for token in known.encode_piece(piece) if token > END]:
            weight[number] = other[pieces].mean(0)
            counts["composed"] += 1
        else:
            weight[number] = other[UNKNOWN]
            counts["fresh"] += 1
    return Carried(**counts)
