"""`transduce prepare`: corpus → clean text → subwords → shards, in bounded memory and all or nothing."""

import gzip
import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transduce import disk
from transduce.errors import ConfigError, DataError
from transduce.progress import show_progress
from transduce.strict import literal, to_dict
from transduce.text import shards
from transduce.text.clean import RULES, CleanConfig, Example, HeldOut
from transduce.text.corpus import Block, Input, Problem, looks_quoted, read_blocks, read_sample
from transduce.text.extend import count_words, extend
from transduce.text.inputs import Inputs, PrepareConfig, find_inputs, name_watched
from transduce.text.language import Languages, count_swapped
from transduce.text.packed import find_converter
from transduce.text.parallel import parallel_map, usable_cores
from transduce.text.report import Report
from transduce.text.select import CODES, DEV, KEPT, Selection, select
from transduce.text.shards import SIDES, WATCH, DataSet, Side, SplitWriter
from transduce.text.spool import CleanTask, EncodeTask, Spool
from transduce.text.subwords import (
    Subwords,
    SubwordsConfig,
    find_subwords,
    learn,
    learn_symbols,
    load_sides,
    save_sides,
)
from transduce.text.trees import choose_symbols
from transduce.text.vary import Varier

MOST_PROBLEMS = 20
DROPPED = "dropped.tsv.gz"
LONG_LEARNING = 100_000  # pairs
LANGUAGE_SAMPLE = 16, 16_384  # blocks, and lines out of them, to learn what is usual on each side
SWAPPED_SAMPLE = 1, 1000  # the same, of a dev or test set, to see whether its sides are swapped
SWAPPED_PAIRS, SWAPPED_SHARE = 20, 0.8  # at least so many pairs, and more than this share of them


def prepare(out: Path, config: PrepareConfig) -> tuple[DataSet, bool]:
    """Make the data set OUT; return it, and whether it had to be made. A failure leaves what was there before."""
    inputs = find_inputs(config)
    if _is_up_to_date(out, config, inputs):
        shards.tidy(out)
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
    try:
        data = DataSet.open(out)
    except DataError:
        if other := shards.find_other_file(out):
            raise DataError(f"{out}: holds other files ({other}) but no data set; name a new or empty folder") from None
        if (out / "manifest.json").exists():
            _say(f"{out}: preparing again, because its manifest is damaged or from another version")
        return False
    if data.manifest["fingerprint"] != inputs.fingerprint(config):
        changes = _differences(data.manifest["made_from"], inputs.describe(config))
        _say(f"{out}: preparing again, because {' and '.join(changes)}")
        return False
    if broken := next(data.verify(), None):
        _say(f"{out}: preparing again, because it is damaged: {broken}")
    return not broken


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield what has changed since a data set was made, in words."""
    if old.get("rules") != new["rules"]:
        yield "the cleaning rules have changed"
    if old["contents"] != new["contents"]:
        yield "the input files have changed"
    before, now = _flatten(old["settings"]), _flatten(new["settings"])
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            yield f"{key} was {literal(before.get(key))} and is {literal(now.get(key))}"


def _flatten(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat.update(_flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


class _Preparation:
    """One run of `prepare`: its steps, in order."""

    def __init__(self, folder: Path, config: PrepareConfig, inputs: Inputs):
        self.folder, self.config, self.inputs = folder, config, inputs
        self.workers = config.workers or usable_cores()
        self.report = Report.begin(inputs.train, config.seed)
        self.dropped = _open_dropped(folder / DROPPED) if config.save_dropped else None

    def run(self) -> dict[str, Any]:
        config, inputs = self.config, self.inputs
        with self.dropped or nullcontext():
            held_out = HeldOut()
            dev, test = self.read_held("dev", inputs.dev), self.read_held("test", inputs.test)
            watched = {
                f"{WATCH}{name}": self.read_held(f"{WATCH}{name}", (given,))
                for name, given in zip(name_watched(inputs.watch), inputs.watch)
            }
            for spool in (dev, test, *watched.values()):
                self.refuse_swapped(spool.inputs)
                held_out.add_rows(spool.rows)
            train = self.clean("cleaning", inputs.train, config.clean, held_out, self.report)
            selection = select(train.rows, config.clean, config.dev_split or 0, config.seed)
            self.check_enough(selection)
            models = self.learn_subwords(train, selection.verdicts)
            manifest = self.encode(train, {"dev": dev, **watched}, selection, models)
        self.report.finish(selection, manifest["splits"])
        disk.write_json(self.folder / "report.json", self.report.to_dict())
        extra = {"report.json", *manifest["subwords"].values()}
        if self.dropped:
            disk.sync_file(self.folder / DROPPED)
            extra.add(DROPPED)
        for spool in (train, dev, test, *watched.values()):
            spool.path.unlink(missing_ok=True)
        manifest["files"] = {name: disk.describe_file(self.folder / name) for name in sorted(extra)}
        return manifest

    def read_held(self, name: str, inputs: tuple[Input, ...]) -> Spool:
        """Read a dev, test or watched set; what cannot be used is shown in the terminal, not in the report."""
        report = Report.begin(inputs, self.config.seed)
        spool = self.clean(f"reading {name}", inputs, _only_normalise(self.config.clean), HeldOut(), report)
        if inputs and not len(spool.rows) and name != "test":
            raise DataError(f"{inputs[0].files[0]}: no pair of the {name} set has text on both sides")
        for number, entry in enumerate(report.inputs):
            for rule, count in entry.dropped.items():
                lost = f"{count:,} of {entry.read:,} pairs of the {name} set are dropped"
                _say(f"{entry.name}: {lost} by {rule} ({RULES[rule]}), first {report.first[number, rule]}")
        return spool

    @cached_property
    def beginnings(self) -> tuple[list[str], list[str]]:
        """Both sides of the training text's beginnings, to learn what is usual on each."""
        return read_sample(self.inputs.train, *LANGUAGE_SAMPLE)

    def refuse_swapped(self, held: tuple[Input, ...]) -> None:
        """Refuse a dev, test or watched set whose sides are the other way round than those of the training text."""
        for given in held if self.config.clean.language else ():
            pairs = [pair for pair in zip(*read_sample((given,), *SWAPPED_SAMPLE)) if all(pair)]
            if len(pairs) < SWAPPED_PAIRS:
                continue
            swapped = count_swapped(*self.beginnings, pairs)
            if swapped > SWAPPED_SHARE * len(pairs):
                train = self.inputs.train[0].files[0]
                raise DataError(
                    f"{' + '.join(map(str, given.files))}: source and target are the other way round than in {train}: "
                    f"in {swapped:,} of {len(pairs):,} pairs each side looks like the other side there; exchange the "
                    "sides of one of them, or give --clean.language off if this is meant"
                )

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
                    if given.format == "tsv" and block.first_line == 1 and not given.quoted:
                        _note_quotes(block, given)
                    positions[number] = block.position
                    yield block

        total = sum(given.size for given in inputs)
        languages = Languages.learn(*self.beginnings) if config.language else None
        arguments = (inputs, config, held_out, languages, self.dropped is not None)
        with (
            spool.path.open("wb") as file,
            show_progress(name, total, "pairs") as progress,
            closing(parallel_map(CleanTask, arguments, blocks(), self.workers)) as results,
        ):
            for cleaned in results:
                problems += cleaned.problems
                if len(problems) >= MOST_PROBLEMS:
                    break
                spool.append(file, cleaned)
                rows.append(cleaned.rows)
                report.add_cleaned(cleaned)
                self.save_examples(cleaned.examples)
                read += cleaned.read
                progress.update(sum(positions), read)
        _raise_problems(problems)
        spool.rows = np.concatenate(rows)
        return spool

    def check_enough(self, selection: Selection) -> None:
        kept, held = (int((selection.verdicts == verdict).sum()) for verdict in (KEPT, DEV))
        fewer = f"as with --dev-split {max(1, (kept + held) // 10)}"
        if not kept and held:
            raise DataError(
                f"dev_split = {self.config.dev_split} takes all {held:,} clean pairs; hold out fewer, {fewer}"
            )
        if not kept:
            raise _nothing_left(self.count_dropped(selection.verdicts))
        if held > kept:
            _say(f"note: {held:,} pairs are held out as the dev set and {kept:,} left to train on; keep more, {fewer}")

    def count_dropped(self, verdicts: np.ndarray) -> Counter[str]:
        """Count the pairs that each rule of both passes has dropped."""
        dropped = self.report.total_dropped()
        dropped.update({rule: int((verdicts == code).sum()) for rule, code in CODES.items()})
        return dropped

    def describe_losses(self, verdicts: np.ndarray) -> str:
        """Return a line on what was dropped, if that is most of the text and so may be why there is too little."""
        kept, dropped = int((verdicts == KEPT).sum()), self.count_dropped(verdicts)
        if kept > dropped.total():
            return ""
        return f"\n{kept:,} of the pairs are left after cleaning (dropped: {_list_rules(dropped)})"

    def learn_subwords(self, train: Spool, verdicts: np.ndarray) -> dict[Side, Subwords]:
        """Learn subwords from a sample of the kept pairs, weighted by input, or reuse others (`subwords.reuse`)."""
        config = self.config.subwords
        if config.reuse:
            return self.reuse_subwords(config.reuse, train, verdicts)
        chosen = self.sample(train, verdicts)
        kept = int(chosen.sum())
        models: dict[Side, Subwords] = {}
        groups: Iterable[tuple[Side, ...]] = [SIDES] if config.joint else [("source",), ("target",)]
        if self.config.task == "parsing":
            groups = [("source",)]
            models["target"] = self.learn_symbols(train, verdicts)
        for sides in groups:
            name = "learning" if config.joint else f"learning {sides[0]}"
            if kept >= LONG_LEARNING:
                _say(f"{name} {config.size:,} subwords; once the pairs are read, SentencePiece reports no progress")
            with show_progress(name, kept, "pairs") as progress:
                # Symbols, typos and made-up names are to be spelled out, not to become subwords.
                forms = Varier(replace(self.config.vary, symbols=0.0, typos=0.0, names=0.0), self.config.seed)
                lines = train.lines(chosen, sides, progress.update, forms)
                try:
                    model = Subwords(_learn(lines, config))
                except ConfigError as error:
                    raise ConfigError(f"{error}{self.describe_losses(verdicts)}") from error
            models.update(dict.fromkeys(sides, model))
        return models

    def learn_symbols(self, train: Spool, verdicts: np.ndarray) -> Subwords:
        """Make the target side's model for trees: each symbol of their sequences is one token."""
        symbols = Counter(s for line in train.lines(verdicts == KEPT, ("target",)) for s in line.split())
        return Subwords(learn_symbols(choose_symbols(symbols, self.config.subwords.size)))

    def sample(self, train: Spool, verdicts: np.ndarray) -> np.ndarray:
        """Choose the pairs that subwords are learned from."""
        most = self.config.subwords.sample
        kept = np.flatnonzero(verdicts == KEPT)
        if len(kept) > most:
            # Weighted sampling without replacement (Efraimidis and Spirakis 2006): the first to arrive win.
            arrival = np.random.default_rng(self.config.seed).exponential(size=len(kept)) / train.weights()[kept]
            kept = kept[np.argpartition(arrival, most)[:most]]
        chosen = np.zeros(len(verdicts), bool)
        chosen[kept] = True
        return chosen

    def reuse_subwords(self, origin: Path, train: Spool, verdicts: np.ndarray) -> dict[Side, Subwords]:
        """Return the subwords of another data set or model, extended if asked.

        A translation model has words and no brackets: for parsing, the symbols of trees are learned.
        """
        paths, config = find_subwords(origin), self.config.subwords
        source, target = load_sides(paths["source"], paths["target"])
        if self.config.task == "parsing" and target.kind != "word":
            target = self.learn_symbols(train, verdicts)
        old: dict[Side, Subwords] = {"source": source, "target": target}
        if not config.extend and not config.symbols:
            return old
        chosen = self.sample(train, verdicts)
        words: dict[Side, Counter[str]] = {side: count_words(train.lines(chosen, (side,))) for side in SIDES}
        models = extend(old, words, config.extend, config.symbols)
        for side in ("target",) if source.numbers_like(target) else SIDES:
            known = len(old[side])
            new = models[side].pieces(range(known, len(models[side])))
            shown = f": {' '.join(new[:8])}{' …' if len(new) > 8 else ''}" if new else ""
            _say(f"{len(new):,} new subwords added to the {known:,} of {origin}{shown}")
        return models

    def encode(
        self, train: Spool, held: dict[str, Spool], selection: Selection, models: dict[Side, Subwords]
    ) -> dict[str, Any]:
        """Pass two: lines of the spool in, shards out."""
        names = save_sides(self.folder, models)
        vocabularies: dict[Side, int] = {side: len(models[side]) for side in SIDES}
        ranges = [[0, 0] for _ in train.inputs]
        with ExitStack() as stack:
            writers = {
                split: stack.enter_context(SplitWriter(self.folder, split, vocabularies)) for split in ("train", *held)
            }
            self.encode_spool(train, selection.verdicts, self.config.clean.tokens, models, writers, ranges)
            for split, spool in held.items():
                verdicts = np.full(len(spool.rows), DEV, np.uint8)
                into = {"train": writers["train"], "dev": writers[split]}
                self.encode_spool(spool, verdicts, None, models, into, ranges)
            splits = {split: writer.close() for split, writer in writers.items()}
        if not splits["train"]["pairs"]:
            raise _nothing_left(self.report.total_dropped())
        return {
            "format": shards.FORMAT,
            "fingerprint": self.inputs.fingerprint(self.config),
            "made_from": self.inputs.describe(self.config),
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
            "splits": splits,
        }

    def encode_spool(
        self,
        spool: Spool,
        verdicts: np.ndarray,
        limit: int | None,
        models: dict[Side, Subwords],
        writers: dict[str, SplitWriter],
        ranges: list[list[int]],
    ) -> None:
        """Append the pairs of one spool to the splits, and note in `ranges` which of them came from each input."""
        if not len(verdicts):
            return
        done = 0
        model_files = models["source"].model, models["target"].model
        arguments = (spool.path, *model_files, limit, self.dropped is not None, self.config.vary, self.config.seed)
        with (
            show_progress("encoding", len(verdicts), "pairs") as progress,
            closing(parallel_map(EncodeTask, arguments, spool.cut(verdicts), self.workers)) as results,
        ):
            for encoded in results:
                first = writers["train"].pairs
                for split, sides in encoded.splits.items():
                    writers[split].append(sides)
                if spool.inputs is self.inputs.train:
                    kept = encoded.count("train") - encoded.varied.total()
                    self.report.add_encoded(encoded, kept, encoded.count("dev"), encoded.varied)
                    self.save_examples(encoded.examples)
                    extent = ranges[encoded.input]
                    extent[0] = first if extent[0] == extent[1] else extent[0]
                    extent[1] = writers["train"].pairs
                done += encoded.read
                progress.update(done, done)

    def save_examples(self, examples: dict[str, list[Example]]) -> None:
        if self.dropped:
            for rule in sorted(examples.keys() & CODES.keys()):
                self.dropped.writelines(f"{rule}\t{e.where}\t{e.source}\t{e.target}\n" for e in examples[rule])


def _note_quotes(block: Block, given: Input) -> None:
    if looks_quoted(block, given):
        _say(f"{given.files[0]}: has fields in double quotes, and the quotes stay in the text; --quoted removes them")


def _only_normalise(config: CleanConfig) -> CleanConfig:
    """Return the settings for a dev or test set, taken as it is: only empty or unreadable pairs may be dropped."""
    return replace(
        config, damaged=False, long=None, letters=None, repeated=None, copied=None, leak="off", language=None,
        script=False, ratio=None, duplicate=False, near_duplicate=False, tokens=None,
    )  # fmt: skip


def _learn(lines: Iterator[str], config: SubwordsConfig) -> bytes:
    """Learn subwords; what is raised while lines are read, such as Ctrl-C, is not reported as SentencePiece's error."""
    failures: list[BaseException] = []

    def watched() -> Iterator[str]:
        try:
            yield from lines
        except (Exception, KeyboardInterrupt) as error:
            failures.append(error)
            raise

    try:
        return learn(watched(), config)
    except DataError as error:
        raise failures[0] if failures else error from None


def _open_dropped(path: Path) -> io.TextIOWrapper:
    # Without the time, so that equal runs write equal bytes.
    return io.TextIOWrapper(gzip.GzipFile(path, "wb", mtime=0), "utf-8", "backslashreplace", newline="\n")


def _nothing_left(dropped: Counter[str]) -> DataError:
    return DataError(
        f"no training pair is left after cleaning (dropped: {_list_rules(dropped)}); see --help for --clean.…"
    )


def _list_rules(dropped: Counter[str]) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in dropped.most_common(4) if count)


def _raise_problems(problems: list[Problem]) -> None:
    if not problems:
        return
    lines = [str(problem) for problem in sorted(problems)[:MOST_PROBLEMS]]
    if len(problems) >= MOST_PROBLEMS:
        lines.append("… and perhaps more; reading stopped here")
    if any(problem.rule == "utf8" for problem in problems):
        lines.append(f"if the whole file is in another encoding, convert it with: {find_converter(b'')}")
        lines.append("if only some lines are, fix them, or drop such pairs with --clean.utf8 drop")
    if any(problem.rule == "format" for problem in problems):
        lines.append("fix the file, or drop such rows with --clean.format drop")
    raise DataError("\n".join(lines))
