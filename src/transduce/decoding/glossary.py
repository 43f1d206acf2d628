"""Terms and their translations, from a file: where a term stands in a sentence, its translation is said.

A model is asked first. What it says by itself is kept where it has said all terms; only other sentences are searched
for again, with phrases that must be said.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from transduce.errors import DataError
from transduce.text.packed import open_bytes
from transduce.text.words import is_one_word

BETWEEN = "|"  # between translations of which any will do
KEY = 4  # characters by which terms are looked up

Term = tuple[str, ...]  # translations of which one is to be said


class Glossary:
    """Terms as they stand in sources, each with the translations of which one is to be said."""

    def __init__(self, terms: Mapping[str, Sequence[str]], normal: Callable[[str], str] = str):
        """Terms, in the form that `normal` gives to a text.

        A term in small letters is found in any case; one with a capital is found as it is written.
        """
        self.terms: dict[str, Term] = {}
        for term, translations in terms.items():
            known = self.terms.get(normal(term), ())
            self.terms[normal(term)] = tuple(dict.fromkeys([*known, *map(normal, translations)]))
        self._keys: dict[str, list[str]] = {}
        for term in sorted(self.terms, key=len, reverse=True):
            self._keys.setdefault(_small(term)[:KEY], []).append(term)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def find(self, text: str, *, any_case: bool = False) -> list[Term]:
        """The translations of the terms in a text; of terms that overlap, those of the first and then the longest."""
        small, found, place = _small(text), dict[Term, None](), 0
        while place < len(text):
            term = self._find_at(text, small, place, any_case)
            if term:
                found[self.terms[term]] = None
            place += len(term) or 1
        return list(found)

    def _find_at(self, text: str, small: str, place: int, any_case: bool) -> str:
        """The longest term that begins at a place; an empty one where none does."""
        if place and is_one_word(text[place - 1], text[place]):
            return ""
        for size in range(KEY, 0, -1):
            for term in self._keys.get(small[place : place + size], ()) if place + size <= len(text) else ():
                alike = small if any_case or term == _small(term) else text
                wanted = _small(term) if any_case else term
                end = place + len(term)
                if alike.startswith(wanted, place) and not is_one_word(text[end - 1], text[end : end + 1]):
                    return term
        return ""


def spellings(term: Term) -> Term:
    """Its translations, and as they are at the beginning of a sentence."""
    return tuple(dict.fromkeys([*term, *(one[:1].upper() + one[1:] for one in term)]))


def missing(terms: Iterable[Term], text: str) -> list[Term]:
    """The terms of which no translation stands in a text as whole words."""
    return [term for term in terms if not any(_stands(one, text) for one in spellings(term))]


def read_glossary(path: Path) -> dict[str, Term]:
    """The terms of a file: a line for each, with its translation behind a tab; several translations have | between."""
    stream, raw = open_bytes(path)
    with closing(raw), closing(stream):
        content = stream.read().removeprefix(BOM_UTF8)
    terms: dict[str, Term] = {}
    for number, row in enumerate(content.split(b"\n"), 1):
        try:
            line = row.decode()
        except UnicodeDecodeError:
            raise DataError(f"{path}:{number}: not UTF-8; convert the text with: iconv -f LATIN1 -t UTF-8") from None
        if not line.strip():
            continue
        term, *translations = (part.strip() for part in line.split("\t"))
        several = [one.strip() for one in "".join(translations).split(BETWEEN)]
        if not term or len(translations) != 1 or not all(several):
            wrong = "is no term with a translation" if translations else "has no tab"
            raise DataError(
                f"{path}:{number}: {wrong}: {line[:60]!r}; write the term, a tab and its translation, or several "
                f"with {BETWEEN} between them; to keep a term as it is, write it twice"
            )
        terms[term] = tuple(dict.fromkeys([*terms.get(term, ()), *several]))
    if not terms:
        raise DataError(f"{path}: holds no term; write one to a line, with a tab and its translation behind it")
    return terms


def _stands(phrase: str, text: str) -> bool:
    place = text.find(phrase)
    while place >= 0:
        end = place + len(phrase)
        if not is_one_word(text[:place][-1:], phrase) and not is_one_word(phrase, text[end : end + 1]):
            return True
        place = text.find(phrase, place + 1)
    return False


def _small(text: str) -> str:
    """In small letters, and as long as before."""
    return "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
