"""Warm starts: begin with another model's weights, or its encoder's, for the same or another vocabulary."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce import strict
from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.model.saved import Loaded, Vocabularies, load_model
from transduce.model.transformer import Transformer
from transduce.text.shards import DataSet
from transduce.text.subwords import END, UNKNOWN, Subwords
from transduce.training.optimiser import is_of_encoder

ORIGINS = ("began_with", "encoder_of", "trained_before")
INHERITED = ("languages",)  # facts that a model takes over from the one it began with
# Matrices with a row for each subword, and the side whose subwords these are.
_ROWS = {
    "embedding.weight": "target",
    "source_embedding.weight": "source",
    "output.weight": "target",
    "output_bias": "target",
}


@dataclass(frozen=True)
class Carried:
    """How many subwords kept their vectors, were composed from others', or begin as the unknown token."""

    kept: int
    composed: int
    fresh: int

    def __str__(self) -> str:
        return (
            f"{self.kept:,} subwords kept, {self.composed:,} composed from their pieces, {self.fresh:,} unknown to it"
        )


@dataclass(frozen=True)
class Start:
    """A run or a model that another begins from."""

    path: Path
    encoder: bool = False
    """take only its encoder; the decoder starts afresh"""

    def begin(self, model: Transformer, data: DataSet) -> tuple[dict[str, Any], list[str]]:
        """Fill a model; return what it must record of where it comes from, and notes to print."""
        known = load_model(self.path)
        if self.encoder:
            carried = borrow_encoder(model, data.subwords, known)
            notes = [f"started with the encoder of {self.path}: {carried}"]
            origin: dict[str, Any] = {"encoder_of": known.name}
        else:
            carried = warm_start(model, data.subwords, known)
            notes = [f"started with the weights of {self.path}: {carried}"]
            origin = {"began_with": known.name, **{key: known.about[key] for key in INHERITED if key in known.about}}
            before, now = origin.get("languages"), data.describe().get("languages")
            if before and now and before != now:
                notes.insert(
                    0, f"note: {self.path} translates {'-'.join(before)}, but this data set is {'-'.join(now)}"
                )
        if "trained_on" in known.about:
            origin["trained_before"] = [*known.about.get("trained_before", ()), known.about["trained_on"]]
        if carried.kept < len(known.subwords["source" if self.encoder else "target"]):
            notes.append(
                f"note: the data set has other subwords; prepare it with --subwords.reuse {self.path} to keep all"
            )
        return origin, notes


def remembered(about: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint records of where its model came from."""
    return {key: about[key] for key in (*ORIGINS, *INHERITED) if key in about} if {*ORIGINS} & about.keys() else {}


def borrow_encoder(model: Transformer, subwords: Vocabularies, start: Loaded) -> Carried:
    """Fill a model's encoder, and the vectors of its source subwords, with another's."""
    _refuse(start, model.config.encoder_settings(), start.config.model.encoder_settings())
    own, others = dict(model.named_parameters()), dict(start.model.named_parameters())
    with torch.no_grad():
        for name in filter(is_of_encoder, own):
            if name not in _ROWS:
                own[name].copy_(others[name])
        mine, theirs = (
            parameters.get("source_embedding.weight", parameters["embedding.weight"]) for parameters in (own, others)
        )
        return _carry_rows(mine, theirs, [(subwords["source"], start.subwords["source"])])


def warm_start(model: Transformer, subwords: Vocabularies, start: Loaded) -> Carried:
    """Fill a model with another's weights; subwords that the other lacks begin as the mean of their pieces."""
    _refuse(start, *map(_essence, (model.config, start.config.model)))
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


def _refuse(start: Loaded, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    lines: list[str] = []
    for name, value in ours.items():
        if theirs.get(name, value) != value:
            here, there = (strict.literal(each).strip('"') for each in (value, theirs[name]))
            flag = f"--model.{name.replace('_', '-')} {there}"
            lines.append(f"{start.folder}: model.{name} is {there} there and {here} here; use {flag}")
    if lines:
        raise DataError("\n".join(lines))


def _essence(config: ModelConfig) -> dict[str, Any]:
    """Return the settings that change what the same weights mean: all but dropout and the vocabularies."""
    (encoder_layers, decoder_layers), (d_k, d_v) = config.stacks(), config.head_widths()
    settled = replace(config, encoder_layers=encoder_layers, decoder_layers=decoder_layers, d_k=d_k, d_v=d_v)
    left_out = {"vocabulary", "source_vocabulary", "dropout", "attention_dropout", "feed_forward_dropout", "layers"}
    if config.positions != "learned":
        left_out.add("max_positions")
    return {name: value for name, value in strict.to_dict(settled).items() if name not in left_out}


def _sides(subwords: Vocabularies, known: Vocabularies, side: str) -> list[tuple[Subwords, Subwords]]:
    """Return the subwords that rows stand for, and those to carry them from; of both sides if they share the rows."""
    other = "source" if side == "target" else "target"
    shared = subwords[side] is not subwords[other] and subwords[side].numbers_like(subwords[other])
    return [(subwords[name], known[name]) for name in ((side, other) if shared else (side,))]


def _carry_rows(weight: nn.Parameter, other: Tensor, sides: list[tuple[Subwords, Subwords]]) -> Carried:
    """Fill an embedding row by row; new subwords without known pieces begin as the other's unknown token."""
    subwords, known = sides[0]
    ids = {piece: number for number, piece in enumerate(known.pieces(range(len(known))))}
    counts = {"kept": 0, "composed": 0, "fresh": 0}
    for number, piece in enumerate(subwords.pieces(range(len(subwords)))):
        if piece in ids:
            weight[number] = other[ids[piece]]
            counts["kept"] += 1
            continue
        # If both sides share a vocabulary, take the side whose texts are split into this subword.
        known = next((old for new, old in sides if new.splits_into(number)), sides[0][1])
        if pieces := [token for token in known.encode_piece(piece) if token > END]:
            weight[number] = other[pieces].mean(0)
            counts["composed"] += 1
        else:
            weight[number] = other[UNKNOWN]
            counts["fresh"] += 1
    return Carried(**counts)
