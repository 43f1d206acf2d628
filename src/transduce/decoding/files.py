"""Translate files of any size: lines are streamed in order, and a job that was killed can be resumed.

With `--out FILE`, translations are written to `FILE.partial`; `FILE.partial.json` beside it says what they are made
from and how far the job is. At the end the first becomes FILE, compressed if its name ends in .gz or the like, and the
second is removed.
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

READ_AHEAD = 1 << 22  # characters that may wait to be translated
FIRST_TEXTS = 64  # lines in the first window; later ones have as many as all before them
LINE = 64  # characters that each line counts in addition, for its overhead in memory


class InputLines:
    """The lines of a file or of standard input, with their numbers and how much of the file has been read."""

    def __init__(self, path: Path | None):
        self.name = str(path) if path else "standard input"
        if path:
            self.stream, self.raw = open_bytes(path)
        else:
            # Not sys.stdin: while a thread waits for that, Python can exit only by abort().
            self.stream = self.raw = open(sys.stdin.fileno(), "rb", closefd=False)
        about = os.fstat(self.raw.fileno())
        self.waits = not stat.S_ISREG(about.st_mode)  # such as a pipe, whose next line may take long
        self.total = 0 if self.waits else about.st_size
        self.number = self.skipped = self.begin = 0

    def skip(self, output: "Output") -> "hashlib._Hash":
        """Skip the lines that an earlier run translated, check that they are the same, and return their checksum."""
        digest = hashlib.sha256()
        for _ in range(output.done):
            digest.update(self._read().removesuffix(b"\n") + b"\n")
        if self.number < output.done or (output.done and digest.hexdigest() != output.digest):
            raise DataError(
                f"{self.name}: its first {output.done:,} lines are not the ones {output.partial} was made from; "
                "give the same input to resume, or remove that file to start again"
            )
        self.skipped, self.begin = output.done, self.position
        if output.done:
            print(f"{output.path}: resuming after {output.done:,} lines", file=sys.stderr)
        return digest

    def __iter__(self) -> Iterator[str]:
        while line := self._read():
            try:
                yield line.removesuffix(b"\n").decode("utf-8")
            except UnicodeDecodeError as error:
                converter = find_converter(line if self.number == 1 else b"")
                raise DataError(
                    f"{self.name}:{self.number}: not UTF-8 (byte 0x{line[error.start]:02X} at position "
                    f"{error.start + 1}); convert the text with: {converter}"
                ) from error

    def name_line(self, before: int, place: int) -> str:
        """Return how errors name a line; `place` counts from 1 after the lines skipped and `before` more."""
        return f"{self.name}:{self.skipped + before + place}"

    @property
    def position(self) -> int:
        """Bytes read so far of a file on disk; 0 for a pipe."""
        return self.raw.tell() if self.total else 0

    def close(self) -> None:
        """Close a file; a pipe stays open, as a thread may be waiting for it."""
        if not self.waits:
            self.stream.close()
            self.raw.close()

    def _read(self) -> bytes:
        try:
            line = self.stream.readline()
        except Exception as error:  # disks and decompressors raise different kinds
            raise DataError(
                f"{self.name}: damaged, or not in the format its name says, somewhere after line {self.number:,} "
                f"({error}); download or compress the file again"
            ) from error
        self.number += bool(line)
        return line.removeprefix(BOM_UTF8) if self.number == 1 else line


def read_ahead(lines: Iterable[str]) -> Iterator[str | None]:
    """Yield lines as they arrive, and None while the next is not there yet: time to translate those at hand."""
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
    """Read a request from a line of JSON: a string, or an object with text, prefix, require and forbid."""
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
    """Return a translation as one line of JSON."""
    found: dict[str, Any] = {
        "source": translation.source,
        "translation": translation.text,
        "score": round_score(translation.score),
    }
    if wants_alternatives:
        found["alternatives"] = [
            {"translation": text, "score": round_score(score)} for text, score in translation.alternatives()
        ]
    found["sentences"] = [
        {
            "source": sentence.source,
            "alternatives": [
                {
                    "translation": one.text,
                    "score": round_score(one.score),
                    "log_probability": round_score(one.log_probability),
                    "complete": one.complete,
                    "tokens": list(one.tokens),
                    "token_scores": [round_score(score) for score in one.token_scores],
                    **({"alignment": one.alignment} if options.alignments else {}),
                }
                for one in sentence.alternatives
            ],
            **({"unsaid": list(sentence.unsaid)} if sentence.unsaid else {}),
        }
        for sentence in translation.sentences
    ]
    return json.dumps(found, ensure_ascii=False)


def round_score(number: float) -> float:
    return round(number, 6)


class Output:
    """Where translations go: standard output, or a file that appears only when it is complete."""

    def __init__(self, path: Path | None, about: dict[str, Any]):
        self.path, self.about = path, about
        # Of an earlier run: its lines, their bytes, the checksum of the input they come from, and what else it saved.
        self.done, self.size, self.digest = 0, 0, ""
        self.known: dict[str, Any] = {}
        self.waiting: list[bytes] = []
        if path is None:
            self.file: BinaryIO = _standard_output()
            return
        refuse_existing(path)
        self.partial, self.note = Path(f"{path}.partial"), Path(f"{path}.partial.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not buffered, so that Python does not retry a failed write when it exits.
        self.file = self.partial.open("ab", buffering=0)
        try:
            self._lock()
            refuse_existing(path)  # another process may have finished it since
            self._take_up()
        except BaseException:
            self.file.close()
            raise

    def _lock(self) -> None:
        """Refuse a second writer."""
        if not hold(self.file):
            raise DataError(f"{self.partial}: another process is writing it; wait for it to end")

    def _take_up(self) -> None:
        try:
            before = json.loads(self.note.read_text(encoding="utf-8"))
            known = before["lines"], before["bytes"], before["sha256"], before.get("known", {})
        except FileNotFoundError:
            if self.partial.stat().st_size:
                raise DataError(
                    f"{self.partial}: cannot be resumed, as {self.note.name} is missing; remove it"
                ) from None
            before, known = {}, (0, 0, "", {})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(f"{self.note}: not readable ({error}); {self.anew()}") from error
        about = json.loads(json.dumps(self.about))
        changed = [
            f"{self.partial}: was started with {key} = {literal(before.get(key))}, not {literal(about[key])}"
            for key in about
            if known[0] and before.get(key) != about[key]
        ]
        if changed:
            raise DataError("\n".join([*changed, f"repeat the same command to resume, or {self.anew()}"]))
        self.done, self.size, self.digest, self.known = known
        if self.partial.stat().st_size < self.size:
            raise DataError(f"{self.partial}: has lost some of its {self.done:,} lines; {self.anew()}")
        self.file.truncate(self.size)  # drops what was written after the last save
        self.save(self.done, self.digest, self.known)

    def anew(self) -> str:
        """Return how to start again, for errors."""
        return f"remove {self.partial} and {self.note.name} to start again"

    def write(self, line: str) -> None:
        """Queue a line for the next `save`."""
        self.waiting.append(line.encode("utf-8") + b"\n")

    def save(self, lines: int, digest: str, known: Mapping[str, Any] | None = None) -> None:
        """Write the queued lines; the output then has the first `lines` lines of the input, whose checksum is `digest`.

        A resumed job finds `known` again.
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
            # The note is replaced in one step, as the job may be killed here too.
            new = Path(f"{self.note}.new")
            more = {"known": known} if known else {}
            write_json(new, {**self.about, "lines": lines, "bytes": self.size, "sha256": digest, **more})
            move(new, self.note)
        except OSError as error:
            raise DataError(
                f"{self.partial}: cannot be written ({error.strerror}); finished work is kept: "
                "free disk space, and repeat the command to resume"
            ) from error

    def finish(self, content: bytes | None = None) -> None:
        """Give the file, or `content` made from its lines, the final name; compressed if the name says so."""
        if self.path is not None:
            refuse_existing(self.path)
            whole = self.partial
            if content is not None or self.path.suffix.lower() in COMPRESSED:
                whole = Path(f"{self.partial}.whole")
                self._write_whole(whole, content)
            if sys.platform == "win32":
                self.file.close()  # Windows cannot rename an open file
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
                f"{whole}: cannot be written ({error.strerror}); the translations are kept: "
                "free disk space, and repeat the command to resume"
            ) from error

    def close(self) -> None:
        """Close the file."""
        if self.path is not None:
            self.file.close()


def _standard_output() -> BinaryIO:
    """Return standard output for bytes; a notebook's takes only text."""
    return getattr(sys.stdout, "buffer", None) or cast(BinaryIO, _TextOnly())


class _TextOnly:
    def write(self, text: bytes) -> int:
        return sys.stdout.write(text.decode("utf-8"))

    def flush(self) -> None:
        sys.stdout.flush()


def refuse_existing(path: Path) -> None:
    """Refuse to overwrite a file."""
    if path.exists():
        raise DataError(f"{path}: already exists; remove it, or name another file")


def translate_lines(
    translator: Translator,
    lines: InputLines,
    output: Output,
    options: Options,
    settings: dict[str, Any],
    *,
    common: Request,
    json_input: bool = False,
    json_output: bool = False,
    alternatives: bool = False,
    note: Callable[[Translation], None] = lambda translation: None,
) -> int:
    """Translate the lines that an earlier run has not; return how many, and call `note` with each translation.

    `common` applies to every line, and its own text is not used. Lines before an error are translated and saved.
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
                    note(translation)
                    digest.update(line.encode() + b"\n")
                    written += 1
            finally:
                output.save(output.done + written, digest.hexdigest())
            show(1, 1)
    output.finish()
    return written


@contextmanager
def track_progress(name: str, lines: InputLines, output: Output) -> Iterator[Callable[[int, int, int, int], None]]:
    """Show progress on standard error, unless results go to the terminal too: one would overwrite the other.

    Yield a function to call with the lines done before a window, its lines, and how much of it is done of how much.
    """
    if output.path is None and sys.stdout.isatty():
        yield lambda *_: None
    else:
        with show_progress(name, lines.total - lines.begin, "lines") as task:
            yield partial(_show, task, lines)


def _show(task: Task, lines: InputLines, before: int, window: int, found: int, wanted: int) -> None:
    """Show that the lines before a window are translated, and the share `found` / `wanted` of the window."""
    done = before + window * found / wanted
    # Lines read ahead are not done: take the share of the lines read so far that are translated.
    share = done / max(1, lines.number - lines.skipped)
    task.update((lines.position - lines.begin) * share, int(done))


def window_size(before: int) -> int:
    """Return the most texts to translate together after `before` others."""
    return min(WINDOW_TEXTS, max(FIRST_TEXTS, before))


def cut_windows(lines: InputLines) -> Iterator[list[str]]:
    """Yield the lines to translate together, from a pipe those at hand; lines before an error come first.

    The first windows are small, so that results appear soon. A resumed job cuts a file into the same windows, so that
    not even rounding can make a difference.
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
