"""Models by their languages: those that come with transduce (the box) and those in the user's folder."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce import places
from transduce.errors import DataError, TransduceError, UsageError
from transduce.model.card import CARD
from transduce.model.saved import CONFIG, MANIFEST, find_model, read_config, read_manifest
from transduce.places import user_folder
from transduce.text.detect import drop_region, name_language


@dataclass(frozen=True)
class Shelved:
    """A model that can be found by its languages."""

    name: str
    folder: Path
    languages: tuple[str, str] | None
    """source and target, if known"""
    parameters: int
    bytes: int
    where: str
    """box, or the folder it was found in"""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in a form that JSON can hold."""
        return {**vars(self), "folder": str(self.folder)}


def list_models(*folders: Path) -> list[Shelved]:
    """Return the models in the user's folder, in the box, and anywhere below the given folders."""
    found = [*_look(user_folder(), str(user_folder())), *_look(places.BOX, "box")]
    for folder in folders:
        if not folder.is_dir():
            remedy = f"--card {folder} prints its card" if str(folder) in places.names() else "name one that has some"
            raise DataError(f"{folder}: is not a folder with runs or models in it; {remedy}")
        found += _look_below(folder)
    return found


def find_pair(target: str, source: str | None = None) -> Path:
    """Return the model that translates into a language, from `source` if given; the user's own come first.

    Without a model for a region, such as de-AT, fall back to one for the language.
    """
    known = [(model, model.languages) for model in list_models() if model.languages]
    codes = [code for _, languages in known for code in languages]
    for into, out_of in ((target, source), (drop_region(target, codes), source and drop_region(source, codes))):
        for model, (own_source, own_target) in known:
            if _is(into, own_target) and (out_of is None or _is(out_of, own_source)):
                return model.folder
    pairs = ["-".join(languages) for _, languages in known]
    sides = ((0, "--from", source), (-1, "--to", target))
    meant = [
        f"{flag} {code}"
        for side, flag, given in sides
        if given and (code := _meant(given, [pair[side] for _, pair in known], side))
    ]
    wanted = f"{source}-{target}" if source else f"into {target}"
    if meant:
        raise UsageError(f"no model translates {wanted}; did you mean {' '.join(meant)}?")
    here = f"; available: {', '.join(dict.fromkeys(pairs))}" if pairs else ""
    raise UsageError(f"no model translates {wanted}{here}; put models into {user_folder()}, or name a run")


def _is(wanted: str, there: str) -> bool:
    return wanted.lower() == there.lower()


def _meant(given: str, codes: Sequence[str], side: int) -> str | None:
    """Return the known language meant by an unknown code: an English name, a region of it, or a pair on one side."""
    if any(_is(given, code) for code in codes):
        return None
    parts = re.split("[-_]", given)
    for meant in (parts[side], parts[0], given):
        for code in codes:
            if _is(meant, code) or _is(meant, name_language(code)):
                return code
    return None


def read_card(path: Path) -> str:
    """Return the text of a model's card, without the tags for catalogues."""
    card = find_model(path) / CARD
    if not card.is_file():
        raise DataError(f"{card}: does not exist; this model has no card")
    return re.sub(r"\A---\n.*?\n---\n", "", card.read_text(encoding="utf-8"), flags=re.DOTALL).strip()


def _look(folder: Path, where: str) -> Iterator[Shelved]:
    """Yield the models right below a folder."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            model = find_model(path)
        except DataError:
            continue  # not a model
        yield from _describe(path.name, model, where)


def _look_below(folder: Path) -> Iterator[Shelved]:
    """Yield all finished models below a folder, but not the checkpoints of runs."""
    for manifest in sorted(folder.rglob(MANIFEST)):
        path = manifest.parent
        if (path / CONFIG).exists() and "checkpoints" not in path.relative_to(folder).parts:
            run = path.parent if path.name == "model" else path
            yield from _describe(str(run), path, str(folder))


def _describe(name: str, folder: Path, where: str) -> Iterator[Shelved]:
    try:
        manifest, config = read_manifest(folder), read_config(folder)
    except TransduceError as error:
        print(f"note: {error}", file=sys.stderr)
        return
    size = sum(file["bytes"] for file in manifest["files"].values())
    yield Shelved(name, folder, read_languages(manifest["about"]), config.model.parameters(), size, where)


def read_languages(about: dict[str, Any]) -> tuple[str, str] | None:
    """Return the languages that a model translates from and into, if it says so."""
    languages: Sequence[str] = about.get("languages") or ()
    return (languages[0], languages[1]) if len(languages) == 2 else None
