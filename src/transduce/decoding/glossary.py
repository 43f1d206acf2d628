"""Glossaries: read terms and their translations, find terms in a source and their translations in an output."""

import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from unicodedata import category, normalize

from transduce.errors import ConfigError, DataError
from transduce.text.packed import find_converter, open_bytes
from transduce.text.words import all_marks, is_of_word, is_one_word, is_unspaced

BETWEEN = "|"  # separates translations, any of which will do
KEY = 4  # first characters, by which terms are looked up
LONG = 4  # from this many letters on, a translation is also found inside a longer word

Term = tuple[str, ...]  # translations, one of which must be used
Span = tuple[int, int]  # the first character, and the one after the last

_ALIKE = str.maketrans({"’": "'", "‘": "'", "‐": "-", "‑": "-", "\u00a0": " ", "\u202f": " "})
_JOINS, _OF_NUMBERS = frozenset("-_.@"), frozenset(",:")
_ADDRESS = re.compile(r"\S*(?:://|@|www\.|[\\<>])\S*")


class Mention(NamedTuple):
    """A term found in a text: its characters, whether it has several words, and its translations."""

    span: Span
    several: bool
    translations: Term


class Glossary:
    """Terms of the source language, each with its translations, one of which must be used."""

    def __init__(self, terms: Mapping[str, Term], normal: Callable[[str], str] = str):
        """Take terms and bring them to the form that `normal` gives to texts.

        A term in lower case is found in any case; one with a capital only as it is written.
        """
        self.terms: dict[str, Term] = {}
        for name, translations in terms.items():
            term, own = normal(name), tuple(map(normal, translations))
            if not term or not all(own):
                raise DataError(f"glossary: {name!r} or its translation has no text; leave it out")
            self.terms[term] = tuple(dict.fromkeys([*self.terms.get(term, ()), *own]))
        self._keys: dict[str, list[str]] = {}
        # The longest first, and of equally long ones those with capitals.
        for term in sorted(self.terms, key=lambda term: (-len(term), _small(term) == term)):
            self._keys.setdefault(_small(term)[:KEY], []).append(term)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def find(self, text: str, *, any_case: bool = False) -> list[Mention]:
        """Find terms in a text, from left to right, the longest at each place; none inside addresses such as URLs."""
        plain, small, place = text.translate(_ALIKE), _small(text), 0
        ends = {found.start(): found.end() for found in _ADDRESS.finditer(text)}
        found: list[Mention] = []
        while self.terms and place < len(text):
            if place in ends:
                place = ends[place]
                continue
            if term := self._find_at(plain, small, place, any_case):
                found.append(Mention((place, place + len(term)), " " in term, self.terms[term]))
            place += len(term) or 1
        return found

    def _find_at(self, text: str, small: str, place: int, any_case: bool) -> str:
        """Return the longest term that begins at a place, or an empty string."""
        if not _may_begin(text, place):
            return ""
        for size in range(KEY, 0, -1):
            for term in self._keys.get(small[place : place + size], ()) if place + size <= len(text) else ():
                own = term.translate(_ALIKE)
                alike = small if any_case or own == _small(own) else text
                wanted = _small(own) if any_case else own
                if alike.startswith(wanted, place) and _may_end(text, place + len(term)):
                    return term
        return ""


def find_said(term: Term, text: str) -> list[Span]:
    """Find a term's translations in a text, also inflected or in a compound, that is, inside a longer word."""
    plain = bare(text)
    spans = sorted((span for one in term for span in _spans(one, text, plain)), key=lambda span: (span[0], -span[1]))
    found: list[Span] = []
    for span in spans:
        if not found or span[0] >= found[-1][1]:
            found.append(span)
    return found


def find_whole(phrase: str, text: str) -> list[Span]:
    """Find a phrase in a text as whole words."""
    spans = (found.span() for found in re.finditer(re.escape(phrase), text))
    return [
        span for span in spans if not (is_one_word(text[: span[0]], phrase) or is_one_word(phrase, text[span[1] :]))
    ]


def _spans(phrase: str, text: str, plain: str) -> list[Span]:
    pattern, long = _pattern(phrase)
    return [found.span() for found in pattern.finditer(plain if long else text)]


def bare(text: str) -> str:
    """Return a text without accents, of the same length."""
    return "".join(map(_bare, text))


@lru_cache(4096)
def _pattern(phrase: str) -> tuple[re.Pattern[str], bool]:
    """Return the pattern that finds a phrase, and whether to search in the text without accents."""
    long = sum(map(str.isalpha, phrase)) >= LONG
    own = bare(phrase) if long else phrase
    first, last = own[0], own[-1]
    either = f"[{first.lower()}{first.upper()}]" if first.isalpha() else re.escape(first)
    within = rf"[\w{all_marks()}]"
    apart = rf"(?<!{within})" if is_of_word(first) and not is_unspaced(first) else ""
    if _may_rise(own):
        begin = either if long else apart + either
    elif first.isupper() and long:
        begin = rf"(?:{apart}{first}|(?<={within}){either})"
    else:  # names like iPhone keep their spelling
        begin = apart + re.escape(first)
    is_number = last.isalnum() and not last.isalpha()
    end = rf"{within}*" if long and not is_number else rf"(?!{within})"
    end = end if is_of_word(last) and not is_unspaced(last) else ""
    return re.compile(begin + r"\s+".join(map(re.escape, own[1:].split(" "))) + end), long


@lru_cache(1 << 12)
def _bare(letter: str) -> str:
    """Return a letter without its accents."""
    first, *marks = normalize("NFD", letter)
    return first if all(category(mark) == "Mn" for mark in marks) else letter


def say(phrase: str, *, begins: bool) -> str:
    """Return a translation as it is output: with a capital where a sentence begins, except for names like iPhone."""
    return phrase[:1].title() + phrase[1:] if begins and _may_rise(phrase) else phrase


def _may_rise(phrase: str) -> bool:
    """Whether a phrase takes a capital at the beginning of a sentence, as names like iPhone do not."""
    first = phrase.split(" ")[0]
    return first == first.lower()


def read_glossaries(paths: Iterable[Path]) -> dict[str, Term]:
    """Read the terms of several files; a term in more than one has the translations of all."""
    terms: dict[str, Term] = {}
    for path in paths:
        for term, own in read_glossary(path).items():
            terms[term] = tuple(dict.fromkeys([*terms.get(term, ()), *own]))
    return terms


def read_glossary(path: Path) -> dict[str, Term]:
    """Read the terms of a file: one to a line, then a tab and its translation, or several separated by |.

    Anything after another tab is a note; lines that begin with # and a space are comments.
    """
    stream, raw = open_bytes(path)
    with closing(raw), closing(stream):
        content = stream.read().removeprefix(BOM_UTF8)
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8, or convert it with: {find_converter(content)}")
    terms: dict[str, Term] = {}
    for number, row in enumerate(re.split(b"\r\n|\n|\r", content), 1):
        try:
            line = row.decode()
        except UnicodeDecodeError:
            raise DataError(f"{path}:{number}: not UTF-8; convert the text with: {find_converter(row)}") from None
        if not line.strip() or line.startswith("# "):
            continue
        term, *others = (_unquote(field.strip()) for field in line.split("\t"))
        several = [one.strip() for one in others[0].split(BETWEEN)] if others else []
        if not term or not several or not all(several):
            wrong = "is not a term with a translation" if others else "has no tab"
            raise DataError(
                f"{path}:{number}: {wrong}: {line[:60]!r}; write the term, a tab and its translation, or several "
                f"separated by {BETWEEN}; to keep a term untranslated, write it twice"
            )
        terms[term] = tuple(dict.fromkeys([*terms.get(term, ()), *several]))
    if not terms:
        raise DataError(f"{path}: has no terms; write one to a line, followed by a tab and its translation")
    return terms


def check_terms(terms: Mapping[str, str | Sequence[str]]) -> dict[str, Term]:
    """Check terms given in Python, each with one translation or several."""
    if not isinstance(terms, Mapping):
        raise ConfigError(f'glossary = {terms!r}, wanted a file or {{"term": "translation"}}')
    found: dict[str, Term] = {}
    for term, given in terms.items():
        own = (given,) if isinstance(given, str) else given
        if not isinstance(own, Sequence) or not own or not all(isinstance(each, str) for each in (term, *own)):
            raise ConfigError(
                f"glossary = {{{term!r}: {given!r}}}, wanted a term with its translation or a list of translations"
            )
        if any(BETWEEN in each for each in own):
            raise ConfigError(f"glossary: {term!r} has {BETWEEN} in a translation; give several translations as a list")
        if wrong := next((one for one in (term, *own) if any("\ud800" <= letter <= "\udfff" for letter in one)), None):
            raise DataError(f"glossary: {wrong!r} has half of a surrogate pair, which is not text; remove it")
        found[term] = tuple(dict.fromkeys(own))
    return found


def describe_terms(terms: Mapping[str, Term]) -> str:
    """Return the number of terms and a short checksum of them."""
    digest = sha256(json.dumps(sorted(terms.items())).encode()).hexdigest()
    return f"{len(terms):,} terms ({digest[:8]})" if terms else "none"


def _unquote(field: str) -> str:
    """Remove the quotation marks that a spreadsheet puts around a field."""
    return field[1:-1].replace('""', '"').strip() if len(field) > 2 and field[0] == field[-1] == '"' else field


def _may_begin(text: str, place: int) -> bool:
    before, behind = text[:place][-1:], text[place]
    return not is_one_word(before, behind) and not _is_joined(text[: place - 1][-1:] if before else "", before, behind)


def _may_end(text: str, place: int) -> bool:
    before, behind = text[place - 1], text[place : place + 1]
    return not is_one_word(before, behind) and not _is_joined(before, behind, text[place + 1 : place + 2])


def _is_joined(left: str, sign: str, right: str) -> bool:
    """Whether a sign joins its two sides into one word, number or address."""
    of_numbers = sign in _OF_NUMBERS and left.isdigit() and right.isdigit()
    return left.isalnum() and right.isalnum() and (sign in _JOINS or of_numbers)


def _small(text: str) -> str:
    """Return a text in lower case, of the same length, with signs that look alike made equal."""
    low = (lower if len(lower := letter.lower()) == 1 else letter for letter in text)
    return "".join(low).translate(_ALIKE)
