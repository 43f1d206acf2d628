"""HTML files: their texts are translated, their tags stay as they are and go with the words they stand around."""

import hashlib
import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.decoding.alignment import Links
from transduce.decoding.files import Output, window_size
from transduce.decoding.options import Options, Request
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.progress import show_progress
from transduce.text.corpus import open_bytes
from transduce.text.markup import Markup

ENDINGS = (".html", ".htm")


def read_html(path: Path | None) -> str:
    """All of a file, or of standard input."""
    try:
        if path is None:
            return sys.stdin.buffer.read().decode("utf-8")
        stream, raw = open_bytes(path)
        with closing(raw), closing(stream):
            return stream.read().decode("utf-8")
    except UnicodeDecodeError as error:
        name, line = path or "standard input", error.object.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}:{line}: not UTF-8; convert the text with: iconv -f LATIN1 -t UTF-8") from None


def translate_html(
    translator: Translator,
    html: str,
    options: Options,
    settings: dict[str, Any],
    common: Request,
    output: Output | None = None,
) -> str:
    """Translate the texts of HTML; what is asked of all of them is `common`, whose own text is not used.

    Where there is an output they are written to it as they come, and those that it has from before are taken from it.
    """
    markup = Markup(html)
    found = _take_up(output, markup.texts) if output else []
    options = replace(options, alignments=markup.has_elements)
    with show_progress("translate", len(markup.texts), "texts") as task:
        while texts := markup.texts[len(found) : len(found) + window_size(len(found))]:
            requests = [Request(text).with_common(common) for text in texts]
            for translation in translator.stream(requests, options, **settings):
                version = translation.versions()[0]
                found.append((version.text, version.links))
                task.update(len(found), len(found))
            if output:
                for one in found[-len(texts) :]:
                    output.write(json.dumps(one))
                output.save(len(found), _digest(markup.texts[: len(found)]))
    return markup.fill(found)


def _take_up(output: Output, texts: list[str]) -> list[tuple[str, Links | None]]:
    """The translations that are there from before, if they are of these texts."""
    if not output.done:
        return []
    if output.done > len(texts) or _digest(texts[: output.done]) != output.digest:
        raise DataError(
            f"{output.partial}: its {output.done:,} texts are not the first of this HTML; give the same input to go "
            f"on, or {output.anew()}"
        )
    print(f"{output.path}: {output.done:,} texts are there from before; going on", file=sys.stderr)
    lines = output.partial.read_text(encoding="utf-8").splitlines()
    return [
        (text, None if links is None else [(source, target) for source, target in links])
        for text, links in map(json.loads, lines)
    ]


def _digest(texts: list[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
