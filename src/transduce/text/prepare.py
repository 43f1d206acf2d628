"""`transduce prepare`: corpus → clean text → subwords → shards, in bounded memory and all or nothing."""

import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transduce.errors import DataError
from transduce.progress import show_progress
from transduce.strict import to_dict
from transduce.text import shards
from transduce.text.clean import ROW, CleanConfig, Cleaned, Cleaner, Example, HeldOut, Judged, clean_block
from transduce.text.corpus import Block, Input, Problem, read_blocks
from transduce.text.inputs import Inputs, PrepareConfig, find_inputs
from transduce.text.parallel import parallel_map, usable_cores
from transduce.text.report import Report
from transduce.text.select import CODES, DEV, KEPT, Selection, select
from transduce.text.shards import SIDES, DataSet, Side, SplitWriter
from transduce.text.subwords import Subwords, learn

MOST_PROBLEMS = 20
# A dev or test set is taken as it is: only normalised, and without pairs that lack a side.
AS_IT_IS = CleanConfig(
    damaged=False, long=None, letters=None, repeated=None, copied=None, leak="off", script=False, ratio=None,
    duplicate=False, near_duplicate=False, tokens=None,
)  # fmt: skip


def prepare(out: Path, config: PrepareConfig) -> tuple[DataSet, bool]:
    """Make the data set OUT; returns it, and whether it had to be made. A failure leaves what was there."""
    inputs = find_inputs(config)
    if _is_up_to_date(out, config, inputs):
        _say(f"{out}: up to date ({len(inputs.checksums)} files and all settings unchanged)")
        return DataSet.open(out), False
    try:
        with shards.replace_data(out) as partial:
            manifest = _Preparation(partial, config, inputs).run()
            shards.commit(out, partial, manifest)
    except OSError as error:
        raise DataError(f"{error.filename or out}: {error.strerror or error}; {out} is left as it was") from error
    return DataSet.open(out), True


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _is_up_to_date(out: Path, config: PrepareConfig, inputs: Inputs) -> bool:
    if not out.exists():
        return False
    if not out.is_dir():
        raise DataError(f"{out}: is a file; name a folder for the data set")
    if not (out / "manifest.json").exists():
        if any(not path.name.startswith(".") for path in out.iterdir()):
            raise DataError(f"{out}: holds other files and no data set; name a new or empty folder")
        return False
    manifest = shards.read_manifest(out)
    if manifest["fingerprint"] != inputs.fingerprint(config):
        _say(f"{out}: preparing again, because {' and '.join(_differences(manifest, inputs.describe(config)))}")
        return False
    if broken := list(_missing_parts(out, manifest)):
        _say(f"{out}: preparing again, because {broken[0]}")
    return not broken


def _differences(manifest: dict[str, Any], described: dict[str, Any]) -> list[str]:
    """What has changed since a data set was made, in words."""
    found = []
    if manifest["made_from"]["contents"] != described["contents"]:
        found.append("the input files have changed")
    old, new = (_flatten(x["settings"]) for x in (manifest["made_from"], described))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            found.append(f"{key} was {old.get(key)} and is {new.get(key)}")
    return found


def _flatten(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat.update(_flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


def _missing_parts(out: Path, manifest: dict[str, Any]) -> Iterator[str]:
    data = DataSet(out, manifest)
    for name, entry in data.files().items():
        path = data.parts / name
        if not path.exists() or path.stat().st_size != entry["bytes"]:
            yield f"{path} is missing or damaged"


@dataclass
class Spool:
    """Clean lines on disk and the facts about them in memory, block by block."""

    path: Path
    inputs: tuple[Input, ...]
    blocks: list[tuple[int, int, int, int]] = field(default_factory=list)  # offset, bytes, pairs, input
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, ROW))

    def cut(self, verdicts: np.ndarray) -> Iterator["SpoolBlock"]:
        """The blocks with the verdicts on their pairs."""
        first = 0
        for offset, size, pairs, number in self.blocks:
            here = slice(first, first + pairs)
            where = str(self.inputs[number].files[0])
            yield SpoolBlock(offset, size, number, where, verdicts[here], self.rows["line"][here])
            first += pairs


@dataclass(frozen=True)
class SpoolBlock:
    """A piece of the spool file, with what was decided about its pairs and where they stood."""

    offset: int
    size: int
    input: int
    where: str
    verdicts: np.ndarray
    lines: np.ndarray


@dataclass
class Encoded(Judged):
    """The pairs of a block as tokens, by split: for each side a row of tokens and the sentences' lengths."""

    splits: dict[str, dict[Side, tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)

    def count(self, split: str) -> int:
        """The number of pairs that went to a split."""
        return len(self.splits[split]["source"][1]) if split in self.splits else 0


class _Preparation:
    """One run of `prepare`: the steps in their order."""

    def __init__(self, folder: Path, config: PrepareConfig, inputs: Inputs):
        self.folder, self.config, self.inputs = folder, config, inputs
        self.workers = config.workers or usable_cores()
        self.report = Report.begin(inputs.train, config.seed)
        self.dropped = gzip.open(folder / "dropped.tsv.gz", "wt", encoding="utf-8") if config.save_dropped else None

    def run(self) -> dict[str, Any]:
        config, inputs = self.config, self.inputs
        quiet = Report.begin(inputs.dev + inputs.test, config.seed)
        dev = self.clean("reading dev", inputs.dev, AS_IT_IS, HeldOut(), quiet)
        test = self.clean("reading test", inputs.test, AS_IT_IS, HeldOut(), quiet)
        held_out = HeldOut()
        for spool in (dev, test):
            held_out.add_rows(spool.rows)
        train = self.clean("cleaning", inputs.train, config.clean, held_out, self.report)
        selection = select(train.rows, config.clean, config.dev_split or 0, config.seed)
        self.check_enough(selection)
        models = self.learn_subwords(train, selection.verdicts)
        manifest = self.encode(train, dev, selection, models)
        self.report.finish(selection, manifest["splits"])
        shards.write_synced(
            self.folder / "report.json", json.dumps(self.report.to_dict(), indent=1, ensure_ascii=False).encode()
        )
        extra = ["report.json", *manifest["subwords"].values()]
        if self.dropped:
            self.dropped.close()
            extra.append("dropped.tsv.gz")
        for spool in (train, dev, test):
            spool.path.unlink(missing_ok=True)
        manifest["files"] = {name: shards.describe_file(self.folder / name) for name in sorted(set(extra))}
        return manifest

    def clean(
        self, name: str, inputs: tuple[Input, ...], config: CleanConfig, held_out: HeldOut, report: Report
    ) -> Spool:
        """Pass one: raw blocks in, clean lines to the spool."""
        spool = Spool(self.folder / f"spool-{name.split()[-1]}", inputs)
        if not inputs:
            return spool
        rows: list[np.ndarray] = []
        problems: list[Problem] = []
        positions = [0] * len(inputs)
        read = 0

        def blocks() -> Iterator[Block]:
            for number, given in enumerate(inputs):
                for block in read_blocks(number, given):
                    positions[number] = block.position
                    yield block

        total = sum(given.size for given in inputs)
        task = (_CleanTask, (inputs, config, held_out, self.dropped is not None))
        with spool.path.open("wb") as file, show_progress(name, total, "pairs") as progress:
            for cleaned in parallel_map(*task, blocks(), self.workers):
                problems += cleaned.problems
                if len(problems) >= MOST_PROBLEMS:
                    break
                spool.blocks.append((file.tell(), len(cleaned.text), len(cleaned.rows), cleaned.input))
                file.write(cleaned.text)
                rows.append(cleaned.rows)
                report.add_cleaned(cleaned)
                self.save_examples(cleaned.examples)
                read += cleaned.read
                progress.update(sum(positions), read)
        _raise_problems(problems)
        spool.rows = np.concatenate(rows)
        return spool

    def check_enough(self, selection: Selection) -> None:
        kept = int((selection.verdicts == KEPT).sum())
        if kept == 0:
            counts = ", ".join(f"{rule} {count:,}" for rule, count in self.report.total_dropped().most_common(4))
            raise DataError(f"no training pair is left after cleaning (dropped: {counts}); see --help for --clean.…")
        if self.config.dev_split and int((selection.verdicts == DEV).sum()) < self.config.dev_split:
            raise DataError(f"dev_split = {self.config.dev_split:,} leaves no training pair; take fewer")

    def learn_subwords(self, train: Spool, verdicts: np.ndarray) -> dict[Side, Subwords]:
        """Learn from a sample of the kept pairs in which inputs count by their weights."""
        config = self.config.subwords
        kept = np.flatnonzero(verdicts == KEPT)
        if len(kept) > config.sample:
            weights = np.concatenate(
                [np.full(pairs, self.inputs.train[number].weight) for _, _, pairs, number in train.blocks]
            )
            # Weighted sampling without replacement (Efraimidis and Spirakis 2006): the largest u^(1/w) win.
            priority = np.random.default_rng(self.config.seed).random(len(kept)) ** (1 / weights[kept])
            kept = np.sort(kept[np.argpartition(-priority, config.sample)[: config.sample]])
        chosen = np.zeros(len(verdicts), bool)
        chosen[kept] = True
        sides: Iterable[tuple[Side, ...]] = [SIDES] if config.joint else [("source",), ("target",)]
        models: dict[Side, Subwords] = {}
        for some in sides:
            name = "learning" if config.joint else f"learning {some[0]}"
            with show_progress(name, len(kept), "pairs") as progress:
                model = Subwords(learn(_sample_lines(train, chosen, some, progress.update), config))
            for side in some:
                models[side] = model
        return models

    def encode(self, train: Spool, dev: Spool, selection: Selection, models: dict[Side, Subwords]) -> dict[str, Any]:
        """Pass two: lines of the spool in, shards out."""
        names: dict[Side, str] = {
            side: "subwords.model" if self.config.subwords.joint else f"{side}.model" for side in SIDES
        }
        for side in SIDES:
            shards.write_synced(self.folder / names[side], models[side].model)
        vocabularies: dict[Side, int] = {side: len(models[side]) for side in SIDES}
        writers = {split: SplitWriter(self.folder, split, vocabularies) for split in ("train", "dev")}
        ranges = [[0, 0] for _ in train.inputs]
        for spool, verdicts, limit in (
            (train, selection.verdicts, self.config.clean.tokens),
            (dev, np.full(len(dev.rows), DEV, np.uint8), None),
        ):
            if not len(verdicts):
                continue
            done = 0
            arguments = (spool.path, models["source"].model, models["target"].model, limit, self.dropped is not None)
            with show_progress("encoding", len(verdicts), "pairs") as progress:
                for encoded in parallel_map(_EncodeTask, arguments, spool.cut(verdicts), self.workers):
                    first = writers["train"].pairs
                    for split, sides in encoded.splits.items():
                        writers[split].append(sides)
                    if spool is train:
                        self.report.add_encoded(encoded, encoded.count("train"), encoded.count("dev"))
                        self.save_examples(encoded.examples)
                        extent = ranges[encoded.input]
                        extent[0] = first if extent[0] == extent[1] else extent[0]
                        extent[1] = writers["train"].pairs
                    done += encoded.read
                    progress.update(done, done)
        described = self.inputs.describe(self.config)
        return {
            "format": shards.FORMAT,
            "fingerprint": self.inputs.fingerprint(self.config),
            "made_from": described,
            "config": to_dict(self.config),
            "inputs": [
                {
                    "files": {str(file): self.inputs.checksums[str(file)] for file in given.files},
                    "weight": given.weight,
                    "pairs": extent,
                }
                for given, extent in zip(self.inputs.train, ranges, strict=True)
            ],
            "subwords": names,
            "vocabulary": vocabularies,
            "splits": {split: writer.close() for split, writer in writers.items()},
        }

    def save_examples(self, examples: dict[str, list[Example]]) -> None:
        if self.dropped:
            for rule in examples.keys() & CODES.keys():
                self.dropped.writelines(f"{rule}\t{e.where}\t{e.source}\t{e.target}\n" for e in examples[rule])


def _raise_problems(problems: list[Problem]) -> None:
    if not problems:
        return
    lines = [str(problem) for problem in sorted(problems)[:MOST_PROBLEMS]]
    if len(problems) >= MOST_PROBLEMS:
        lines.append("… and perhaps more: reading stopped here")
    if any("not UTF-8" in line for line in lines):
        lines.append("convert the file (iconv -f LATIN1 -t UTF-8), or drop such pairs with --clean.utf8 drop")
    raise DataError("\n".join(lines))


def _sample_lines(
    spool: Spool, chosen: np.ndarray, sides: tuple[Side, ...], update: Callable[[float, int], None]
) -> Iterator[str]:
    """The chosen lines of the spool."""
    first = count = 0
    with spool.path.open("rb") as file:
        for _, size, pairs, _ in spool.blocks:
            lines = file.read(size).decode().split("\n")
            for row in np.flatnonzero(chosen[first : first + pairs]):
                source, target = lines[row].split("\t")
                if "source" in sides:
                    yield source
                if "target" in sides:
                    yield target
                count += 1
            first += pairs
            update(count, count)


class _CleanTask:
    """What a worker does in pass one."""

    def __init__(self, inputs: tuple[Input, ...], config: CleanConfig, held_out: HeldOut, all_dropped: bool):
        self.inputs, self.cleaner, self.all_dropped = inputs, Cleaner(config, held_out), all_dropped

    def __call__(self, block: Block) -> Cleaned:
        return clean_block(block, self.inputs[block.input], self.cleaner, self.all_dropped)


class _EncodeTask:
    """What a worker does in pass two."""

    def __init__(self, spool: Path, source: bytes, target: bytes, limit: int | None, all_dropped: bool):
        self.file = spool.open("rb")
        model = Subwords(source)
        self.models: dict[Side, Subwords] = {"source": model, "target": model if source == target else Subwords(target)}
        self.limit, self.all_dropped = limit, all_dropped

    def __call__(self, block: SpoolBlock) -> Encoded:
        self.file.seek(block.offset)
        pairs = [line.split("\t") for line in self.file.read(block.size).decode().split("\n")[:-1]]
        encoded = Encoded(block.input, len(pairs))
        for code in np.unique(block.verdicts):
            rows = np.flatnonzero(block.verdicts == code)
            if code in (KEPT, DEV):
                split = "train" if code == KEPT else "dev"
                encoded.splits[split] = self.encode(pairs, rows, block, encoded, self.limit if code == KEPT else None)
            else:
                self.note_dropped(_RULE_OF[int(code)], rows, pairs, block, encoded)
        return encoded

    def encode(
        self, pairs: list[list[str]], rows: np.ndarray, block: SpoolBlock, encoded: Encoded, limit: int | None
    ) -> dict[Side, tuple[np.ndarray, np.ndarray]]:
        sides: dict[Side, tuple[np.ndarray, np.ndarray]] = {
            side: self.models[side].encode_lines([pairs[row][place] for row in rows])
            for place, side in enumerate(SIDES)
        }
        if limit is not None:
            # The end of the sentence is not counted.
            fits = np.maximum(sides["source"][1], sides["target"][1]) <= limit + 1
            if not fits.all():
                self.note_dropped("tokens", rows[~fits], pairs, block, encoded)
                for side, (tokens, lengths) in sides.items():
                    sides[side] = tokens[np.repeat(fits, lengths)], lengths[fits]
        return sides

    def note_dropped(
        self, rule: str, rows: np.ndarray, pairs: list[list[str]], block: SpoolBlock, encoded: Encoded
    ) -> None:
        encoded.dropped[rule] += len(rows)
        shown = rows if self.all_dropped else rows[:1]
        encoded.examples[rule] = [Example(f"{block.where}:{block.lines[row]}", *pairs[row]) for row in shown]


_RULE_OF = {code: rule for rule, code in CODES.items()}
