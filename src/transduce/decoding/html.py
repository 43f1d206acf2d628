"""HTML files: their texts are translated, their tags stay as they are and go with the words they stand around."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.decoding.options import Options, Request
from transduce.decoding.translator import Translator, Version
from transduce.disk import move, write_synced
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
    translator: Translator, html: str, options: Options, settings: dict[str, Any], common: Request
) -> str:
    """Translate the texts of HTML; what is asked of all of them is `common`, whose own text is not used."""
    markup, found = Markup(html), list[Version]()
    requests = [Request(text).with_common(common) for text in markup.texts]
    options = replace(options, alignments=markup.has_elements)
    with show_progress("translate", len(requests), "texts") as task:
        for translation in translator.stream(requests, options, **settings):
            found.append(translation.versions()[0])
            task.update(len(found), len(found))
    return markup.fill([(version.text, version.links) for version in found])


def write_html(path: Path | None, html: str) -> None:
    """Write it to a file, which is whole or not there, or to standard output."""
    if path is None:
        sys.stdout.write(html)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(f"{path}.partial")
    write_synced(partial, html.encode("utf-8"))
    move(partial, path)
