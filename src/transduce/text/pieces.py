"""Read, change and write SentencePiece models as lists of pieces.

A model is a protocol buffer (sentencepiece_model.proto).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.errors import DataError
from transduce.protobuf import bytes_field, read_fields, single_field, whole_field
from transduce.text.subwords import hide

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = 1, 2
# Field numbers of a model, of a piece and of the trainer's settings.
_PIECES, _TRAINER = 1, 2
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _FIRST_ID, _FIRST_NAME = 3, 40, 45  # unknown, begin, end, padding: 40 to 43, and their names 45 to 48


class Piece(NamedTuple):
    """A piece of text, its score (log-probability, or rank of its merge in BPE) and its kind."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass(frozen=True)
class PieceModel:
    """A model: its pieces by their numbers, and the rest of it as it was read."""

    pieces: list[Piece]
    trainer: bytes
    rest: bytes
    origin: str = ""
    """where it was read from"""

    def texts(self) -> set[str]:
        """Return the pieces that texts are split into, except bytes."""
        return {piece.text for piece in self.pieces if piece.kind in (NORMAL, USER_DEFINED)}

    @property
    def is_bpe(self) -> bool:
        """Whether scores are ranks of merges."""
        return {number: value for number, value, _ in read_fields(self.trainer)}.get(_MODEL_TYPE, UNIGRAM) == BPE


def unused(name: str, model: PieceModel) -> Piece:
    """Return a piece that only takes up a number: no text is split into it."""
    # BPE merges unused pieces too and takes them apart later, but not always into the same parts.
    return Piece(hide(name) if model.is_bpe else name, 0.0, UNUSED)


def read_pieces(model: bytes, origin: str) -> PieceModel:
    """Read a model as SentencePiece writes it."""
    pieces: list[Piece] = []
    trainer, rest = b"", b""
    try:
        for number, value, raw in read_fields(model):
            if number == _PIECES and isinstance(value, bytes):
                pieces.append(_read_piece(value))
            elif number == _TRAINER and isinstance(value, bytes):
                trainer = value
            else:
                rest += raw
    except (IndexError, ValueError, struct.error) as error:
        raise DataError(f"{origin}: not a readable SentencePiece model ({error})") from error
    if not pieces or not trainer:
        raise DataError(f"{origin}: not a complete SentencePiece model")
    return PieceModel(pieces, trainer, rest, origin)


def write_pieces(model: PieceModel, pieces: Sequence[Piece], specials: tuple[int, int, int, int]) -> bytes:
    """Return the model with other pieces; `specials` are the numbers of unknown, begin, end and padding."""
    written = b"".join(bytes_field(_PIECES, _write_piece(piece)) for piece in pieces)
    # If a field occurs twice, the last one counts.
    trainer = model.trainer + b"".join(
        whole_field(_FIRST_ID + place, number) + bytes_field(_FIRST_NAME + place, pieces[number].text.encode())
        for place, number in enumerate(specials)
    )
    return written + bytes_field(_TRAINER, trainer) + model.rest


def _read_piece(data: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for number, value, _ in read_fields(data):
        if number == _TEXT and isinstance(value, bytes):
            text = value.decode()
        elif number == _SCORE and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == _KIND and isinstance(value, int):
            kind = value
    return Piece(text, score, kind)


def _write_piece(piece: Piece) -> bytes:
    return bytes_field(_TEXT, piece.text.encode()) + single_field(_SCORE, piece.score) + whole_field(_KIND, piece.kind)
