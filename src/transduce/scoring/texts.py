"""Read the texts to score: translations, references and sources, from plain or compressed files or standard input."""

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from transduce.disk import short_names
from transduce.errors import DataError, UsageError
from transduce.text.corpus import Input, Problem, read_blocks
from transduce.text.trees import Tree, TreeError, check_trees, cut_trees, parse_tree, to_sentence

STANDARD_INPUT = Path("-")
SHOWN_PROBLEMS = 5
TOKENISED = 0.25  # share of lines that end in ' .' above which a text counts as tokenised


@dataclass(frozen=True)
class System:
    """Translations by one system, with the name it goes by."""

    name: str
    lines: list[str]


@dataclass(frozen=True)
class Texts:
    """The texts of one test set; line n of each belongs to line n of all others."""

    systems: list[System]
    references: list[list[str | None]]  # None: this set has no reference for this sentence, but another has
    source: list[str] | None

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return len(self.systems[0].lines)

    def references_of(self, line: int) -> list[str]:
        """Return the references of one sentence."""
        return [some for reference in self.references if (some := reference[line]) is not None]

    def first_references(self) -> list[str]:
        """Return the first reference of each sentence."""
        return [self.references_of(line)[0] for line in range(self.sentences)]


def read_texts(systems: Sequence[Path], references: Sequence[Path], source: Path | None) -> Texts:
    """Read all files; refuse files that do not belong together with an error that names them."""
    paths = [*systems, *references, *([source] if source else [])]
    _refuse_repetitions(systems, references)
    if paths.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input (-) can be read once; name files for the others")
    lines = {path: read_lines(path) for path in dict.fromkeys(paths)}
    _refuse_unequal(lines)
    names = _names(systems)
    return Texts(
        [System(name, lines[path]) for name, path in zip(names, systems)],
        _open_references(references, [lines[path] for path in references]),
        lines[source] if source else None,
    )


def read_trees(systems: Sequence[Path], references: Sequence[Path], left_out: Sequence[Path] = ()) -> Texts:
    """Read files of trees, one per line or spread over lines; refuse trees over other words than the reference's.

    Sentences that also occur in the files `left_out` are left out.
    """
    if len(references) > 1:
        raise UsageError("trees are scored against one reference; give one --reference")
    paths = [*systems, *references]
    _refuse_repetitions(systems, references)
    if paths.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input (-) can be read once; name files for the others")
    found = {path: read_treebank(path) for path in paths}
    _refuse_unequal(found, "trees", "tree")
    gold = found[references[0]]
    problems = [
        Problem(
            name_of(path), line, _differing_words(ours.words(), theirs.words(), f"{name_of(references[0])}:{other}")
        )
        for path in systems
        for (line, ours), (other, theirs) in zip(found[path], gold)
        if ours.words() != theirs.words()
    ]
    if problems:
        raise DataError(_list(problems, "trees can be compared only over the same words; parse the reference's words"))
    seen = {tuple(tree.words()) for path in left_out for _, tree in read_treebank(path)}
    kept = [place for place, (_, tree) in enumerate(gold) if tuple(tree.words()) not in seen]
    if not kept:
        raise DataError(f"{name_of(references[0])}: all {len(gold):,} sentences are in the trees to leave out")
    # Words without a tag get the reference's, so that only brackets differ.
    lines = {path: [str(trees[n][1].with_tags(gold[n][1])) for n in kept] for path, trees in found.items()}
    names = _names(systems)
    return Texts(
        [System(name, lines[path]) for name, path in zip(names, systems)],
        [list(lines[references[0]])],
        [to_sentence(gold[n][1].words()) for n in kept],
    )


def read_treebank(path: Path) -> list[tuple[int, Tree]]:
    """Return the trees of a file with their line numbers."""
    lines = (line for raw in _read_raw(path) for line in raw.split(b"\n")[:-1])
    return check_trees(cut_trees(lines), name_of(path))


def _differing_words(ours: list[str], theirs: list[str], where: str) -> str:
    if len(ours) != len(theirs):
        return f"has {len(ours)} words, but {where} has {len(theirs)}"
    place = next(place for place, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1])
    return f"its word {place + 1} is {ours[place]}, but that of {where} is {theirs[place]}"


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file without their ends; lines that are not UTF-8 are an error."""
    lines: list[str] = []
    problems: list[Problem] = []
    for raw in _read_raw(path):
        for line in raw.split(b"\n")[:-1]:
            try:
                lines.append(line.decode().removesuffix("\r"))
            except UnicodeDecodeError as error:
                lines.append("")
                what = f"not UTF-8 (byte 0x{line[error.start]:02X} at position {error.start + 1})"
                problems.append(Problem(name_of(path), len(lines), what))
    if problems:
        raise DataError(_list(problems, "convert the file to UTF-8"))
    return lines


def name_of(path: Path) -> str:
    """Return a path as messages name it."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file."""
    if STANDARD_INPUT in (one, other):
        return False
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def find_oddities(texts: Texts, *, trees: bool = False) -> Iterator[str]:
    """Yield notes on what is not wrong, but seldom intended."""
    references = [line for reference in texts.references for line in reference if line is not None]
    for system in texts.systems:
        if empty := sum(not line.strip() for line in system.lines):
            yield f"{system.name}: lines without a translation: {empty:,} of {texts.sentences:,}"
        if any(system.lines == reference for reference in texts.references):
            yield f"{system.name}: every line equals its reference; is this the right file?"
        if all(map(_is_tree, system.lines)) and all(map(_is_tree, references)) and not trees:
            yield f"{system.name}: these lines are trees, scored here as words; for labelled F1 give --metrics parseval"
        if all(map(_is_json, system.lines)):
            yield (
                f"{system.name}: these lines are JSON, scored here as plain text; score what "
                "`transduce translate` prints without --json, or what `jq -r .translation` makes of this file"
            )
        if _tokenised(system.lines) > TOKENISED > _tokenised(references):
            yield (
                f"{system.name}: many lines end in ' .' and those of the reference do not; "
                "scores need plain text, so detokenise it first"
            )


def _read_raw(path: Path) -> Iterator[bytes]:
    if path == STANDARD_INPUT:
        raw = sys.stdin.buffer.read().removeprefix(BOM_UTF8)
        if not raw:
            raise DataError("standard input: it is empty")
        yield raw if raw.endswith(b"\n") else raw + b"\n"
        return
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name a file of sentences, one to a line")
    with closing(read_blocks(0, Input(files=(path,), format="lines"))) as blocks:
        for block in blocks:
            yield block.raw[0]


def _refuse_repetitions(systems: Sequence[Path], references: Sequence[Path]) -> None:
    for number, path in enumerate(systems):
        if any(same_file(path, reference) for reference in references):
            raise UsageError(f"{path} is given as a translation and as its reference; name the translation first")
        if any(same_file(path, other) for other in systems[:number]):
            raise UsageError(f"{path} is given twice; name each system once")


def _refuse_unequal(lines: Mapping[Path, Sequence[object]], things: str = "lines", thing: str = "line") -> None:
    if len({len(some) for some in lines.values()}) > 1:
        counts = [f"{name_of(path)} has {len(some):,} {things}" for path, some in lines.items()]
        raise DataError(
            f"{' but '.join(counts)}; {thing} n of one file must belong to {thing} n of the others, "
            f"so find the extra or missing {thing} and fix it"
        )


def _open_references(paths: Sequence[Path], references: list[list[str]]) -> list[list[str | None]]:
    """Replace empty lines by None, a missing reference; refuse sentences that have no other."""
    problems = [
        Problem(name_of(paths[0]), line, "the reference is empty" + ("" if len(paths) == 1 else ", and all others too"))
        for line, of_sentence in enumerate(zip(*references), start=1)
        if not any(some.strip() for some in of_sentence)
    ]
    if problems:
        raise DataError(
            _list(problems, "every sentence needs a reference; fix these lines, or leave them out of all files")
        )
    return [[line if line.strip() else None for line in reference] for reference in references]


def _list(problems: Sequence[Problem], remedy: str) -> str:
    shown = [str(problem) for problem in problems[:SHOWN_PROBLEMS]]
    more = len(problems) - len(shown)
    return "\n".join([*shown, *([f"and {more:,} more lines like these"] if more else []), remedy])


def _names(systems: Sequence[Path]) -> list[str]:
    """Return names that tell the files apart."""
    names = short_names(systems) | {STANDARD_INPUT: name_of(STANDARD_INPUT)}
    return [names[path] for path in systems]


def _is_tree(line: str) -> bool:
    try:
        return bool(parse_tree(line).children)
    except TreeError:
        return False


def _is_json(line: str) -> bool:
    """Return whether a line was written by `translate --json`."""
    try:
        return line.startswith("{") and "translation" in json.loads(line)
    except (ValueError, RecursionError):
        return False


def _tokenised(lines: Sequence[str]) -> float:
    return sum(line.rstrip().endswith(" .") for line in lines) / max(1, len(lines))
