"""Translating files of any size: lines come in as they are read, go out in their order, and a killed job goes on.

The translations of `--out FILE` are written to `FILE.partial`, with `FILE.partial.json` beside it, which says what is
being translated by what. When all of it is done the first becomes FILE, packed if its name ends in .gz or the like, and
the second goes.
"""

import hashlib
import json
import os
import stat
import sys
import threading
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

from transduce.decoding.options import Options, Request
from transduce.decoding.translation import Translation
from transduce.decoding.translator import WINDOW_TEXTS, WINDOW_TOKENS, Translator
from transduce.disk import hold, move, sync_file, sync_folder, write_json
from transduce.errors import DataError, TransduceError, suggest
from transduce.progress import Task, show_progress
from transduce.strict import literal
from transduce.text.packed import COMPRESSED, find_converter, open_bytes, write_packed

READ_AHEAD = 1 << 22  # characters that wait to be translated
FIRST_TEXTS = 64  # lines of the first window; later ones are as large as all before them
LINE = 64  # characters that an empty line counts for: what it takes in memory


class Lines:
    """The lines of a file or of standard input, with their numbers and how much of the file has been read."""

    def __init__(self, path: Path | None):
        self.name = str(path) if path else "standard input"
        if path:
            self.stream, self.raw = open_bytes(path)
        else:
            # Not Python's own: while a thread waits for it, Python cannot end but by abort().
            self.stream = self.raw = open(sys.stdin.fileno(), "rb", closefd=False)
        about = os.fstat(self.raw.fileno())
        self.waits = not stat.S_ISREG(about.st_mode)  # as for a pipe, whose next line may be long in coming
        self.total = 0 if self.waits else about.st_size
        self.number = self.skipped = self.begin = 0

    def skip(self, output: "Output") -> "hashlib._Hash":
        """Read over the lines that were translated before, see that they are the same, and return their checksum."""
        digest = hashlib.sha256()
        for _ in range(output.done):
            digest.update(self._read().removesuffix(b"\n") + b"\n")
        if self.number < output.done or (output.done and digest.hexdigest() != output.digest):
            raise DataError(
                f"{self.name}: its first {output.done:,} lines are not those that {output.partial} was made of; "
                "give the same input to go on, or remove that file to begin anew"
            )
        self.skipped, self.begin = output.done, self.position
        if output.done:
            print(f"{output.path}: {output.done:,} lines are there from before; going on", file=sys.stderr)
        return digest

    def __iter__(self) -> Iterator[str]:
        while line := self._read():
            try:
                yield line.removesuffix(b"\n").decode("utf-8")
            except UnicodeDecodeError as error:
                converter = find_converter(line if self.number == 1 else b"")
                raise DataError(
                    f"{self.name}:{self.number}: not UTF-8 (byte 0x{line[error.start]:02X} at place "
                    f"{error.start + 1}); convert the text with: {converter}"
                ) from error

    def name_line(self, before: int, place: int) -> str:
        """How errors name a line, counted from 1 after so many and those skipped."""
        return f"{self.name}:{self.skipped + before + place}"

    @property
    def position(self) -> int:
        """Bytes read so far of a file on disk."""
        return self.raw.tell() if self.total else 0

    def close(self) -> None:
        """Close a file; what a thread may wait for is left alone."""
        if not self.waits:
            self.stream.close()
            self.raw.close()

    def _read(self) -> bytes:
        try:
            line = self.stream.readline()
        except Exception as error:  # the disk's, or a decompressor's, of which each has its own
            raise DataError(
                f"{self.name}: damaged, or not what its name says, somewhere after line {self.number:,} ({error}); "
                "fetch or compress the file again"
            ) from error
        self.number += bool(line)
        return line.removeprefix(BOM_UTF8) if self.number == 1 else line


def read_ahead(lines: Iterable[str]) -> Iterator[str | None]:
    """Lines as they come; None where the next is not there yet, so that nobody waits longer than needed."""
    queue: SimpleQueue[str | BaseException | None] = SimpleQueue()
    room = threading.Condition()
    held = 0

    def read() -> None:
        nonlocal held
        try:
            for line in lines:
                with room:
                    while held > READ_AHEAD:
                        room.wait()
                    held += LINE + len(line)
                queue.put(line)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        if queue.empty():
            yield None
        item = queue.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return
        with room:
            held -= LINE + len(item)
            room.notify()
        yield item


def read_request(line: str, name: str) -> Request:
    """A request from a line of JSON: a string, or an object with text, prefix, require and forbid."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not JSON ({error}); give a string or an object with a text") from None
    if isinstance(value, str):
        return Request(value)
    wanted = {"text": str, "prefix": str, "require": list, "forbid": list}
    if not isinstance(value, dict) or "text" not in value:
        raise DataError(f'{name}: has no text; give an object such as {{"text": "…"}}')
    for key, own in value.items():
        kind = wanted.get(key)
        if kind is None:
            raise DataError(f"{name}: unknown key {key}{suggest(key, wanted) or '; use ' + ', '.join(wanted)}")
        if not isinstance(own, kind) or (kind is list and not all(isinstance(each, str) for each in own)):
            raise DataError(f"{name}: {key} must be {'a list of strings' if kind is list else 'a string'}")
    phrases = {key: tuple(value.get(key, ())) for key in ("require", "forbid")}
    return Request(value["text"], value.get("prefix", ""), **phrases)


def as_json(translation: Translation, options: Options, wants_alternatives: bool) -> str:
    """A translation as one line of JSON."""
    found: dict[str, Any] = {
        "source": translation.source,
        "translation": translation.text,
        "score": rounded(translation.score),
    }
    if wants_alternatives:
        found["alternatives"] = [
            {"translation": text, "score": rounded(score)} for text, score in translation.alternatives()
        ]
    found["sentences"] = [
        {
            "source": sentence.source,
            "alternatives": [
                {
                    "translation": one.text,
                    "score": rounded(one.score),
                    "log_probability": rounded(one.log_probability),
                    "complete": one.complete,
                    "tokens": list(one.tokens),
                    "token_scores": [rounded(score) for score in one.token_scores],
                    **({"alignment": one.alignment} if options.alignments else {}),
                }
                for one in sentence.alternatives
            ],
            **({"unsaid": list(sentence.unsaid)} if sentence.unsaid else {}),
        }
        for sentence in translation.sentences
    ]
    return json.dumps(found, ensure_ascii=False)


def rounded(number: float) -> float:
    return round(number, 6)


class Output:
    """Where translations go: standard output, or a file that is whole or not there."""

    def __init__(self, path: Path | None, about: dict[str, Any]):
        self.path, self.about = path, about
        # Lines that are there from before, their bytes, the checksum of what they were made of, and what else is known.
        self.done, self.size, self.digest = 0, 0, ""
        self.known: dict[str, Any] = {}
        self.waiting: list[bytes] = []
        if path is None:
            self.file: BinaryIO = _standard_output()
            return
        refuse_existing(path)
        self.partial, self.note = Path(f"{path}.partial"), Path(f"{path}.partial.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not buffered: what cannot be written is not tried once more when Python ends.
        self.file = self.partial.open("ab", buffering=0)
        try:
            self._lock()
            refuse_existing(path)  # it may have been finished since
            self._take_up()
        except BaseException:
            self.file.close()
            raise

    def _lock(self) -> None:
        """One writer at a time."""
        if not hold(self.file):
            raise DataError(f"{self.partial}: another process is writing it; wait for that to end")

    def _take_up(self) -> None:
        try:
            before = json.loads(self.note.read_text(encoding="utf-8"))
            known = before["lines"], before["bytes"], before["sha256"], before.get("known", {})
        except FileNotFoundError:
            if self.partial.stat().st_size:
                raise DataError(
                    f"{self.partial}: is there, but not {self.note.name}, which says what it was made of; remove it"
                ) from None
            before, known = {}, (0, 0, "", {})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(f"{self.note}: not readable ({error}); {self.anew()}") from error
        about = json.loads(json.dumps(self.about))
        changed = [
            f"{self.partial}: was begun with {key} = {literal(before.get(key))}, not {literal(about[key])}"
            for key in about
            if known[0] and before.get(key) != about[key]
        ]
        if changed:
            raise DataError("\n".join([*changed, f"give the same to go on; or {self.anew()}"]))
        self.done, self.size, self.digest, self.known = known
        if self.partial.stat().st_size < self.size:
            raise DataError(f"{self.partial}: has lost some of its {self.done:,} lines; {self.anew()}")
        self.file.truncate(self.size)  # what was being written when the job was killed is translated again
        self.save(self.done, self.digest, self.known)

    def anew(self) -> str:
        """What to do to begin anew."""
        return f"remove {self.partial} and {self.note.name} to begin anew"

    def write(self, line: str) -> None:
        """Let a line be among those saved next."""
        self.waiting.append(line.encode("utf-8") + b"\n")

    def save(self, lines: int, digest: str, known: Mapping[str, Any] | None = None) -> None:
        """Write what waits; all of it is the translation of so many lines of the input with this checksum.

        What is `known` of them is there again when the job goes on.
        """
        text = b"".join(self.waiting)
        self.waiting = []
        if self.path is None:
            self.file.write(text)
            self.file.flush()
            return
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[self.file.write(rest) :]
            os.fsync(self.file.fileno())
            self.size += len(text)
            # The note is replaced in one step: a job may be killed here as well.
            new = Path(f"{self.note}.new")
            more = {"known": known} if known else {}
            write_json(new, {**self.about, "lines": lines, "bytes": self.size, "sha256": digest, **more})
            move(new, self.note)
        except OSError as error:
            raise DataError(
                f"{self.partial}: cannot be written ({error.strerror}); what is there is kept: "
                "make room, and the same command goes on"
            ) from error

    def finish(self, content: bytes | None = None) -> None:
        """Let the file have its name, or what was made of its lines; packed, where the name says that it is."""
        if self.path is not None:
            refuse_existing(self.path)
            whole = self.partial
            if content is not None or self.path.suffix.lower() in COMPRESSED:
                whole = Path(f"{self.partial}.whole")
                self._write_whole(whole, content)
            if sys.platform == "win32":
                self.file.close()  # where nothing open is renamed
            move(whole, self.path)
            self.partial.unlink(missing_ok=True)
            self.note.unlink()
            sync_folder(self.path.parent)

    def _write_whole(self, whole: Path, content: bytes | None) -> None:
        assert self.path
        try:
            with self.partial.open("rb") if content is None else BytesIO(content) as text:
                write_packed(whole, text, self.path.suffix)
            sync_file(whole)
        except OSError as error:
            whole.unlink(missing_ok=True)
            raise DataError(
                f"{whole}: cannot be written ({error.strerror}); what is translated is kept: "
                "make room, and the same command goes on"
            ) from error

    def close(self) -> None:
        """Close the file."""
        if self.path is not None:
            self.file.close()


def _standard_output() -> BinaryIO:
    """Standard output for bytes; a notebook's takes text only."""
    return getattr(sys.stdout, "buffer", None) or cast(BinaryIO, _TextOnly())


class _TextOnly:
    def write(self, text: bytes) -> int:
        return sys.stdout.write(text.decode("utf-8"))

    def flush(self) -> None:
        sys.stdout.flush()


def refuse_existing(path: Path) -> None:
    """Nothing is written over."""
    if path.exists():
        raise DataError(f"{path}: is there already; remove it, or name another file")


def translate_lines(
    translator: Translator,
    lines: Lines,
    output: Output,
    options: Options,
    settings: dict[str, Any],
    *,
    common: Request,
    json_input: bool = False,
    json_output: bool = False,
    alternatives: bool = False,
) -> int:
    """Translate lines that were not translated before; returns how many.

    `common` is what holds for every line; its own text is not used. What comes before an error is translated and saved.
    """
    digest = lines.skip(output)
    written = 0
    with track_progress("translate", lines, output) as show_window:
        for window in cut_windows(lines):
            name = partial(lines.name_line, written)
            requests = (
                (read_request(line, name(place)) if json_input else Request(line)).with_common(common)
                for place, line in enumerate(window, 1)
            )
            show = partial(show_window, written, len(window))
            try:
                found = translator.stream(requests, options, name=name, done=show, **settings)
                for translation, line in zip(found, window):
                    text = as_json(translation, options, alternatives) if json_output else translation.text
                    output.write(text.replace("\n", " "))  # as many lines come out as went in
                    digest.update(line.encode() + b"\n")
                    written += 1
            finally:
                output.save(output.done + written, digest.hexdigest())
            show(1, 1)
    output.finish()
    return written


@contextmanager
def track_progress(name: str, lines: Lines, output: Output) -> Iterator[Callable[[int, int, int, int], None]]:
    """Progress on standard error, unless results go to the terminal too: one would write over the other.

    Gives a function to be told how many lines were done before, the size of the window, and what is done of it.
    """
    if output.path is None and sys.stdout.isatty():
        yield lambda *_: None
    else:
        with show_progress(name, lines.total - lines.begin, "lines") as task:
            yield partial(_show, task, lines)


def _show(task: Task, lines: Lines, before: int, window: int, found: int, wanted: int) -> None:
    """Show that lines before and so large a part of a window of lines are translated."""
    done = before + window * found / wanted
    # What was read ahead is not done: the share of the lines read so far that are translated.
    share = done / max(1, lines.number - lines.skipped)
    task.update((lines.position - lines.begin) * share, int(done))


def window_size(before: int) -> int:
    """Most texts that are translated at a time after so many."""
    return min(WINDOW_TEXTS, max(FIRST_TEXTS, before))


def cut_windows(lines: Lines) -> Iterator[list[str]]:
    """As many lines as are translated at a time, or as there are; those before an error come before it.

    The first windows are small, so that something is seen soon. Files give the same windows again when a job goes on,
    so that not even rounding can make a difference.
    """
    window: list[str] = []
    characters, before = 0, lines.skipped
    problem: TransduceError | None = None
    try:
        for line in read_ahead(lines) if lines.waits else lines:
            if line is not None:
                window.append(line)
                characters += len(line)
            full = len(window) == window_size(before) or characters > 4 * WINDOW_TOKENS
            if window and (line is None or full):
                yield window
                before += len(window)
                window, characters = [], 0
    except TransduceError as error:
        problem = error
    if window:
        yield window
    if problem:
        raise problem
