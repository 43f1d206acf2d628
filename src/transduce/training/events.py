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

from transduce.protobuf import bytes_field, double_field, single_field, whole_field
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
        self._append(bytes_field(3, VERSION))
        if after:  # makes TensorBoard drop what earlier files hold from this step on
            self._append(whole_field(2, after + 1) + bytes_field(7, whole_field(1, SESSION_START)))

    def write(self, metrics: TrainMetrics | DevMetrics) -> None:
        """Append one event with all known scalars."""
        kind = "train" if isinstance(metrics, TrainMetrics) else "dev"
        group = "train" if isinstance(metrics, TrainMetrics) else metrics.name
        values = {f"{group}/{name}": getattr(metrics, name) for name in TAGS[kind]}
        summary = b"".join(
            bytes_field(1, bytes_field(1, tag.encode()) + single_field(2, value))
            for tag, value in values.items()
            if value is not None
        )
        self._append(whole_field(2, metrics.step) + bytes_field(5, summary))

    def close(self) -> None:
        """Close the file."""
        self.journal.close()

    def _append(self, fields: bytes) -> None:
        event = double_field(1, time.time()) + fields
        length = struct.pack("<Q", len(event))
        self.journal.append(length + _checksum(length) + event + _checksum(event))


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
