"""Word-processor documents, slides and e-books: zipped XML, of which only files with text or languages change."""

import copy
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from xml.parsers import expat

from transduce.errors import DataError
from transduce.text.codes import NO_CODES, Codes
from transduce.text.markup import Links, Markup
from transduce.text.named import set_language
from transduce.text.paragraphs import Paragraphs

# Limits for an unpacked document: bytes more than it has when packed, bytes of files with text, files.
MOST_MORE, MOST_TEXT, MOST_FILES = 1 << 28, 1 << 26, 20_000

_DRAWN = r"(?:charts/chart|diagrams/(?:data|drawing))\d+"
# The files with text in a document, by the ending of its name.
_FILES = {
    ".docx": re.compile(rf"word/(?:(?:document|header|footer|footnotes|endnotes)\d*|{_DRAWN})\.xml", re.IGNORECASE),
    ".odt": re.compile(r"(?:content|styles)\.xml"),
    ".pptx": re.compile(rf"ppt/(?:slides/slide\d+|notesSlides/notesSlide\d+|{_DRAWN})\.xml", re.IGNORECASE),
    ".odp": re.compile(r"(?:content|styles)\.xml"),
    ".epub": re.compile(r".*\.(?:x?html?|ncx)", re.IGNORECASE),
}
ENDINGS = tuple(_FILES)
# The kind of a document by its contents: the file `mimetype`, or a folder.
_TYPES = {
    b"application/vnd.oasis.opendocument.text": ".odt",
    b"application/vnd.oasis.opendocument.presentation": ".odp",
    b"application/vnd.oasis.opendocument.spreadsheet": ".ods",
    b"application/epub+zip": ".epub",
}
_FOLDERS = {"word": ".docx", "ppt": ".pptx", "xl": ".xlsx"}
_OLD = b"\xd0\xcf\x11\xe0"  # Office's format before 2007, also used for newer documents with a password


class Office:
    """A document: `texts` are to be translated, and `fill` makes the same document with the translations."""

    def __init__(self, name: str, content: bytes, most_text: int = MOST_TEXT, codes: Codes = NO_CODES):
        self._content, self._codes = content, codes
        self._ending = ending = PurePath(name).suffix.lower()
        self._pages: dict[str, Markup | Paragraphs] = {}
        """the files with text, by their names"""
        for own, read in _read(name, ending, content, most_text):
            try:
                self._pages[own] = Markup(read.decode("utf-8"), codes) if ending == ".epub" else Paragraphs(read)
            except (expat.ExpatError, ValueError) as error:
                raise DataError(f"{name}: damaged: {own} is not readable XML ({error}); save it again") from None
        self.texts = [text for page in self._pages.values() for text in page.texts]
        self.has_elements = any(page.has_elements for page in self._pages.values())

    def fill(self, translations: Sequence[tuple[str, Links | None]]) -> bytes:
        """Return the document with these translations; without links, words are assumed to keep their order."""
        if not self.texts:
            return self._content
        left = iter(translations)
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._content)) as before, zipfile.ZipFile(made, "w") as archive:
            for info in before.infolist():
                content = before.read(info)
                if page := self._pages.get(info.filename):
                    filled = page.fill([next(left) for _ in page.texts])
                    content = filled.encode("utf-8", "replace") if isinstance(filled, str) else filled
                content = set_language(self._ending, info.filename, content, self._codes)
                archive.writestr(copy.copy(info), content)  # in the same order and with the same compression
        return made.getvalue()


def _read(name: str, ending: str, content: bytes, most_text: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files with text, once the whole document has been checked."""
    locked = f"{name}: is locked with a password; save it without one"
    if content.startswith(_OLD):
        raise DataError(f"{locked}, or, if it is older than Office 2007, as {ending}")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            wanted = [info for info in members if _FILES[ending].fullmatch(info.filename)]
            _check_sizes(name, len(content) + MOST_MORE, most_text, members, wanted)
            if any(info.flag_bits & 1 for info in members) or _is_locked(archive, wanted):
                raise DataError(locked)
            found = _find_ending(archive)
            if found and found != ending:
                raise DataError(f"{name}: its content is that of a {found} document; rename it to {found}")
            if not wanted and not found:
                raise DataError(f"{name}: has none of the files that hold a {ending} document's text; save it again")
            if damaged := archive.testzip():
                raise DataError(f"{name}: damaged: the checksum of {damaged} is wrong; download or save it again")
            yield from ((info.filename, archive.read(info)) for info in wanted)
    except DataError:
        raise
    except Exception as error:  # from the archive or a decompressor, each with its own kinds
        raise DataError(f"{name}: damaged, or not a {ending} document ({error}); download or save it again") from None


def _check_sizes(
    name: str, most: int, most_text: int, members: Sequence[zipfile.ZipInfo], wanted: Sequence[zipfile.ZipInfo]
) -> None:
    """Check the sizes that the archive states; unpacking stops at these sizes, so they can be trusted."""
    text, size = (sum(info.file_size for info in some) for some in (wanted, members))
    if len(members) > MOST_FILES or size > most or text > most_text:
        raise DataError(
            f"{name}: is too large when unpacked: {len(members):,} files, {size:,} bytes, {text:,} of them text; "
            f"at most {MOST_FILES:,}, {most:,} and {most_text:,} are accepted; split it"
        )
    if len({info.filename for info in members}) < len(members):
        raise DataError(f"{name}: damaged: has several files of the same name; save it again")
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in members):
        raise DataError(f"{name}: is compressed in a way that documents never are; save it again")


def _is_locked(archive: zipfile.ZipFile, wanted: Sequence[zipfile.ZipInfo]) -> bool:
    """Whether files with text are encrypted; in e-books fonts often are, which does not matter."""
    names = archive.namelist()
    if "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        return True
    listed = archive.read("META-INF/encryption.xml") if "META-INF/encryption.xml" in names else b""
    return any(f'"{info.filename}"'.encode() in listed for info in wanted)


def _find_ending(archive: zipfile.ZipFile) -> str | None:
    names = archive.namelist()
    if "mimetype" in names:
        return _TYPES.get(archive.read("mimetype").strip())
    return next((_FOLDERS[folder] for name in names if (folder := name.partition("/")[0]) in _FOLDERS), None)
