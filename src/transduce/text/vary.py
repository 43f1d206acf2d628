"""Training pairs in other forms, which people type but corpora hardly have, so that these do not throw a model.

A pair is chosen by its checksum, so that the same pairs are chosen with any number of processes.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache, partial
from random import Random
from typing import ClassVar, NamedTuple
from zlib import crc32

from transduce.strict import Settings

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class VaryConfig(Settings):
    """Shares of the training pairs to add once more in another form; 0.02 is one in fifty."""

    section: ClassVar[str] = "vary"

    capitals: float = 0.0
    """share to add IN CAPITALS, on both sides"""
    small: float = 0.0
    """share to add with the source in lower case and the target unchanged"""
    symbols: float = 0.0
    """share to add with something untranslatable before or after both sides: emoji, words in other scripts,
    addresses"""
    typos: float = 0.0
    """share to add with typing errors in the source"""
    names: float = 0.0
    """share to add with made-up names in place of rare names that both sides have, to learn to copy names; most pairs
    have none"""

    def problems(self) -> Iterator[str]:
        """Yield shares that are out of range."""
        for name, share in self.shares().items():
            if not 0 <= share <= 1:
                yield f"vary.{name} = {share} is not a share; use a number from 0 to 1"

    def shares(self) -> dict[str, float]:
        """Return all shares by their names."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def any(self) -> bool:
        """Whether any share is set."""
        return any(self.shares().values())


class Varied(NamedTuple):
    """A pair in another form."""

    kind: str
    pair: Pair


class Varier:
    """Makes the other forms of pairs."""

    def __init__(self, config: VaryConfig, seed: int, is_rare: Callable[[str], bool] = lambda word: True):
        self.forms = _FORMS | {"names": partial(change_names, is_rare=is_rare)}
        self.chosen = [
            (kind, share * 2**32, seed * len(self.forms) + number)
            for number, (kind, share) in enumerate(config.shares().items())
            if share
        ]

    def __call__(self, source: str, target: str) -> Iterator[Varied]:
        """Yield the other forms that this pair is to have, if any."""
        text = f"{source}\t{target}".encode() if self.chosen else b""
        for kind, limit, salt in self.chosen:
            drawn = crc32(text, salt)
            if drawn < limit and (other := self.forms[kind](source, target, Random(drawn))) != (source, target):
                yield Varied(kind, other)


def write_in_capitals(source: str, target: str, _: Random) -> Pair:
    """Write both sides in capitals."""
    return source.upper(), target.upper()


def write_small(source: str, target: str, _: Random) -> Pair:
    """Write the source in lower case."""
    return source.lower(), target


def add_symbols(source: str, target: str, chance: Random) -> Pair:
    """Add something untranslatable at the same end of both sides."""
    symbols = chance.choice(_SYMBOLS)(chance)
    space = "" if chance.random() < 0.1 else " "
    if chance.random() < 0.25:
        return symbols + space + source, symbols + space + target
    return source + space + symbols, target + space + symbols


def slip(source: str, target: str, chance: Random) -> Pair:
    """Make a typing error in a word of four letters or more, and sometimes a second one."""
    for _ in range(1 + (chance.random() < 0.3)):
        words = [found.span() for found in re.finditer(r"[^\W\d_]{4,}", source)]
        if not words:
            break
        first, last = chance.choice(words)
        at = chance.randrange(first + 1, last - 1)  # first letters are seldom wrong
        here, after = source[at], source[at + 1]
        wrong = chance.choice([after + here, after, here + here + after, chance.choice(_LETTERS) + after])
        source = source[:at] + wrong + source[at + 2 :]
    return source, target


def change_names(source: str, target: str, chance: Random, is_rare: Callable[[str], bool]) -> Pair:
    """Change the rare names that stand on both sides equally often, the same way on both."""
    words = [Counter(_WORD.findall(side)) for side in (source, target)]
    changed: dict[str, str] = {}
    for name, count in words[0].items():
        if count == words[1][name] and name.istitle() and len(name) > 2 and is_rare(name):
            changed[name] = make_up_name(name, chance)
    source, target = (_WORD.sub(lambda word: changed.get(word[0], word[0]), side) for side in (source, target))
    return source, target


def make_up_name(name: str, chance: Random) -> str:
    """Change about half of a name's letters: vowels to vowels, consonants to consonants of the same script."""
    letters: list[str] = []
    for letter in name:
        plain = unicodedata.normalize("NFD", letter)[0].lower()
        alike = next((kind for kind in _ALIKE if plain in kind), "")
        if alike and chance.random() < 0.5:
            changed = alike[int(chance.random() * len(alike))]
            letters.append(changed.upper() if letter.isupper() else changed)
        else:
            letters.append(letter)
    return "".join(letters)


_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Vowels and consonants of Latin, Cyrillic and Greek; frequent ones more than once.
_ALIKE = ("aaaeeeeiiioou", "bbccddffgghjkkllllmmmnnnnpprrrrssssttttvvwz")
_ALIKE += ("аааеееииооуыюя", "бвгддзжккллмммнннппрррссттфхцчш", "αααεεηιιιοοουω", "βγδζθκλμνπρσστφχψ")
_EMOJI = [range(0x1F600, 0x1F650), range(0x1F300, 0x1F5FF), range(0x1F680, 0x1F6C6), range(0x1F90C, 0x1F9FF)]
_SIGNS = [range(0x2600, 0x2700), range(0x2190, 0x2200), range(0x25A0, 0x2600), range(0x2700, 0x27C0)]
# Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, kana, Hangul, Chinese characters; Latin with rare marks.
_SCRIPTS = [
    *(range(0x3B1, 0x3CA), range(0x430, 0x450), range(0x5D0, 0x5EB), range(0x621, 0x64B), range(0x905, 0x93A)),
    *(range(0xE01, 0xE2F), range(0x3042, 0x3094), range(0x30A2, 0x30F7), range(0xAC00, 0xD7A4)),
    *(range(0x4E00, 0x9FA6), range(0x100, 0x17F)),
]


@cache
def _letters_of(script: range) -> str:
    return "".join(chr(code) for code in script if unicodedata.category(chr(code)).startswith("L"))


def _draw_emoji(chance: Random) -> str:
    # A few emoji are most of what people write, so at least half are faces.
    emoji = chr(chance.choice(chance.choice(_EMOJI[: chance.choice((1, len(_EMOJI)))])))
    if chance.random() < 0.3:
        return emoji * chance.randint(2, 4)
    return emoji + chance.choice(["", "", "", "\ufe0f", chr(chance.choice(_EMOJI[0]))])


def _draw_sign(chance: Random) -> str:
    return chr(chance.choice(chance.choice(_SIGNS))) * chance.choice((1, 1, 1, 2, 3))


def _draw_words(chance: Random) -> str:
    letters = _letters_of(chance.choice(_SCRIPTS))
    words = ["".join(chance.choices(letters, k=chance.randint(1, 7))) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.3:
        words[0] = words[0].capitalize()
    return chance.choice(["{}", "{}", "({})", "“{}”", '"{}"']).format(" ".join(words))


def _draw_address(chance: Random) -> str:
    def word() -> str:
        return "".join(chance.choices(_LETTERS + "0123456789", k=chance.randint(2, 9)))

    match chance.randrange(4):
        case 0:
            return f"https://{word()}.{chance.choice(('com', 'org', 'de', 'net'))}/{word()}"
        case 1:
            return f"{word()}@{word()}.{chance.choice(('com', 'org', 'de'))}"
        case 2:
            return f"{chance.choice('@#')}{word()}"
        case _:
            return f"{word().upper()}-{chance.randint(0, 9999)}"


_SYMBOLS: tuple[Callable[[Random], str], ...] = (_draw_emoji, _draw_emoji, _draw_sign, _draw_words, _draw_address)
_FORMS: dict[str, Callable[[str, str, Random], Pair]] = {
    "capitals": write_in_capitals,
    "small": write_small,
    "symbols": add_symbols,
    "typos": slip,
}
