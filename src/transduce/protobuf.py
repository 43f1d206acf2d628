"""Protocol buffers, in which SentencePiece keeps its models and TensorBoard its events: the fields of a message.

The little of that format that is needed is implemented here, because protobuf's own library would be a dependency for
this alone.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

# How a field's value is written: a whole number, 8 bytes, bytes behind their number, 4 bytes.
_WHOLE, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class Field(NamedTuple):
    """A field of a message: its number, its value, and all its bytes as they were read."""

    number: int
    value: int | bytes
    raw: bytes


def read_fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message; a ValueError or an IndexError if it is none."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _read_whole(message, at)
        kind = key & 7
        if kind == _WHOLE:
            value, at = _read_whole(message, at)
            yield Field(key >> 3, value, message[begin:at])
            continue
        if kind == _BYTES:
            size, at = _read_whole(message, at)
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"field of kind {kind}")
        if at + size > len(message):
            raise ValueError("it ends too early")
        yield Field(key >> 3, message[at : at + size], message[begin : at + size])
        at += size


def whole_field(number: int, value: int) -> bytes:
    """Return a field with a whole number, not a negative one."""
    return _write_whole(number << 3 | _WHOLE) + _write_whole(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field with text or another message."""
    return _write_whole(number << 3 | _BYTES) + _write_whole(len(value)) + value


def single_field(number: int, value: float) -> bytes:
    """Return a field with a number in single precision, or infinity if it is too large for that."""
    try:
        written = struct.pack("<f", value)
    except OverflowError:  # for example, the perplexity of a model that has diverged
        written = struct.pack("<f", float("inf"))
    return _write_whole(number << 3 | _FOUR) + written


def double_field(number: int, value: float) -> bytes:
    """Return a field with a number in double precision."""
    return _write_whole(number << 3 | _EIGHT) + struct.pack("<d", value)


def _read_whole(message: bytes, at: int) -> tuple[int, int]:
    """Read a number and where it ends: seven bits a byte, lowest first; the eighth bit says that more follow."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("an unterminated number")


def _write_whole(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])
