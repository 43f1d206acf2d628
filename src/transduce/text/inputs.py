"""The settings of `prepare`, and the inputs they name: which files belong together, and that all can be read."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from transduce.disk import describe_file
from transduce.errors import DataError
from transduce.strict import Settings, to_dict
from transduce.text.clean import VERSION, CleanConfig
from transduce.text.corpus import NOT_PLAIN, Input, find_format, is_document, read_blocks
from transduce.text.shards import FORMAT
from transduce.text.subwords import SubwordsConfig, find_subwords
from transduce.text.trees import Leaves
from transduce.text.vary import VaryConfig

ROLES = ("", "dev_", "test_", "watch_")
KINDS = ("source", "target", "pairs", "trees")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(Settings):
    """Where the text is, and what to do with it."""

    section: ClassVar[str] = ""

    source: tuple[Path, ...] = ()
    """files in the source language, one sentence a line; the first goes with the first --target file, and so on"""
    target: tuple[Path, ...] = ()
    """files in the target language"""
    pairs: tuple[Path, ...] = ()
    """files that hold both sides: .tsv, .jsonl or .tmx (any file may be plain, .gz, .xz, .bz2 or .zst)"""
    weight: tuple[float, ...] = ()
    """how often an epoch shows each input, in the order of --source, --pairs, --trees; 2: twice, 0.5: half of it"""
    dev_source: tuple[Path, ...] = ()
    """source side of the dev set"""
    dev_target: tuple[Path, ...] = ()
    """target side of the dev set"""
    dev_pairs: tuple[Path, ...] = ()
    """dev set with both sides in one file"""
    dev_split: int | None = None
    """hold out this many training pairs as the dev set"""
    test_source: tuple[Path, ...] = ()
    """source side of a test set; read only to keep the test set out of the training set"""
    test_target: tuple[Path, ...] = ()
    """target side of the test set"""
    test_pairs: tuple[Path, ...] = ()
    """test set with both sides in one file"""
    watch_source: tuple[Path, ...] = ()
    """source side of further dev sets, for example of general text; training reports each set's scores"""
    watch_target: tuple[Path, ...] = ()
    """target side of the further dev sets"""
    watch_pairs: tuple[Path, ...] = ()
    """further dev sets, each with both sides in one file"""
    task: Literal["translation", "parsing"] = "translation"
    """what the pairs are: sentences in two languages, or sentences and their trees"""
    trees: tuple[Path, ...] = ()
    """files of bracketed trees, Penn Treebank style, one a line or spread over lines; for --task parsing"""
    dev_trees: tuple[Path, ...] = ()
    """trees of the dev set"""
    test_trees: tuple[Path, ...] = ()
    """trees of a test set; read only to keep its sentences out of the training set (--clean.leak source)"""
    watch_trees: tuple[Path, ...] = ()
    """trees of further dev sets; training reports each set's scores"""
    openings: Literal["plain", "labelled"] = "plain"
    """how constituents open in a tree's sequence: ( or (NP; they always close with )NP"""
    leaves: Leaves = "plain"
    """what stands for a word in a tree's sequence: XX (plain), its tag, which the parser then predicts (tags), or its
    tag and the word itself, which helps the model keep its place (words)"""
    constituents: int = 0
    """constituents of each training tree to add as trees of their own; longer ones are likelier to be chosen"""
    joined: int = 0
    """trees to add for each training tree by joining it with the next one or two"""
    builtin: Literal["numbers"] | None = None
    """use a corpus that comes with transduce instead of files"""
    columns: tuple[int, ...] = (1, 2)
    """columns of source and target in .tsv files, counted from 1"""
    quoted: bool = False
    """read .tsv as spreadsheets write it: fields in double quotes (doubled inside a field), with line breaks in them"""
    keys: tuple[str, ...] = ("source", "target")
    """keys of source and target in .jsonl files; translation.en is the key en inside translation"""
    languages: tuple[str, ...] = ()
    """source and target language, as in en de: those to read from .tmx files and to list the model under; by default
    the endings of the file names tell the model's"""
    seed: int = 1
    """seed of the dev split, of the sample that subwords are learned from, and of added pairs and trees"""
    workers: int | None = None
    """processes that clean and encode; off: one per core"""
    save_dropped: bool = False
    """also write every dropped pair, with the rule that dropped it, to dropped.tsv.gz in the data set, and print that
    file's path"""
    subwords: SubwordsConfig = field(default_factory=SubwordsConfig)
    clean: CleanConfig = field(default_factory=CleanConfig)
    vary: VaryConfig = field(default_factory=VaryConfig)

    def problems(self) -> Iterator[str]:
        """Yield settings that contradict each other or cannot be meant."""
        for role in ROLES:
            sources, targets = getattr(self, f"{role}source"), getattr(self, f"{role}target")
            if len(sources) != len(targets):
                yield (
                    f"{role}source has {len(sources)} files and {role}target has {len(targets)}; "
                    f"they are paired in order, so give the same number of each"
                )
        given = len(self.source) + len(self.pairs) + len(self.trees)
        if self.weight and len(self.weight) != given and len(self.source) == len(self.target):
            yield f"weight has {len(self.weight)} numbers for {given} inputs; give one for each"
        if any(weight <= 0 for weight in self.weight):
            yield f"weight = {list(self.weight)} has a number that is not positive; to drop an input, leave it out"
        if self.dev_split is not None and self.dev_split < 1:
            yield f"dev_split = {self.dev_split} is not positive"
        if self.dev_split is not None and (self.dev_source or self.dev_pairs or self.dev_trees):
            yield "dev_split and a dev set are both given; use one of them"
        if self.task == "parsing" and self.vary.any():
            yield "vary is for translation; for trees use constituents and joined"
        if self.constituents < 0 or self.joined < 0:
            yield "constituents and joined cannot be negative"
        if self.dev_split and (self.constituents or self.joined):
            yield "dev_split would hold out parts of training trees; with constituents or joined give dev_trees"
        given_kinds = {kind for role in ROLES for kind in KINDS if getattr(self, f"{role}{kind}")}
        if self.builtin and given_kinds:
            yield "builtin and files are both given; use one of them"
        if self.task == "translation" and "trees" in given_kinds:
            yield "trees are for parsing; give --task parsing"
        if self.task == "parsing" and (given_kinds - {"trees"} or self.builtin):
            yield "task = parsing reads trees, which contain their sentences; give only --trees, --dev-trees and so on"
        if self.task == "parsing" and self.subwords.joint:
            yield "task = parsing has words on one side and brackets on the other; use --no-subwords.joint"
        if self.task == "parsing" and self.clean.leak == "side":
            yield "different sentences often have the same brackets; use --clean.leak source, or off"
        if self.test_trees and self.clean.leak == "off":
            yield "test_trees is only read to keep sentences out of training; add --clean.leak source, or leave it out"
        if len(self.columns) != 2 or min(self.columns, default=0) < 1:
            yield f"columns = {list(self.columns)}; give two, counted from 1"
        if len(self.keys) != 2:
            yield f"keys = {list(self.keys)}; give two"
        if len(self.languages) not in (0, 2):
            yield f"languages = {list(self.languages)}; give two, source first"
        if self.workers is not None and self.workers < 1:
            yield f"workers = {self.workers} is not positive"


# A corpus with few words has few subwords; all else is as for any corpus.
BUILTIN = {"numbers": PrepareConfig(builtin="numbers", subwords=SubwordsConfig(size=600, coverage=1.0))}
# The paper's 16,000 subwords (section 6.3). Treebanks are made by hand, so no tree is dropped for its content, its
# length or as a duplicate.
PARSING = PrepareConfig(
    task="parsing",
    subwords=SubwordsConfig(size=16_000, joint=False),
    clean=CleanConfig(
        entities=False, damaged=False, long=None, letters=None, repeated=None, copied=None, leak="off", language=None,
        script=False, ratio=None, duplicate=False, near_duplicate=False, tokens=None,
    ),
)  # fmt: skip


def starting_config(builtin: object, task: object) -> PrepareConfig:
    """Return the defaults for a corpus and a task, which the given settings override."""
    return PARSING if task == "parsing" else BUILTIN.get(str(builtin), PrepareConfig())


@dataclass(frozen=True)
class Inputs:
    """The corpora of one `prepare`, checked, with the checksums of their files."""

    train: tuple[Input, ...]
    dev: tuple[Input, ...]
    test: tuple[Input, ...]
    checksums: dict[str, dict[str, Any]]
    watch: tuple[Input, ...] = ()

    def describe(self, config: PrepareConfig) -> dict[str, Any]:
        """Return everything that the data set depends on: settings and the files' contents, but not their paths."""
        settings = to_dict(config)
        for name in ("workers", *(f"{role}{kind}" for role in ROLES for kind in KINDS)):
            del settings[name]
        roles = ("train", "dev", "test", "watch") if self.watch else ("train", "dev", "test")
        if self.train[0].format != "trees":
            del settings["task"], settings["openings"], settings["leaves"], settings["constituents"], settings["joined"]
        contents = {
            role: [[self.checksums[str(file)]["sha256"] for file in given.files] for given in getattr(self, role)]
            for role in roles
        }
        # Without what is unused, so that data sets made before these settings existed are still up to date.
        if not settings["subwords"]["extend"]:
            del settings["subwords"]["extend"]
        if not config.vary.any():
            del settings["vary"]
        if not config.quoted:
            del settings["quoted"]
        if config.clean.format == "error":
            del settings["clean"]["format"]
        if (reused := settings["subwords"].pop("reuse")) is not None:
            paths = find_subwords(Path(reused))
            contents["subwords"] = [[describe_file(path)["sha256"] for path in paths.values()]]
        return {"format": FORMAT, "rules": VERSION, "settings": settings, "contents": contents}

    def fingerprint(self, config: PrepareConfig) -> str:
        """Return a checksum of `describe`."""
        return hashlib.sha256(json.dumps(self.describe(config), sort_keys=True).encode()).hexdigest()


def find_inputs(config: PrepareConfig) -> Inputs:
    """Combine the files into inputs; a single error names all missing, empty and repeated files."""
    if config.builtin:
        train, dev, test = (
            (Input(files=(Path(f"{config.builtin}.{split}"),), format="builtin"),) for split in ("train", "dev", "test")
        )
        if config.dev_split:
            dev = ()
        return Inputs(train, dev, test, _checksum_builtin([*train, *dev, *test]))
    train, dev, test, watch = (_pair_up(config, role) for role in ROLES)
    if not train and config.task == "parsing":
        raise DataError("no training trees are given; use --trees FILE")
    if not dev and not config.dev_split and config.task == "parsing":
        raise DataError("no dev set is given; use --dev-trees FILE, or --dev-split 1000")
    if not train:
        raise DataError("no training text is given; use --source and --target, --pairs, or --builtin numbers")
    if not dev and not config.dev_split:
        raise DataError(
            "no dev set is given; use --dev-source and --dev-target, --dev-pairs, or --dev-split N, which holds out N "
            "of the training pairs: a tenth of them, or 2000 of many"
        )
    name_watched(watch)
    return Inputs(train, dev, test, _check_files([*train, *dev, *test, *watch]), watch)


def name_watched(inputs: tuple[Input, ...]) -> list[str]:
    """Return the names of the watched sets: their files' names up to the first dot, which must differ."""
    names = [re.sub(r"[^\w-]", "-", given.files[0].name.split(".")[0]) for given in inputs]
    for name, given in zip(names, inputs):
        if names.count(name) > 1 or name in ("", "train", "dev"):
            raise DataError(
                f"{given.files[0]}: a watched set is named after its file, and {name!r} is taken; rename the file"
            )
    return names


def _pair_up(config: PrepareConfig, role: str) -> tuple[Input, ...]:
    aligned = list(zip(getattr(config, f"{role}source"), getattr(config, f"{role}target"), strict=True))
    together = getattr(config, f"{role}pairs")
    weights = iter(config.weight if config.weight and not role else [])
    inputs = [Input(files=files, format="lines", weight=next(weights, 1.0)) for files in aligned]
    for path in together:
        inputs.append(
            Input(
                files=(path,),
                format=find_format(path),
                weight=next(weights, 1.0),
                columns=(config.columns[0], config.columns[1]),
                quoted=config.quoted,
                keys=(config.keys[0], config.keys[1]),
                languages=(config.languages[0], config.languages[1]) if config.languages else None,
            )
        )
    grows = config.constituents or config.joined
    for path in getattr(config, f"{role}trees"):
        inputs.append(
            Input(
                files=(path,),
                format="trees",
                weight=next(weights, 1.0),
                labelled=config.openings == "labelled",
                leaves=config.leaves,
                grown=(config.constituents, config.joined, config.seed) if grows and not role else None,
            )
        )
    return tuple(inputs)


def _check_files(inputs: list[Input]) -> dict[str, dict[str, Any]]:
    problems: list[str] = []
    checksums: dict[str, dict[str, Any]] = {}
    seen: dict[object, Path] = {}
    for path in (file for given in inputs for file in given.files):
        if not path.exists():
            problems.append(f"{path}: no such file")
        elif not path.is_file():
            problems.append(f"{path}: not a file")
        elif path.stat().st_size == 0:
            problems.append(f"{path}: the file is empty")
        elif is_document(path):
            problems.append(f"{path}: {NOT_PLAIN}")
        elif path.resolve() in seen:
            problems.append(f"{path}: given twice; name each file once (--weight 2 shows its text twice)")
        else:
            try:
                checksums[str(path)] = entry = describe_file(path)
            except OSError as error:
                problems.append(f"{path}: cannot be read: {error.strerror}")
                continue
            if entry["sha256"] in seen:
                problems.append(f"{path}: has the same content as {seen[entry['sha256']]}; name each text once")
            seen[path.resolve()] = seen[entry["sha256"]] = path
    if problems:
        raise DataError("\n".join(problems))
    return checksums


def _checksum_builtin(inputs: list[Input]) -> dict[str, dict[str, Any]]:
    checksums: dict[str, dict[str, Any]] = {}
    for given in inputs:
        raw = b"".join(part for block in read_blocks(0, given) for part in block.raw)
        checksums[str(given.files[0])] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return checksums
