"""Read, change and write SentencePiece models as lists of pieces.

A model is a protocol buffer (sentencepiece_model.proto). The little of that format that is needed is implemented here,
because protobuf's own library would be a dependency for this alone.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.errors import DataError
from transduce.text.subwords import hide

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = 1, 2
# Field numbers of a model, of a piece and of the trainer's settings.
_PIECES, _TRAINER = 1, 2
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _FIRST_ID, _FIRST_NAME = 3, 40, 45  # unknown, begin, end, padding: 40 to 43, and their names 45 to 48
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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
        return {number: value for number, _, value in _fields(self.trainer)}.get(_MODEL_TYPE, UNIGRAM) == BPE


def unused(name: str, model: PieceModel) -> Piece:
    """Return a piece that only takes up a number: no text is split into it."""
    # BPE merges unused pieces too and takes them apart later, but not always into the same parts.
    return Piece(hide(name) if model.is_bpe else name, 0.0, UNUSED)


def read_pieces(model: bytes, origin: str) -> PieceModel:
    """Read a model as SentencePiece writes it."""
    pieces: list[Piece] = []
    trainer, rest = b"", b""
    try:
        for number, wire, value in _fields(model):
            if number == _PIECES and isinstance(value, bytes):
                pieces.append(_read_piece(value))
            elif number == _TRAINER and isinstance(value, bytes):
                trainer = value
            else:
                rest += _field(number, wire, value)
    except (IndexError, ValueError, struct.error) as error:
        raise DataError(f"{origin}: not a readable SentencePiece model ({error})") from error
    if not pieces or not trainer:
        raise DataError(f"{origin}: not a complete SentencePiece model")
    return PieceModel(pieces, trainer, rest, origin)


def write_pieces(model: PieceModel, pieces: Sequence[Piece], specials: tuple[int, int, int, int]) -> bytes:
    """Return the model with other pieces; `specials` are the numbers of unknown, begin, end and padding."""
    written = b"".join(_field(_PIECES, _BYTES, _write_piece(piece)) for piece in pieces)
    # If a field occurs twice, the last one counts.
    trainer = model.trainer + b"".join(
        _field(_FIRST_ID + place, _VARINT, number) + _field(_FIRST_NAME + place, _BYTES, pieces[number].text.encode())
        for place, number in enumerate(specials)
    )
    return written + _field(_TRAINER, _BYTES, trainer) + model.rest


def _read_piece(data: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for number, _, value in _fields(data):
        if number == _TEXT and isinstance(value, bytes):
            text = value.decode()
        elif number == _SCORE and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == _KIND and isinstance(value, int):
            kind = value
    return Piece(text, score, kind)


def _write_piece(piece: Piece) -> bytes:
    score = _field(_SCORE, _FIXED32, struct.pack("<f", piece.score))
    return _field(_TEXT, _BYTES, piece.text.encode()) + score + _field(_KIND, _VARINT, piece.kind)


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the fields of a message: number, wire type, value."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"field of kind {wire}")
        if at + size > len(data):
            raise ValueError("it ends too early")
        yield number, wire, data[at : at + size]
        at += size


def _field(number: int, wire: int, value: int | bytes) -> bytes:
    tag = _write_varint(number << 3 | wire)
    if isinstance(value, int):
        return tag + _write_varint(value)
    return tag + (_write_varint(len(value)) if wire == _BYTES else b"") + value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number and where it ends: seven bits a byte, lowest first; the eighth bit says that more follow."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("an unterminated number")


def _write_varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
