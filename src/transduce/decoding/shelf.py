"""Models by their languages: those that come with transduce (the box) and those in the user's folder."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from transduce import places
from transduce.errors import DataError, TransduceError, UsageError, name_some
from transduce.model.card import CARD
from transduce.model.saved import CONFIG, MANIFEST, find_model, read_config, read_manifest
from transduce.places import user_folder
from transduce.text.detect import drop_region, name_language, plain_code
from transduce.text.subwords import Subwords

_TAG = re.compile(rb">>[^\s<>]+<<")
_LANGUAGE = re.compile("[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")  # tags may also say other things, such as >>formal<<


@dataclass(frozen=True)
class Direction:
    """A model, and a pair of languages that it translates."""

    folder: Path
    source: str
    """nothing if the model does not say from which language it translates"""
    target: str
    tag: str = ""
    """the language tag that asks a model with several target languages for this one"""

    def __str__(self) -> str:
        return f"{self.source or '?'}-{self.target}"


@dataclass(frozen=True)
class Shelved:
    """A model that can be found by its languages."""

    name: str
    folder: Path
    languages: tuple[str, str] | None
    """source and target, if known"""
    directions: tuple[Direction, ...]
    """what it translates: these languages, and into those of its language tags"""
    parameters: int
    bytes: int
    where: str
    """box, or the folder it was found in"""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in a form that JSON can hold."""
        targets = [direction.target for direction in self.directions]
        fields = {key: value for key, value in vars(self).items() if key != "directions"}
        return {**fields, "folder": str(self.folder), "targets": targets}


def list_models(*folders: Path) -> list[Shelved]:
    """Return the models in the user's folder, in the box, and anywhere below the given folders."""
    found = [*_look(user_folder(), str(user_folder())), *_look(places.BOX, "box")]
    for folder in folders:
        if not folder.is_dir():
            remedy = f"--card {folder} prints its card" if str(folder) in places.names() else "name one that has some"
            raise DataError(f"{folder}: is not a folder with runs or models in it; {remedy}")
        found += _look_below(folder)
    return found


def find_direction(target: str, source: str | None = None) -> Direction:
    """Return a model that translates into a language, from `source` if given, and the tag that asks it to.

    The user's own models come first, and among them those with one target language. Without a model for a region, such
    as de-AT, fall back to one for the language.
    """
    models = sorted(list_models(), key=lambda model: (model.where == "box", len(model.directions) > 1))
    known = [direction for model in models for direction in model.directions]
    codes = [code for direction in known for code in (direction.source, direction.target) if code]
    for into, out_of in product(*((code, code and drop_region(code, codes)) for code in (target, source))):
        for direction in known:
            if into and _is(into, direction.target) and (out_of is None or _is(out_of, direction.source)):
                return direction
    raise UsageError(_explain(target, source, models))


def read_directions(folder: Path) -> list[Direction]:
    """Return what the model in a folder translates; nothing if it says nothing of its languages."""
    manifest = read_manifest(folder)
    source, target = read_languages(manifest["about"]) or ("", "")
    path = folder / manifest["subwords"]["source"]
    try:
        tagged = _TAG.search(path.read_bytes())  # most models have none, and to look for one is fast
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); the model is damaged") from None
    subwords = Subwords.load(path) if tagged else None
    found = {
        plain_code(language): Direction(folder, source, language, tag)
        for tag in (subwords.tags if subwords else ())
        if _LANGUAGE.fullmatch(language := tag.strip("<>"))
    }
    tag = subwords.tag_of(target) if subwords else ""
    # Without a tag, a name such as mul or ROMANCE is that of all the others.
    if target and (tag or not found or name_language(target) != target):
        found.setdefault(plain_code(target), Direction(folder, source, target, tag))
    return list(found.values())


def _explain(target: str, source: str | None, models: Sequence[Shelved]) -> str:
    """Say why no model was found for a target language, and what may be meant."""
    known = [direction for model in models for direction in model.directions]
    wanted = f"{source}-{target}" if source else f"into {target}"
    sides = (
        ("--from", source, 0, [direction.source for direction in known if direction.source]),
        ("--to", target, -1, [direction.target for direction in known]),
    )
    meant = [
        f"{flag} {' or '.join(codes)}"
        for flag, given, side, there in sides
        if given and (codes := _meant(given, there, side))
    ]
    if meant:
        return f"no model translates {wanted}; did you mean {' '.join(meant)}?"
    for model in models:
        for direction in model.directions:
            if not direction.source and _is(target, direction.target):
                return (
                    f"no model translates {wanted}; {model.name} translates into {target}, but does not say from which "
                    f"language: leave out --from {source}"
                )
    named: set[str] = set()
    pairs: list[str] = []
    for model in models:
        pairs.append(name_some([pair for direction in model.directions if (pair := str(direction)) not in named]))
        named.update(map(str, model.directions))
    here = f"; available: {', '.join(filter(None, pairs))}" if known else ""
    return f"no model translates {wanted}{here}; put models into {user_folder()}, or name a run"


def _is(wanted: str, there: str) -> bool:
    return plain_code(wanted) == plain_code(there)


def _meant(given: str, codes: Sequence[str], side: int) -> list[str]:
    """Return the known languages meant by an unknown code: an English name, a region of it, or a pair on one side.

    A language without its region means all its regions.
    """
    if any(_is(given, code) for code in codes):
        return []
    parts = re.split("[-_]", given)
    each = dict.fromkeys(codes)
    for meant in (parts[side], parts[0], given):
        if found := [code for code in each if _is(meant, code) or _is(meant, name_language(code))]:
            return found
    return [code for code in each if _is(given, drop_region(code, ()))]


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
        manifest, config, directions = read_manifest(folder), read_config(folder), read_directions(folder)
    except TransduceError as error:
        print(f"note: {error}", file=sys.stderr)
        return
    size = sum(file["bytes"] for file in manifest["files"].values())
    languages = read_languages(manifest["about"])
    yield Shelved(name, folder, languages, tuple(directions), config.model.parameters(), size, where)


def read_languages(about: dict[str, Any]) -> tuple[str, str] | None:
    """Return the languages that a model translates from and into, if it says so."""
    languages: Sequence[str] = about.get("languages") or ()
    return (languages[0], languages[1]) if len(languages) == 2 else None
