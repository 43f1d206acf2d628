"""Small corpora for the tests of `prepare`, and how to read the results."""

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from transduce import disk
from transduce.cli import main
from transduce.text import numbers, shards
from transduce.text.shards import DataSet

if sys.version_info >= (3, 14):
    from compression.zstd import compress as compress_zstd  # pyright: ignore[reportMissingImports]
else:
    import zstandard

    compress_zstd = zstandard.ZstdCompressor().compress

Flags = dict[str, list[str]]
Pairs = list[tuple[str, str]]

TRAIN = numbers.corpus("train", 600)
DEV = numbers.corpus("dev", 40)
TEST = numbers.corpus("test", 30)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": compress_zstd,
}


def write(path: Path, lines: list[str]) -> str:
    """Write lines to a file, compressed as its name says; return its path for the command line."""
    text = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(text))
    return str(path)


def aligned(folder: Path, name: str, pairs: Pairs, role: str = "") -> list[str]:
    """Write two aligned files and return the flags that name them."""
    source = write(folder / f"{name}.en", [source for source, _ in pairs])
    target = write(folder / f"{name}.de", [target for _, target in pairs])
    return [f"--{role}source", source, f"--{role}target", target]


def small_corpus(folder: Path) -> list[str]:
    """Write a small corpus with a dev set and return its flags."""
    return [*aligned(folder, "train", TRAIN), *aligned(folder, "dev", DEV, "dev-"), "--subwords", "400"]


def texts(out: Path, split: str = "train") -> Pairs:
    """Return all pairs of a split, decoded from disk."""
    data = DataSet.open(out)
    sides: list[list[str]] = []
    for side in shards.SIDES:
        row, offsets = data.splits[split].gather(side, np.arange(data.splits[split].pairs))
        sides.append([data.subwords[side].decode(row[begin:end]) for begin, end in pairwise(offsets)])
    return list(zip(*sides, strict=True))


def snapshot(folder: Path) -> dict[str, bytes] | None:
    """Return every file of a folder with its bytes, but for the lock; None if there is no folder."""
    if not folder.exists():
        return None
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != disk.LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def prepare_at(out: Path, *flags: str) -> DataSet:
    """Run `transduce prepare`, which must succeed; in this process, unless the flags say otherwise."""
    assert main(["prepare", str(out), "--workers", "1", *flags]) == 0
    return DataSet.open(out)


def by_flag(flags: list[str]) -> Flags:
    """Return flags with their values, for changes."""
    return {flag: [value] for flag, value in zip(flags[::2], flags[1::2], strict=True)}


def flatten(flags: Flags) -> list[str]:
    """Return the command line again."""
    return [word for flag, values in flags.items() for word in (flag, *values)]
