"""Documents: HTML, office documents, e-books, subtitles; their texts are translated, everything else stays."""

import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.decoding.alignment import Links
from transduce.decoding.files import Output, window_size
from transduce.decoding.options import Options, Request
from transduce.decoding.shelf import read_languages
from transduce.decoding.translation import Translation
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.progress import show_progress
from transduce.text import cues, office
from transduce.text.codes import Codes
from transduce.text.markup import Markup
from transduce.text.office import Office
from transduce.text.packed import decode, open_bytes
from transduce.text.subtitles import Subtitles

HTML = (".html", ".htm")
TEXTS = (*HTML, *cues.ENDINGS)
"""kinds that are plain text and may go to standard output"""
# Unsupported kinds, refused because they must not be read as lines of text.
_OTHERS = (".doc", ".rtf", ".pdf", ".ppt", ".xls", ".xlsx", ".ods", ".pages", ".mobi")
_OTHER_SUBTITLES = (".ass", ".ssa", ".sub", ".sbv", ".ttml", ".dfxp")


def find_kind(path: Path | None, html: bool | None) -> str | None:
    """Return the kind of document that a file is by its name, as an ending; None for plain lines."""
    ending = path.suffix.lower() if path else ""
    if ending in _OTHERS:
        raise DataError(
            f"{path}: {ending} files are not supported; save it as {', '.join(office.ENDINGS)} or as plain text"
        )
    if ending in _OTHER_SUBTITLES:
        raise DataError(f"{path}: {ending} subtitles are not supported; save them as {' or '.join(cues.ENDINGS)}")
    if ending in (*office.ENDINGS, *cues.ENDINGS):
        return ending
    return HTML[0] if html or (html is None and ending in HTML) else None


Document = Markup | Office | Subtitles


def read_document(path: Path | None, kind: str, codes: Codes) -> Document:
    """Read a whole file, or all of standard input."""
    content = _read(path)
    if kind in office.ENDINGS:
        return Office(str(path), content, codes=codes)
    if kind in cues.ENDINGS:
        return Subtitles(str(path), content)
    return Markup(decode(str(path or "standard input"), content), codes)


def find_codes(about: dict[str, Any], tag: str) -> Codes:
    """Return the languages that a document is translated between by a model, into that of a tag if one is given."""
    source, target = read_languages(about) or ("", "")
    return Codes.read(source, tag.strip("<>") or target)


def _read(path: Path | None) -> bytes:
    if path is None:
        return sys.stdin.buffer.read()
    stream, raw = open_bytes(path)
    with closing(raw), closing(stream):
        return stream.read()


def translate_document(
    translator: Translator,
    document: Document,
    options: Options,
    settings: dict[str, Any],
    common: Request,
    output: Output | None = None,
    note: Callable[[Translation], None] = lambda translation: None,
) -> list[tuple[str, Links | None]]:
    """Translate a document's texts; `common` applies to all of them, and its own text is not used.

    `note` is called with each new translation. Translations are written to `output`, if given, as they come; those it
    has from an earlier run are taken from it.
    """
    every = document.texts
    found = _take_up(output, every) if output else []
    options = replace(options, alignments=document.has_elements)
    with show_progress("translate", len(every), "texts") as task:
        while texts := every[len(found) : len(found) + window_size(len(found))]:
            requests = [Request(text).with_common(common) for text in texts]
            for translation in translator.stream(requests, options, **settings):
                note(translation)
                version = translation.versions()[0]
                found.append((version.text, version.links))
                task.update(len(found), len(found))
            if output:
                for one in found[-len(texts) :]:
                    output.write(json.dumps(one))
                output.save(len(found), _digest(every[: len(found)]))
    return found


def _take_up(output: Output, texts: list[str]) -> list[tuple[str, Links | None]]:
    """Return the translations of an earlier run; refuse those of other texts."""
    if not output.done:
        return []
    if output.done > len(texts) or _digest(texts[: output.done]) != output.digest:
        raise DataError(
            f"{output.partial}: its {output.done:,} texts are not the first of this document; give the same input to "
            f"resume, or {output.anew()}"
        )
    print(f"{output.path}: resuming after {output.done:,} texts", file=sys.stderr)
    lines = output.partial.read_text(encoding="utf-8").splitlines()
    return [
        (text, None if links is None else [(source, target) for source, target in links])
        for text, links in map(json.loads, lines)
    ]


def _digest(texts: list[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
