"""Event files for TensorBoard, written without TensorBoard.

A file is a sequence of TFRecords (length, its checksum, data, its checksum), each of which holds an `Event` as a
protocol buffer. Only the few fields that scalars need are written.
"""

import os
import socket
import struct
import time
from functools import cache
from pathlib import Path

from transduce.training.metrics import DevMetrics, Journal, TrainMetrics

VERSION = b"brain.Event:2"
SESSION_START = 1
TAGS = {
    "train": ("loss", "plain", "perplexity", "rate", "norm", "tokens_per_second", "peak_share"),
    "dev": ("loss", "plain", "perplexity", "bleu", "f1"),
}


class EventFile:
    """One event file of a run; a resumed run has several in its folder."""

    def __init__(self, folder: Path, *, after: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}")
        self._append(_chunk(3, VERSION))
        if after:  # makes TensorBoard drop what earlier files hold from this step on
            self._append(_whole(2, after + 1) + _chunk(7, _whole(1, SESSION_START)))

    def write(self, metrics: TrainMetrics | DevMetrics) -> None:
        """Append one event with all known scalars."""
        kind = "train" if isinstance(metrics, TrainMetrics) else "dev"
        group = "train" if isinstance(metrics, TrainMetrics) else metrics.name
        values = {f"{group}/{name}": getattr(metrics, name) for name in TAGS[kind]}
        summary = b"".join(
            _chunk(1, _chunk(1, tag.encode()) + _single(2, value)) for tag, value in values.items() if value is not None
        )
        self._append(_whole(2, metrics.step) + _chunk(5, summary))

    def close(self) -> None:
        """Close the file."""
        self.journal.close()

    def _append(self, fields: bytes) -> None:
        event = struct.pack("<Bd", 1 << 3 | 1, time.time()) + fields
        length = struct.pack("<Q", len(event))
        self.journal.append(length + _checksum(length) + event + _checksum(event))


def _whole(field: int, number: int) -> bytes:
    """Encode a field of a protocol buffer that holds a whole number."""
    return bytes([field << 3]) + _varint(number)


def _single(field: int, number: float) -> bytes:
    """Encode a field of a protocol buffer that holds a single-precision number."""
    key = bytes([field << 3 | 5])
    try:
        return key + struct.pack("<f", number)
    except OverflowError:  # for example, the perplexity of a model that has diverged
        return key + struct.pack("<f", float("inf"))


def _chunk(field: int, data: bytes) -> bytes:
    """Encode a field of a protocol buffer that holds text or another message."""
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def _checksum(data: bytes) -> bytes:
    """Return the CRC-32C of some bytes, masked as in TFRecords: a checksum of checksums would be weak."""
    table, remainder = _table(), 0xFFFFFFFF
    for byte in data:
        remainder = table[(remainder ^ byte) & 255] ^ remainder >> 8
    crc = remainder ^ 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)


@cache
def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [entry >> 1 ^ 0x82F63B78 * (entry & 1) for entry in table]
    return table
