"""Stream translation memories (TMX 1.1 to 1.4): one pair for each translation unit with one or both of two languages.

If a unit lacks the other language, that side is empty; cleaning drops the pair and reports it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html.entities import html5
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from transduce.errors import DataError

CHUNK = 1 << 18
# Inside a segment these hold native formatting codes, not text; <hi> and <mrk> hold text.
CODES = {"bpt", "ept", "ph", "it", "ut"}
# Codes of languages that were withdrawn, and which programs in Java still write.
WITHDRAWN = {"iw": "he", "in": "id", "ji": "yi"}


@dataclass(frozen=True)
class Unit:
    """A pair of segments and the line where its <tu> begins."""

    source: str
    target: str
    line: int


class _Reader:
    """Collects units from expat's events; one instance reads one file."""

    def __init__(self, path: Path, languages: tuple[str, str] | None):
        self.path = path
        self.wanted = languages
        self.units: list[Unit] = []
        self.paired = False  # whether any unit had both languages
        self.found: dict[str, None] = {}  # every language met, in order
        self.segments: dict[str, str] = {}
        self.language = ""
        self.text: list[str] | None = None
        self.skipping = 0
        self.line = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        # With a DOCTYPE that is not read, expat skips entities it does not know: &eacute; would be lost.
        self.parser.SkippedEntityHandler = lambda name, _: self.characters(html5.get(f"{name};", f"&{name};"))
        self.parser.buffer_text = True

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match name:
            case "tu":
                self.segments = {}
                self.line = self.parser.CurrentLineNumber
            case "tuv":
                self.language = _tag(attributes.get("xml:lang") or attributes.get("lang") or "")
                self.found[self.language] = None
            case "seg":
                self.text = []
            case _ if name in CODES:
                self.skipping += 1

    def characters(self, data: str) -> None:
        if self.text is not None and not self.skipping:
            self.text.append(data)

    def end(self, name: str) -> None:
        match name:
            case "seg":
                self.segments.setdefault(self.language, "".join(self.text or []))
                self.text = None
            case "tu":
                self.add_unit()
            case _ if name in CODES:
                self.skipping -= 1

    def add_unit(self) -> None:
        if self.wanted is None:
            if len(self.segments) != 2:
                found = ", ".join(self.segments) or "none"
                raise DataError(
                    f"{self.path}:{self.line}: a translation unit with {len(self.segments)} languages ({found}); "
                    f"say which two to read with --languages, e.g. --languages en de"
                )
            # Without --languages the first unit decides, so that the sides never swap later. Regions are ignored unless
            # they alone tell the sides apart: en-US and de in one unit, en-GB and de in the next, are the same corpus.
            first, second = self.segments
            main, other = first.split("-")[0], second.split("-")[0]
            self.wanted = (first, second) if main == other else (main, other)
        source, target = (self.find(language) for language in self.wanted)
        if source is not None or target is not None:
            self.units.append(Unit(source or "", target or "", self.line))
            self.paired = self.paired or None not in (source, target)

    def find(self, language: str) -> str | None:
        """Return the segment in a language: for `en` that in `en`, else in `en-US`."""
        language = _tag(language)
        if language in self.segments:
            return self.segments[language]
        return next((text for key, text in self.segments.items() if key.split("-")[0] == language), None)


def _tag(language: str) -> str:
    """Return a language tag in the form in which tags are compared: en-us for EN_us, he for the withdrawn iw."""
    main, dash, rest = language.lower().replace("_", "-").partition("-")
    return WITHDRAWN.get(main, main) + dash + rest


def read_units(
    path: Path, stream: BinaryIO, languages: tuple[str, str] | None, damage: tuple[type[Exception], ...]
) -> Iterator[Unit]:
    """Yield the units of a TMX file without holding more than a chunk of it."""
    reader = _Reader(path, languages)
    while True:
        try:
            chunk = stream.read(CHUNK)
            reader.parser.Parse(chunk, not chunk)
        except expat.ExpatError as error:
            raise DataError(f"{path}:{error.lineno}: not well-formed XML ({expat.ErrorString(error.code)})") from error
        except (LookupError, ValueError) as error:  # from the codec that the first line names
            raise DataError(f"{path}:1: {error}; convert the file with: iconv -t UTF-8") from error
        except damage as error:
            line = reader.parser.CurrentLineNumber
            where = f"near line {line:,} ({error})"
            raise DataError(f"{path}: damaged, or not in the format its name says, {where}") from error
        yield from reader.units
        reader.units.clear()
        if not chunk:
            break
    if not reader.paired:
        wanted = " and ".join(languages) if languages else "two languages"
        raise DataError(
            f"{path}: contains no translation unit with {wanted} (found: {', '.join(reader.found) or 'none'}; "
            f"--languages says which two are read)"
        )
