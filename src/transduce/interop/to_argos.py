"""Export packages for Argos Translate and LibreTranslate: a CTranslate2 model, a SentencePiece model, the languages.

A package is a zip file with one folder: metadata.json, model/, sentencepiece.model, README.md. Its one SentencePiece
model is the source's: a translation is put together from the texts of its tokens.
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path

from transduce.disk import sync_file, write_json, write_synced
from transduce.errors import UsageError
from transduce.interop import to_ctranslate2
from transduce.interop.check import Pair, Said
from transduce.interop.ctranslate2 import PACKAGE, PIECES
from transduce.interop.to_ctranslate2 import find_problems as find_problems
from transduce.model.saved import Loaded, Precision
from transduce.text.shards import SIDES

PRECISIONS: tuple[str, ...] = ("float32", "int8")
WRITTEN_WITH: tuple[str, ...] = ()
CHECKED_WITH: tuple[str, ...] = ("ctranslate2",)
ALIKE: bool = False
UNSAID = to_ctranslate2.UNSAID
_NAMES = {
    **{"ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish"},
    **{"de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian"},
    **{"eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician"},
    **{"he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese"},
    **{"ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay", "nb": "Norwegian", "nl": "Dutch"},
    **{"pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian"},
    **{"sq": "Albanian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese"},
    **{"zh": "Chinese"},
}

USE: str = """\
```sh
pip install argostranslate
python -c "import argostranslate.package as p; p.install_from_path('FOLDER')"
argos-translate --from-lang SOURCE --to-lang TARGET "EXAMPLE"
```

`argospm install` takes names from an index, not files. LibreTranslate uses packages that are installed this way. Argos
Translate splits text into sentences with a model that it downloads once."""


def write(loaded: Loaded, folder: Path, precision: Precision) -> None:
    """Write the export into a folder, from which `pack` makes a package."""
    source, target = languages_of(loaded)
    (folder / "model").mkdir()
    to_ctranslate2.write(loaded, folder / "model", precision)
    for side in SIDES:
        (folder / "model" / f"{side}.spm").unlink()
    write_synced(folder / PIECES, loaded.subwords["source"].model)
    about = {
        "package_version": "1.0",
        "argos_version": "1.9",
        **{"from_code": source, "from_name": _NAMES.get(source, source)},
        **{"to_code": target, "to_name": _NAMES.get(target, target)},
    }
    write_json(folder / PACKAGE, about)


def languages_of(loaded: Loaded) -> tuple[str, str]:
    """Return the two languages, by which packages are found."""
    known = loaded.about.get("languages") or ()
    if len(known) != 2:
        raise UsageError(
            f"{loaded.folder}: does not record its languages, which a package must name; add --languages en de"
        )
    return known[0], known[1]


def pack(loaded: Loaded, folder: Path, out: Path) -> None:
    """Zip a folder into a package."""
    inside = Path("translate-{}_{}-1_0".format(*languages_of(loaded)))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, inside / path.relative_to(folder))
    sync_file(out)


def translate(folder: Path, lines: Sequence[str], beam: int, most: int | None) -> list[Said]:
    """Translate as Argos Translate does: with CTranslate2 and the one SentencePiece model."""
    pieces = folder / PIECES
    return to_ctranslate2.translate_with(folder / "model", pieces, pieces, lines, beam, most)


def score(loaded: Loaded, folder: Path, pairs: Sequence[Pair]) -> list[float]:
    """Return the log-probabilities that CTranslate2 gives to translations."""
    return to_ctranslate2.score(loaded, folder / "model", pairs)
