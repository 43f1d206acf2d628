"""Renumber vocabularies of other toolkits as ours, and rewrite their SentencePiece models to these numbers.

Ours begin with padding, unknown, begin and end. All other tokens follow in their own order. A side's SentencePiece
model is rewritten with the whole vocabulary as its pieces; those that this side never splits a text into are marked as
unused, so that two models can share one vocabulary and each splits as before. Pieces that the vocabulary lacks come
after it and are unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.text.pieces import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Piece,
    PieceModel,
    read_pieces,
    unused,
    write_pieces,
)
from transduce.text.subwords import BEGIN as BEGIN_ID
from transduce.text.subwords import END as END_ID
from transduce.text.subwords import LAST, SPACE, Subwords
from transduce.text.subwords import PAD as PAD_ID
from transduce.text.subwords import UNKNOWN as UNKNOWN_ID

NEVER = -1000.0  # a logit's bias for a token that does not exist: its probability is 0, and nothing becomes infinite
NOWHERE = -1  # a row that the other toolkit does not have
# The share of a SentencePiece model's pieces that must be tokens. Of a model learned from other text in the same
# language about a third are; of the right one nearly all, except those that small corpora never used.
OWN, JOINT = 0.6, 0.1
_TAG = re.compile(r">>.+<<")


@dataclass(frozen=True)
class Foreign:
    """A vocabulary as another toolkit numbers it."""

    tokens: Sequence[str]
    unknown: int
    end: int | None
    """none: texts get no end token"""
    pad: int | None = None
    begin: int | None = None
    """the decoder's first input; none: zeros"""


@dataclass(frozen=True)
class Numbering:
    """The other toolkit's row for each of our tokens, and the tokens that must never be output."""

    rows: list[int]
    never: list[int]
    names: list[str]
    unknown: list[str]
    """pieces that a text may be split into, but that are no tokens"""

    def take(self, weight: Tensor) -> Tensor:
        """Return a matrix or a vector in our order, with zeros for missing rows."""
        rows = torch.tensor(self.rows)
        taken = weight[rows.clamp(min=0)].clone()
        taken[rows == NOWHERE] = 0
        return taken

    def bias(self, bias: Tensor | None) -> Tensor:
        """Return the bias of the logits, with which added tokens are never output."""
        taken = torch.zeros(len(self.rows)) if bias is None else self.take(bias.flatten())
        taken[self.never] = NEVER
        return taken


def number_tokens(foreign: Foreign, models: Sequence[PieceModel]) -> Numbering:
    """Number a vocabulary as ours, then the pieces of its SentencePiece models that it lacks."""
    special = {foreign.pad, foreign.unknown, foreign.end}
    others = [row for row in range(len(foreign.tokens)) if row not in {*special, foreign.begin}]
    names = [_symbol(foreign.tokens[row]) for row in others]
    known = {*names, *(foreign.tokens[row] for row in {*special, foreign.begin} if row is not None)}
    # Pieces that the vocabulary lacks are unknown and come after it.
    pieces = (piece for model in models for piece in model.pieces if piece.kind not in (UNKNOWN, CONTROL))
    added = list(dict.fromkeys(piece.text for piece in pieces if piece.text not in known))
    never = [BEGIN_ID] if foreign.begin in (None, *special) else []
    never += [PAD_ID] if foreign.pad in (None, foreign.unknown, foreign.end) else []
    specials = [_free(name, {*names, *added}) for name in ("<pad>", "<unk>", "<s>", "</s>")]
    rows = [NOWHERE if row is None else row for row in (foreign.pad, foreign.unknown, foreign.begin, foreign.end)]
    return Numbering([*rows, *others], never, [*specials, *names], added)


def make_subwords(numbering: Numbering, model: PieceModel, *, ends: bool = True) -> Subwords:
    """Make subwords that split a text as the model does, into our numbers, with an end token if `ends`."""
    known = {piece.text: piece for piece in model.pieces if piece.kind not in (UNKNOWN, CONTROL)}
    names = [*numbering.names, LAST, *numbering.unknown] if numbering.unknown else numbering.names
    pieces = [known.get(name) or _unused(name, model) for name in names]
    if numbering.unknown:
        pieces[len(numbering.names)] = Piece(LAST, 0.0, CONTROL)
    for number, kind in ((PAD_ID, CONTROL), (UNKNOWN_ID, UNKNOWN), (BEGIN_ID, CONTROL), (END_ID, CONTROL)):
        pieces[number] = Piece(numbering.names[number], 0.0, kind)
    if not ends:
        pieces[END_ID] = unused(numbering.names[END_ID], model)
    written = write_pieces(model, pieces, (UNKNOWN_ID, BEGIN_ID, END_ID, PAD_ID))
    try:
        return Subwords(written)
    except RuntimeError as error:
        raise DataError(f"SentencePiece rejects the vocabulary ({error})") from error


def number_sides(
    foreign: dict[str, Foreign], models: dict[str, PieceModel], *, source_ends: bool = True
) -> tuple[dict[str, Numbering], dict[str, Subwords]]:
    """Return the numberings and subwords of both sides, the same object for both if they are equal."""
    shared = foreign["source"] == foreign["target"]
    # If one model split both texts, each of them, and even both together, may have few of its pieces.
    share = JOINT if models["source"].pieces == models["target"].pieces else OWN
    for side, model in models.items():
        tokens = set(foreign[side].tokens)
        _refuse_few(tokens, list(models.values()) if shared else [model], side)
        _refuse_stranger(tokens, model, share, side)
    if shared:
        numberings = dict.fromkeys(foreign, number_tokens(foreign["target"], list(models.values())))
    else:
        numberings = {side: number_tokens(foreign[side], [models[side]]) for side in foreign}
    source = make_subwords(numberings["source"], models["source"], ends=source_ends)
    target = make_subwords(numberings["target"], models["target"])
    return numberings, {"source": source, "target": source if source.model == target.model else target}


def _refuse_stranger(tokens: set[str], model: PieceModel, share: float, side: str) -> None:
    """Refuse a SentencePiece model if few of its pieces are tokens: it did not make them."""
    pieces = model.texts()
    known = len(pieces & tokens)
    if known < share * len(pieces):
        raise DataError(
            f"{model.origin}: {known:,} of its {len(pieces):,} pieces are among the {len(tokens):,} {side} tokens, and "
            f"{share:.0%} should be; it belongs to another model: name the one that the {side} was split with"
        )


def _refuse_few(tokens: set[str], models: Sequence[PieceModel], side: str) -> None:
    """Refuse SentencePiece models if few tokens are among their pieces: they did not make them."""
    known = len(tokens.intersection(piece.text for model in models for piece in model.pieces))
    if known < len(tokens) / 2:
        names = " and ".join(dict.fromkeys(model.origin for model in models))
        raise DataError(
            f"{names}: only {known:,} of the {len(tokens):,} {side} tokens are among its pieces; the text was split in "
            "another way: name the model it was split with"
        )


def read_entries(path: Path, what: str) -> list[str]:
    """Read the lines of a list of tokens, which its toolkit calls `what`."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable {what} ({error}); name those of both sides: --vocabularies") from error


def read_models(files: Sequence[Path]) -> dict[str, PieceModel]:
    """Read the SentencePiece models of source and target, or one for both."""
    models: dict[str, PieceModel] = {}
    for side, file in (("source", files[0]), ("target", files[-1])):
        try:
            models[side] = read_pieces(file.read_bytes(), str(file))
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    return models


def check_rows(origin: str, source: Tensor, target: Tensor, numberings: dict[str, Numbering]) -> None:
    """Refuse embeddings with more or fewer rows than their vocabulary has tokens."""
    for side, embedding in (("source", source), ("target", target)):
        wanted = 1 + max(numberings[side].rows)
        if len(embedding) != wanted:
            raise DataError(
                f"{origin}: has {len(embedding):,} {side} embeddings, but its vocabulary has {wanted:,} tokens"
            )


def _symbol(token: str) -> str:
    """Return a token as a piece: language tags such as >>de<< precede the text as words of their own."""
    return SPACE + token if _TAG.fullmatch(token) else token


def _unused(name: str, model: PieceModel) -> Piece:
    """Return a piece that this side never splits into; but a language tag as one that is kept whole."""
    if name.startswith(SPACE) and _TAG.fullmatch(name[1:]):
        # Scores are negative, so with 0 a tag is the best split of its text; BPE needs a user-defined symbol.
        return Piece(name, 0.0, USER_DEFINED if model.is_bpe else NORMAL)
    return unused(name, model)


def _free(name: str, taken: set[str]) -> str:
    """Return the name, or a similar one that is not taken."""
    while name in taken:
        name = f"{name[:-1]}_>"
    return name
