"""Compressed files (.gz, .xz, .bz2 and .zst), read and written like plain ones."""

import bz2
import gzip
import io
import lzma
import shutil
import sys
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

from transduce.errors import DataError

COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


def open_bytes(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """Open a plain or compressed file; return the stream of its text and the raw file, whose place shows progress."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    match path.suffix.lower():
        case ".gz":
            stream = gzip.GzipFile(fileobj=raw)
        case ".xz":
            stream = lzma.LZMAFile(raw)
        case ".bz2":
            stream = bz2.BZ2File(raw)
        case ".zst":
            stream = _open_zstd(raw)
        case _:
            return raw, raw
    return io.BufferedReader(cast(io.RawIOBase, stream), 1 << 20), raw


def decode(name: str, content: bytes) -> str:
    """Decode a file that must be UTF-8; a byte order mark stays in the text."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}:{line}: not UTF-8; convert the text with: {find_converter(content)}") from None


def find_converter(beginning: bytes) -> str:
    """Return the command that converts a text to UTF-8; only UTF-16 can be recognised by its beginning."""
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "iconv -f UTF-16 -t UTF-8"
    return "iconv -f LATIN1 -t UTF-8 (LATIN1 is for Western Europe; name the encoding it was saved in)"


def write_packed(path: Path, text: BinaryIO, ending: str) -> None:
    """Write a text to a file, compressed as `ending` says; the same text gives the same bytes."""
    with path.open("wb") as raw:
        match ending.lower():
            case ".gz":
                stream = gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
            case ".xz":
                stream = lzma.LZMAFile(raw, "wb")
            case ".bz2":
                stream = bz2.BZ2File(raw, "wb")
            case ".zst":
                stream = _write_zstd(raw)
            case _:
                stream = raw
        with closing(stream):
            shutil.copyfileobj(text, stream)


def _open_zstd(raw: BinaryIO) -> object:
    if sys.version_info >= (3, 14):
        from compression import zstd  # pyright: ignore[reportMissingImports]

        return zstd.ZstdFile(raw)
    return _Zstd(raw)


def _write_zstd(raw: BinaryIO) -> BinaryIO:
    if sys.version_info >= (3, 14):
        from compression import zstd  # pyright: ignore[reportMissingImports]

        return zstd.ZstdFile(raw, "w")
    import zstandard

    return zstandard.ZstdCompressor().stream_writer(raw, closefd=False)


class _Zstd(io.RawIOBase):
    """The text of a .zst file; unlike zstandard's own reader, this notices a file that was cut off."""

    CHUNK = 1 << 14

    def __init__(self, raw: BinaryIO):
        import zstandard

        self.raw, self.decompressor = raw, zstandard.ZstdDecompressor()
        self.frame: Any = None
        self.compressed, self.text = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with text, across as many frames as the file has."""
        while not self.text and (self.compressed or self.read_more()):
            self.frame = self.frame or self.decompressor.decompressobj()
            self.text = memoryview(self.frame.decompress(self.compressed))
            self.compressed = self.frame.unused_data
            if self.frame.eof:
                self.frame = None
        count = min(len(buffer), len(self.text))
        buffer[:count], self.text = self.text[:count], self.text[count:]
        return count

    def read_more(self) -> bool:
        self.compressed = self.raw.read(self.CHUNK)
        if not self.compressed and self.frame:
            raise EOFError("the file ends inside a frame")
        return bool(self.compressed)


def damage_errors() -> tuple[type[Exception], ...]:
    """Return what decompressors raise for damaged files; zstd's only if it has been imported to open one."""
    zstd = sys.modules.get("zstandard") or sys.modules.get("compression.zstd")
    return (OSError, EOFError, lzma.LZMAError, zlib.error, *([zstd.ZstdError] if zstd else []))
