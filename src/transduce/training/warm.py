"""Warm starts: another model's weights as the first ones, for the same or another vocabulary."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.model.saved import Loaded, Vocabularies
from transduce.model.transformer import Transformer
from transduce.text.subwords import END, Subwords

# Which side's subwords the rows of a matrix stand for.
_ROWS = {"embedding.weight": "target", "source_embedding.weight": "source", "output.weight": "target"}


@dataclass(frozen=True)
class Carried:
    """How many subwords kept their vectors, how many were put together from others, how many begin by chance."""

    kept: int
    composed: int
    fresh: int


def warm_start(model: Transformer, subwords: Vocabularies, start: Loaded) -> Carried:
    """Fill a model with another's weights; subwords that the other does not know begin as the mean of their pieces."""
    own, others = dict(model.named_parameters()), dict(start.model.named_parameters())
    problems = [f"{name} is missing there" for name in own.keys() - others.keys()]
    problems += [f"{name} is not in this model" for name in others.keys() - own.keys()]
    problems += [
        f"{name} has shape {tuple(others[name].shape)}, this model has {tuple(weight.shape)}"
        for name, weight in own.items()
        if name in others and name not in _ROWS and weight.shape != others[name].shape
    ]
    problems += [
        f"{name} has width {others[name].shape[1]}, this model has {own[name].shape[1]}"
        for name in _ROWS
        if name in own and name in others and own[name].shape[1] != others[name].shape[1]
    ]
    if problems:
        shown = [*sorted(problems)[:5], *([f"and {len(problems) - 5} more"] if len(problems) > 5 else [])]
        lines = [f"{start.folder}: {problem}" for problem in shown]
        raise DataError("\n".join([*lines, "use the same model settings: transduce train … --config with its values"]))
    carried: dict[str, Carried] = {}
    with torch.no_grad():
        for name, weight in own.items():
            if name in _ROWS:
                side = _ROWS[name]
                carried[side] = _carry_rows(weight, others[name], subwords[side], start.subwords[side])
            else:
                weight.copy_(others[name])
    counts = list(carried.values())
    return Carried(sum(c.kept for c in counts), sum(c.composed for c in counts), sum(c.fresh for c in counts))


def _carry_rows(weight: nn.Parameter, other: Tensor, subwords: Subwords, known: Subwords) -> Carried:
    """Fill an embedding row by row; rows of new subwords stay as drawn where nothing is known of their pieces."""
    ids = {piece: number for number, piece in enumerate(known.pieces(range(len(known))))}
    counts = {"kept": 0, "composed": 0, "fresh": 0}
    for number, piece in enumerate(subwords.pieces(range(len(subwords)))):
        if piece in ids:
            weight[number] = other[ids[piece]]
            counts["kept"] += 1
        elif pieces := [token for token in known.encode_piece(piece) if token > END]:
            weight[number] = other[pieces].mean(0)
            counts["composed"] += 1
        else:
            counts["fresh"] += 1
    return Carried(**counts)
