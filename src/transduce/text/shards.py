"""The data set on disk: token arrays with offsets, and a manifest that names, counts and checks them.

    OUT/manifest.json                     replaced in one step: what it names is complete
    OUT/parts-1/train.000.source.tokens.npy, ….offsets.npy, the same for target; dev likewise
    OUT/parts-1/subwords.model, report.json

Arrays are plain `.npy` files: `numpy.load(path, mmap_mode="r")` reads them without transduce.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from transduce.disk import LOCK, describe_file, lock, move, short_names, sync_folder, write_json
from transduce.errors import DataError
from transduce.text.corpus import find_language
from transduce.text.subwords import Subwords, load_sides, ragged_indices

FORMAT = 1
SHARD_PAIRS = 1_000_000
HEADER = 128  # bytes of a .npy header for any one-dimensional array
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
WATCH = "watch-"  # begins the names of splits that are scored during training but decide nothing
MANIFEST_KEYS = {"format", "fingerprint", "made_from", "inputs", "subwords", "splits", "files", "parts"}
_BUSY = "another prepare is writing this data set; wait for it to end"
_ENDINGS = (".npy", ".model", ".json", ".gz")
_OWN_NAME = re.compile(r"\..*|manifest\.json(\.new)?|parts-\d+")


class _ArrayFile:
    """A one-dimensional .npy file that grows; its header is written once its length is known."""

    def __init__(self, path: Path, dtype: np.dtype):
        self.path, self.dtype, self.length = path, dtype, 0
        self.file = path.open("wb")
        self.file.write(bytes(HEADER))

    def append(self, values: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(values, self.dtype).tobytes())
        self.length += len(values)

    def close(self) -> None:
        self.file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, header)
        assert self.file.tell() == HEADER
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()


class SplitWriter:
    """Writes the shards of one split as encoded blocks come in; after an error, it closes its files as they are."""

    def __init__(self, folder: Path, split: str, vocabularies: dict[Side, int], shard_pairs: int = SHARD_PAIRS):
        self.folder, self.split, self.shard_pairs = folder, split, shard_pairs
        self.dtypes: dict[Side, np.dtype] = {
            side: np.dtype("<u2" if size <= 1 << 16 else "<u4") for side, size in vocabularies.items()
        }
        self.shards: list[dict[str, Any]] = []
        self.pairs = 0
        self._open: dict[Side, tuple[_ArrayFile, _ArrayFile]] = {}
        self._in_shard = 0

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for array in (array for arrays in self._open.values() for array in arrays):
            with suppress(OSError):  # from a disk that was full already
                array.file.close()

    def append(self, blocks: dict[Side, tuple[np.ndarray, np.ndarray]]) -> None:
        """Add encoded sentences: for each side, a row of tokens and the sentences' lengths."""
        if self._in_shard >= self.shard_pairs:
            self._close_shard()
        if not self._open:
            stem = f"{self.split}.{len(self.shards):03d}"
            for side in SIDES:
                tokens = _ArrayFile(self.folder / f"{stem}.{side}.tokens.npy", self.dtypes[side])
                offsets = _ArrayFile(self.folder / f"{stem}.{side}.offsets.npy", np.dtype("<u4"))
                offsets.append(np.zeros(1))
                self._open[side] = (tokens, offsets)
        for side in SIDES:
            tokens, lengths = blocks[side]
            array, offsets = self._open[side]
            offsets.append(array.length + np.cumsum(lengths))
            array.append(tokens)
        count = len(blocks["source"][1])
        self._in_shard += count
        self.pairs += count

    def _close_shard(self) -> None:
        entry: dict[str, Any] = {"pairs": self._in_shard, "files": {}}
        for side in SIDES:
            for array in self._open[side]:
                array.close()
                entry["files"][array.path.name] = describe_file(array.path)
            entry[f"{side}_tokens"] = self._open[side][0].length
        self.shards.append(entry)
        self._open, self._in_shard = {}, 0

    def close(self) -> dict[str, Any]:
        """Finish the last shard; return the split's entry in the manifest."""
        if self._open:
            self._close_shard()
        totals = {f"{side}_tokens": sum(shard[f"{side}_tokens"] for shard in self.shards) for side in SIDES}
        return {"pairs": self.pairs, **totals, "shards": self.shards}


@contextmanager
def replace_data(out: Path) -> Iterator[Path]:
    """Yield a folder for a new data set's parts; `commit` makes it the data set. A failure leaves nothing behind."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    with lock(out, _BUSY):
        _remove_leftovers(out)
        partial = out / f".partial-{os.getpid()}"
        partial.mkdir()
        try:
            yield partial
        finally:
            _remove_leftovers(out)
            if made and os.listdir(out) == [LOCK]:
                with suppress(OSError):  # Windows does not remove the lock file while it is open
                    (out / LOCK).unlink()
                    for folder in made:
                        folder.rmdir()


def commit(out: Path, partial: Path, manifest: dict[str, Any]) -> None:
    """Make a finished folder the data set: rename it, then replace the manifest in one step."""
    # Numbers are not used again, so a reader of the old manifest never finds new parts in place of its own.
    number = 1 + max((int(old.name[6:]) for old in out.glob("parts-*") if _OWN_NAME.fullmatch(old.name)), default=0)
    parts = out / f"parts-{number}"
    sync_folder(partial)
    move(partial, parts)
    sync_folder(out)
    write_json(out / "manifest.json.new", {**manifest, "parts": parts.name})
    move(out / "manifest.json.new", out / "manifest.json")
    with suppress(OSError):  # from here on this is the data set, synced or not
        sync_folder(out)


def tidy(out: Path) -> None:
    """Remove what a killed run has left, unless a run is at work or the folder cannot be written."""
    with suppress(DataError, OSError), lock(out, _BUSY):
        _remove_leftovers(out)


def find_other_file(out: Path) -> str | None:
    """Return the name of a file in the folder that is not part of a data set, finished or not; None without one."""
    names = sorted(path.name for path in out.iterdir())
    if not any(name.startswith("parts-") for name in names) and "manifest.json" in names:
        return "manifest.json"
    return next((name for name in names if not _OWN_NAME.fullmatch(name) or not _may_be_parts(out / name)), None)


def _may_be_parts(path: Path) -> bool:
    """Whether a path may be part of a data set: a hidden folder, one with files of our kinds only, or no folder."""
    return not path.is_dir() or path.name.startswith(".") or all(one.suffix in _ENDINGS for one in path.iterdir())


def _remove_leftovers(out: Path) -> None:
    """Remove all parts but those the manifest names; the caller holds the lock, so no other run is writing any."""
    leftovers = [*out.glob(".partial-*")]
    try:
        named = read_manifest(out)["parts"]
    except DataError:
        named = None
    if named or not (out / "manifest.json").exists():  # a damaged manifest's parts are kept until it is replaced
        old = [path for path in out.glob("parts-*") if _OWN_NAME.fullmatch(path.name) and _may_be_parts(path)]
        leftovers += [path for path in old if path.name != named]
    for leftover in leftovers:
        shutil.rmtree(leftover, ignore_errors=True)
    (out / "manifest.json.new").unlink(missing_ok=True)


@dataclass(frozen=True)
class Split:
    """The pairs of one split, memory-mapped: pair i is the same for every reader of the data set."""

    folder: Path
    entry: dict[str, Any]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.entry["pairs"]

    def spread(self, most: int) -> list[int]:
        """Return at most `most` pairs, evenly spread, since a held-out set is often one document after another."""
        few = max(0, min(self.pairs, most))
        return [(2 * place + 1) * self.pairs // (2 * few) for place in range(few)]

    @cached_property
    def _first_pairs(self) -> np.ndarray:
        return np.cumsum([0, *(shard["pairs"] for shard in self.entry["shards"])])

    @cached_property
    def _arrays(self) -> dict[Side, list[tuple[np.ndarray, np.ndarray]]]:
        arrays: dict[Side, list[tuple[np.ndarray, np.ndarray]]] = {side: [] for side in SIDES}
        for shard in self.entry["shards"]:
            loaded = {name: _load(self.folder / name, entry) for name, entry in shard["files"].items()}
            for side in SIDES:
                tokens = next(array for name, array in loaded.items() if name.endswith(f"{side}.tokens.npy"))
                offsets = next(array for name, array in loaded.items() if name.endswith(f"{side}.offsets.npy"))
                arrays[side].append((tokens, offsets))
        return arrays

    def lengths(self, side: Side) -> np.ndarray:
        """Return the number of tokens of each sentence, its end included."""
        shards = [np.diff(offsets) for _, offsets in self._arrays[side]]
        lengths = np.concatenate([np.empty(0, np.uint32), *shards])
        return lengths.astype(np.uint16) if lengths.max(initial=0) < 1 << 16 else lengths

    def token_arrays(self, side: Side) -> list[np.ndarray]:
        """Return all tokens, shard by shard, memory-mapped."""
        return [tokens for tokens, _ in self._arrays[side]]

    def gather(self, side: Side, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of many sentences in one row, in the order of `pairs`, and their offsets."""
        shards = np.searchsorted(self._first_pairs, pairs, side="right") - 1
        starts = np.empty(len(pairs), np.int64)
        lengths = np.empty(len(pairs), np.int64)
        asked = np.unique(shards)
        for shard in asked:
            here = shards == shard
            local = pairs[here] - self._first_pairs[shard]
            offsets = self._arrays[side][shard][1]
            starts[here] = offsets[local]
            lengths[here] = offsets[local + 1] - offsets[local]
        places = np.concatenate([[0], np.cumsum(lengths)])
        row = np.empty(places[-1], np.int32)
        for shard in asked:
            tokens = self._arrays[side][shard][0]
            if len(asked) == 1:
                row[:] = tokens[ragged_indices(starts, lengths)]
            else:
                here = shards == shard
                into = ragged_indices(places[:-1][here], lengths[here])
                row[into] = tokens[ragged_indices(starts[here], lengths[here])]
        return row, places

    def tokens(self, side: Side, pair: int) -> np.ndarray:
        """Return the tokens of one sentence, its end included."""
        return self.gather(side, np.array([pair]))[0]


def _load(path: Path, entry: dict[str, Any]) -> np.ndarray:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: a part of the data set is missing; run prepare again") from error
    if size != entry["bytes"]:
        raise DataError(f"{path}: has {size:,} bytes, wanted {entry['bytes']:,}; it is damaged, run prepare again")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{path}: not a readable array ({error}); it is damaged, run prepare again") from error


class DataSet:
    """A prepared data set: its splits, its subwords, its manifest."""

    folder: Path
    manifest: dict[str, Any]
    parts: Path
    splits: dict[str, Split]

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self.folder, self.manifest = folder, manifest
        self.parts = folder / manifest["parts"]
        self.splits = {name: Split(self.parts, entry) for name, entry in manifest["splits"].items()}

    @classmethod
    def open(cls, folder: Path | str) -> "DataSet":
        """Open a data set made by `transduce prepare`."""
        folder = Path(folder)
        return cls(folder, read_manifest(folder))

    @property
    def train(self) -> Split:
        """The training pairs."""
        return self.splits["train"]

    @property
    def dev(self) -> Split:
        """The pairs held out for validation."""
        return self.splits["dev"]

    @property
    def watched(self) -> list[str]:
        """The names of the splits that are watched besides the dev set."""
        return [name for name in self.splits if name.startswith(WATCH)]

    @cached_property
    def subwords(self) -> dict[Side, Subwords]:
        """The subword models of the two sides; one object for both if the vocabulary is joint."""
        names = self.manifest["subwords"]
        source, target = load_sides(self.parts / names["source"], self.parts / names["target"])
        return {"source": source, "target": target}

    def text(self, split: str, side: Side, pair: int) -> str:
        """Return a sentence as text."""
        return self.subwords[side].decode(self.splits[split].tokens(side, pair))

    def report(self) -> dict[str, Any]:
        """Return the report on what `prepare` read, changed, dropped and kept."""
        return json.loads((self.parts / "report.json").read_text(encoding="utf-8"))

    def describe(self) -> dict[str, Any]:
        """Return what a model should know about its training data, and its languages if they are known."""
        found: dict[str, Any] = {"unicode": self.manifest["config"]["clean"]["unicode"]}
        found["trained_on"] = {
            "folder": str(self.folder),
            "fingerprint": self.manifest.get("fingerprint"),
            "pairs": self.train.pairs if "train" in self.splits else 0,
            "inputs": list(
                short_names(Path(file) for entry in self.manifest["inputs"] for file in entry["files"]).values()
            ),
        }
        if languages := self.manifest["config"]["languages"] or self._endings():
            found["languages"] = languages
        return found

    def _endings(self) -> list[str]:
        """Return the languages that all file names end in, if they agree; three letters may be anything, like txt."""
        found = {tuple(find_language(Path(file)) or "" for file in entry["files"]) for entry in self.manifest["inputs"]}
        endings = list(found.pop()) if len(found) == 1 else []
        known = len(set(endings)) == 2 and all(re.fullmatch("[a-z]{2}", ending) for ending in endings)
        return endings if known else []

    def weights(self) -> list[tuple[int, int, float]]:
        """Return for each training input its first pair, the pair after its last, and its weight."""
        return [(*entry["pairs"], entry["weight"]) for entry in self.manifest["inputs"]]

    def files(self) -> dict[str, dict[str, Any]]:
        """Return all files of the data set, with their sizes and checksums."""
        files = {**self.manifest["files"]}
        for split in self.manifest["splits"].values():
            for shard in split["shards"]:
                files.update(shard["files"])
        return files

    def verify(self) -> Iterator[str]:
        """Read every file and yield what differs from the manifest."""
        for name, wanted in self.files().items():
            path = self.parts / name
            if not path.exists():
                yield f"{path}: missing"
            elif describe_file(path) != wanted:
                yield f"{path}: does not match its checksum"


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a data set's manifest."""
    path = folder / "manifest.json"
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name the folder of a data set")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / "checkpoints").is_dir():
            raise DataError(
                f"{folder}: is a run, not a data set; name the folder written by transduce prepare"
            ) from None
        what = "contains no data set" if folder.is_dir() else "does not exist"
        raise DataError(f"{folder}: {what}; make one with: transduce prepare {folder} --source … --target …") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable manifest ({error}); run prepare again") from error
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found not in (None, FORMAT):
        raise DataError(f"{path}: written in format {found}, this version reads {FORMAT}; run prepare again")
    if found is None or not manifest.keys() >= MANIFEST_KEYS:
        raise DataError(f"{path}: not the manifest of a data set; name the folder of a data set")
    return manifest
