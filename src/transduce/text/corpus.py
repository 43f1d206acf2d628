"""Read parallel text in blocks of lines: aligned files, TSV, JSON lines, TMX, trees; plain or compressed.

The main process cuts files into raw blocks; workers decode them (`decode_block`), so that decoding runs on all cores.
"""

import csv
import json
import re
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from transduce.errors import DataError
from transduce.text import numbers, tmx
from transduce.text.grow import grow
from transduce.text.packed import COMPRESSED, damage_errors, find_converter, open_bytes
from transduce.text.trees import Leaves, TreeError, cut_trees, parse_tree, to_sentence, to_sequence

BLOCK_LINES = 4096
NOT_UTF8 = "not UTF-8"
MOST_LINES = 500  # of a row of quoted TSV
# A line of quoted TSV: fields, of which the last may be open, so that it goes on in the next line.
_QUOTED = rb'"(?:[^"]++|"")*+'
_FIELD = rb"(?:" + _QUOTED + rb'"(?=[\t\r\n])|(?!")[^\t]*+)'
_ROW = re.compile(rb"(?:" + _FIELD + rb"\t)*+(?:" + _FIELD + rb"(?:\r?\n)?|(?P<open>" + _QUOTED + rb"))\Z")
# For `looks_quoted`: the share that counts as nearly all, and how many sides with quotes inside suffice by themselves.
MOSTLY, LEAST_QUOTED = 0.9, 10
DOCUMENTS = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF"  # first bytes of .docx, .xlsx, .odt and more; .doc, .xls; .pdf
NOT_PLAIN = (
    "is a spreadsheet, a document or an archive, not plain text; save what is in it as text in UTF-8: a table with "
    "tabs between its columns, as .tsv for --pairs, or one sentence to a line, a file for each language"
)
FORMATS = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tmx": "tmx"}

Format = Literal["lines", "tsv", "jsonl", "tmx", "builtin", "trees"]


@dataclass(frozen=True, kw_only=True)
class Input:
    """One parallel corpus: two aligned files, one file that holds both sides, or a split of the built-in corpus."""

    files: tuple[Path, ...]
    format: Format
    weight: float = 1.0
    columns: tuple[int, int] = (1, 2)
    keys: tuple[str, str] = ("source", "target")
    languages: tuple[str, str] | None = None
    labelled: bool = False  # whether opening brackets have labels in a tree's sequence
    quoted: bool = False  # whether fields of a .tsv file may stand in double quotes
    leaves: Leaves = "plain"  # what stands for words in a tree's sequence
    grown: tuple[int, int, int] | None = None  # to make more trees: constituents and unions of each, and a seed

    @property
    def size(self) -> int:
        """Bytes on disk, to measure progress by."""
        return 0 if self.format == "builtin" else sum(file.stat().st_size for file in self.files)


@dataclass(frozen=True)
class Block:
    """Raw lines of one input: bytes for each side, or one piece for both (TSV, JSON lines, trees)."""

    input: int
    first_line: int
    count: int
    raw: tuple[bytes, ...]
    position: int  # bytes of the input's files consumed so far
    lines: tuple[int, ...] | None = None  # line numbers, where they do not count up by one (TMX, trees, quoted TSV)

    def line(self, row: int) -> int:
        """Return the line number in the file of a row of this block."""
        return self.lines[row] if self.lines else self.first_line + row


@dataclass(frozen=True, order=True)
class Problem:
    """A fault at one line of one file, the rule that would drop it, and its text as far as it is readable."""

    file: str
    line: int
    what: str
    rule: str = field(default="format", compare=False)
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


@dataclass
class Decoded:
    """The pairs of a block as text; `rows` are their places in the block."""

    rows: list[int] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def find_format(path: Path) -> Format:
    """Return the format of a file of pairs by its name, ignoring a compression suffix."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    found = FORMATS.get(suffixes[-1]) if suffixes else None
    if suffixes[-1:] == [".csv"]:
        raise DataError(
            f"{path}: save it with tabs between the columns and a name that ends in .tsv (with --quoted if fields are "
            "in double quotes)"
        )
    if found is None and is_document(path):
        raise DataError(f"{path}: {NOT_PLAIN}")
    if found is None:
        raise DataError(
            f"{path}: the name does not tell this file's format; rename it to .tsv, .jsonl or .tmx "
            f"(.gz, .xz, .bz2 or .zst may follow), or give two aligned files with --source and --target"
        )
    return cast(Format, found)


def is_document(path: Path) -> bool:
    """Return whether a file is of an office program or a PDF, by its first bytes."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) in DOCUMENTS
    return False


def find_language(path: Path) -> str | None:
    """Return the language that a file's name ends in, ignoring a compression suffix: de for newstest2014.de.xz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1][1:] if suffixes else None


def tell(raw: BinaryIO) -> int:
    """Return how many bytes of a file have been read; 0 for a pipe, which cannot tell."""
    return raw.tell() if raw.seekable() else 0


class _Lines:
    """Reads and counts the lines of one file; damage is reported with the line before it."""

    def __init__(self, path: Path):
        self.path = path
        self.stream, self.raw = open_bytes(path)
        self.count = 0

    def take(self, count: int) -> list[bytes]:
        """Return up to `count` more lines, each with its line end; drop a byte order mark at the start of the file."""
        try:
            lines = list(islice(self.stream, count))
        except damage_errors() as error:
            raise DataError(
                f"{self.path}: damaged, or not in the format its name says, somewhere after line {self.count:,} "
                f"({error}); download or compress the file again"
            ) from error
        if self.count == 0 and lines:
            if lines[0].startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{self.path}:1: this is UTF-16; convert it with: {find_converter(lines[0])}")
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        self.count += len(lines)
        if lines and not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
        return lines

    def read(self) -> Iterator[bytes]:
        """Yield all further lines."""
        while taken := self.take(BLOCK_LINES):
            yield from taken

    def close(self) -> None:
        """Close the file."""
        self.stream.close()
        self.raw.close()

    def count_rest(self) -> int:
        """Read to the end and return the number of lines in the whole file."""
        while self.take(BLOCK_LINES):
            pass
        return self.count


def read_blocks(number: int, given: Input) -> Generator[Block, None, None]:
    """Cut an input into blocks; unequal files and empty files are errors."""
    if given.format in ("tmx", "builtin"):
        yield from _read_units(number, given)
        return
    with ExitStack() as stack:
        files = [stack.enter_context(closing(_Lines(path))) for path in given.files]
        if given.format == "trees":
            yield from _read_trees(number, given, files[0])
        elif given.format == "tsv" and given.quoted:
            yield from _read_rows(number, files[0], _join_rows(files[0].read()), "the file is empty")
        else:
            yield from _read_lines(number, files)


def _read_lines(number: int, files: list[_Lines]) -> Iterator[Block]:
    first = 1
    while True:
        taken = [file.take(BLOCK_LINES) for file in files]
        if len({len(lines) for lines in taken}) > 1:
            counts = [f"{file.path} has {file.count_rest():,} lines" for file in files]
            raise DataError(
                f"{' but '.join(counts)}; line n of one file must translate line n of the other, "
                f"so find the extra or missing line and fix it"
            )
        count = len(taken[0])
        if count == 0:
            break
        position = sum(tell(file.raw) for file in files)
        yield Block(number, first, count, tuple(b"".join(lines) for lines in taken), position)
        first += count
    if first == 1:
        raise DataError(f"{files[0].path}: the file is empty")


def _read_trees(number: int, given: Input, file: _Lines) -> Iterator[Block]:
    trees = cut_trees(file.read())
    if given.grown:
        trees = grow(trees, *given.grown)
    yield from _read_rows(number, file, ((line, tree + b"\n") for line, tree in trees), "contains no trees")


def _read_rows(number: int, file: _Lines, rows: Iterator[tuple[int, bytes]], empty: str) -> Iterator[Block]:
    """Yield blocks of what may have several lines, given with the number of the first; `empty` says what is wrong."""
    first = 1
    while some := list(islice(rows, BLOCK_LINES)):
        raw = b"".join(row for _, row in some)
        yield Block(number, first, len(some), (raw,), tell(file.raw), tuple(line for line, _ in some))
        first += len(some)
    if first == 1:
        raise DataError(f"{file.path}: {empty}")


def _join_rows(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of quoted TSV, with spaces for the line breaks in their fields.

    Lines become one row only if its quotes are right. So what a stray quote opens does not take in the lines after it,
    and the error names the line of that quote.
    """
    ahead: list[bytes] = []
    number = 1
    while ahead or (ahead := list(islice(lines, 1))):
        many, is_open = 1, _is_open(ahead[0], False)
        while is_open and many < MOST_LINES:
            if many == len(ahead):
                ahead += islice(lines, 1)
            if many == len(ahead):  # the file ends
                break
            is_open = _is_open(ahead[many], True)
            many += 1
        many = many if is_open is False else 1
        parts = [line.removesuffix(b"\n").removesuffix(b"\r") for line in ahead[: many - 1]]
        yield number, b" ".join([*parts, ahead[many - 1]])
        number += many
        del ahead[:many]


def _is_open(line: bytes, inside: bool) -> bool | None:
    """Whether a quoted field goes on after a line, which may begin inside one; None if its quotes are wrong."""
    if not inside and b'"' not in line:
        return False
    found = _ROW.match(b'"' + line if inside else line)
    return found and found["open"] is not None


@cache
def _builtin(split: str) -> list[tuple[str, str]]:
    return numbers.corpus(cast(Literal["train", "dev", "test"], split))


def _read_units(number: int, given: Input) -> Iterator[Block]:
    """Yield blocks of what is not read line by line: translation units (TMX) and the built-in corpus."""
    path = given.files[0]
    with ExitStack() as stack:
        if given.format == "builtin":
            pairs = _builtin(path.suffix[1:])
            units = (tmx.Unit(source, target, line) for line, (source, target) in enumerate(pairs, start=1))
            raw = None
        else:
            stream, raw = (stack.enter_context(file) for file in open_bytes(path))
            units = tmx.read_units(path, stream, given.languages, damage_errors())
        first = 1
        while rows := list(islice(units, BLOCK_LINES)):
            source = "".join(unit.source.replace("\n", " ") + "\n" for unit in rows)
            target = "".join(unit.target.replace("\n", " ") + "\n" for unit in rows)
            lines = tuple(unit.line for unit in rows)
            yield Block(number, first, len(rows), (source.encode(), target.encode()), tell(raw) if raw else 0, lines)
            first += len(rows)


def read_sample(inputs: tuple[Input, ...], blocks: int, most: int) -> tuple[list[str], list[str]]:
    """Return both sides of about `blocks` blocks from the beginnings of all inputs, thinned to about `most` lines."""
    source: list[str] = []
    target: list[str] = []
    for number, given in enumerate(inputs):
        with closing(read_blocks(number, given)) as found:
            for block in islice(found, -(-blocks // len(inputs))):
                decoded = decode_block(block, given)
                source += decoded.source
                target += decoded.target
    step = max(1, len(source) // most)
    return source[::step], target[::step]


def decode_block(block: Block, given: Input) -> Decoded:
    """Decode a block to text; lines that are not UTF-8 or not in the format become problems, not pairs."""
    result = Decoded()
    match given.format:
        case "lines" | "tmx" | "builtin":
            sides = [_decode_lines(block, given.files[min(i, len(given.files) - 1)], i, result) for i in (0, 1)]
            for row, (source, target) in enumerate(zip(*sides, strict=True)):
                if source is not None and target is not None:
                    result.rows.append(row)
                    result.source.append(source)
                    result.target.append(target)
        case "tsv" | "jsonl" | "trees":
            split = {"tsv": _split_tsv, "jsonl": _split_json, "trees": _split_tree}[given.format]
            for row, line in enumerate(_decode_lines(block, given.files[0], 0, result)):
                if line is None:
                    continue
                pair = split(line, given) if line and not line.isspace() else ("", "")  # to be dropped as empty
                if isinstance(pair, str):
                    rule = "utf8" if pair.startswith(NOT_UTF8) else "format"
                    result.problems.append(Problem(str(given.files[0]), block.line(row), pair, rule, line))
                else:
                    result.rows.append(row)
                    result.source.append(pair[0])
                    result.target.append(pair[1])
    return result


def looks_quoted(block: Block, given: Input) -> bool:
    """Whether sides are in double quotes as spreadsheets write them, with quotes inside doubled."""
    decoded = decode_block(block, given)
    rows = [
        [side for side in (source, target.rstrip("\r")) if len(side) > 1 and side[0] == side[-1] == '"']
        for source, target in zip(decoded.source, decoded.target, strict=True)
    ]
    inner = [side[1:-1] for row in rows for side in row if '"' in side[1:-1]]
    doubled = sum('"' not in text.replace('""', "") for text in inner)
    some = len(inner) >= LEAST_QUOTED or sum(map(bool, rows)) >= max(1, MOSTLY * len(rows))
    return some and doubled >= MOSTLY * len(inner)


def _decode_lines(block: Block, file: Path, side: int, result: Decoded) -> list[str | None]:
    raw = block.raw[side]
    try:
        return list(raw.decode().split("\n")[:-1])
    except UnicodeDecodeError:
        lines: list[str | None] = []
        for row, line in enumerate(raw.split(b"\n")[:-1]):
            try:
                lines.append(line.decode())
            except UnicodeDecodeError as error:
                lines.append(None)
                what = f"{NOT_UTF8} (byte 0x{line[error.start]:02X} at position {error.start + 1})"
                text = line.decode(errors="replace")
                result.problems.append(Problem(str(file), block.line(row), what, "utf8", text))
        return lines


def _split_tsv(line: str, given: Input) -> tuple[str, str] | str:
    cells = line.split("\t")
    if given.quoted:
        try:
            cells = next(csv.reader([line.rstrip("\r")], "excel-tab", strict=True))
        except csv.Error as error:
            is_open = str(error) == "unexpected end of data"
            why = f"one opens a field without a right end in {MOST_LINES:,} lines; double those that are text"
            return f"its double quotes cannot be read ({why if is_open else error})"
    if len(cells) < max(given.columns):
        return f"has {len(cells)} columns, wanted at least {max(given.columns)} (--columns says which two are used)"
    return cells[given.columns[0] - 1], cells[given.columns[1] - 1]


def _split_tree(line: str, given: Input) -> tuple[str, str] | str:
    """Return a tree's words and its sequence, or what is wrong with it."""
    try:
        tree = parse_tree(line)
    except TreeError as error:
        return str(error)
    return to_sentence(tree.words()), " ".join(to_sequence(tree, labelled=given.labelled, leaves=given.leaves))


# JSON can write half a character, which UTF-8 cannot.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _split_json(line: str, given: Input) -> tuple[str, str] | str:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return f"not JSON ({error.msg} at position {error.pos + 1})"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        return f"unreadable JSON ({error})"
    values: list[str] = []
    for key in given.keys:
        value: Any = record
        is_there = True
        for step in key.split("."):
            is_there = isinstance(value, dict) and step in value
            value = value[step] if is_there else None
        if not is_there:
            found = ", ".join(record) if isinstance(record, dict) else type(record).__name__
            return f"has no text under the key {key!r} (found: {found}; --keys says which two are used)"
        if not isinstance(value, str):
            inside = f"; {key}.{next(iter(value))} is a key inside it" if isinstance(value, dict) and value else ""
            kind = "null" if value is None else f"of type {type(value).__name__}"
            return f"has no text under the key {key!r} (its value is {kind}; --keys says which two are used{inside})"
        if not value.isascii() and (lone := _LONE_SURROGATE.search(value)):
            return f"{NOT_UTF8} (half a character, \\u{ord(lone[0]):04x}, under the key {key!r})"
        values.append(value)
    return values[0], values[1]
