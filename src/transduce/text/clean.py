"""The cleaning rules that need one pair only, and the normalisation before them.

A rule has one name everywhere: in the settings (`--clean.ratio`), in the report and in the data set's manifest.
The rules that need the whole corpus are in `select.py`.
"""

import html
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from html.entities import html5
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from transduce.strict import Settings
from transduce.text.corpus import Block, Decoded, Input, Problem, decode_block
from transduce.text.language import Languages

# Raised when a rule changes, so that data sets made by the old one are made again.
VERSION = 3

# In the order in which they are tried: the first rule that applies names the reason.
RULES = {
    "utf8": "a side is not UTF-8",
    "format": "a row lacks a column or a key, or is not of the file's format",
    "empty": "a side is empty",
    "damaged": "a side holds replacement characters or doubly encoded text",
    "long": "a side has too many words",
    "letters": "a side is mostly punctuation or numbers",
    "repeated": "a side repeats one character too often",
    "copied": "the target is the source, left untranslated",
    "leak": "the pair, or a side of it, also stands in the dev or test set",
    "language": "a side is in another language than that side of the corpus, or is no language, or both are swapped",
    "script": "a side is in another script than that side of the corpus",
    "ratio": "one side is too long for the other",
    "duplicate": "the same pair stood before",
    "near_duplicate": "the same pair stood before, but for case, punctuation or spaces",
    "tokens": "a side has too many subwords",
}
CHANGES = {
    "entities": "character references such as &#40; resolved",
    "unicode": "brought to one Unicode form",
    "control": "control and invisible characters removed",
    "spaces": "runs of white space folded",
}


@dataclass(frozen=True, kw_only=True)
class CleanConfig(Settings):
    """What `prepare` mends and what it drops; `off` switches a rule off."""

    section: ClassVar[str] = "clean"

    unicode: Literal["NFC", "NFKC", "off"] = "NFC"
    """Unicode form that all text is brought to"""
    entities: bool = True
    """resolve character references (&#40; &amp; &lt;), which often remain on one side only"""
    utf8: Literal["error", "drop"] = "error"
    """what to do with lines that are not UTF-8: stop, or drop the pair"""
    format: Literal["error", "drop"] = "error"
    """what to do with rows that lack a column or a key, or are no JSON or no tree: stop, or drop them"""
    damaged: bool = True
    """drop pairs with replacement characters or doubly encoded text (Ã¼)"""
    long: int | None = 200
    """most words on a side"""
    letters: float | None = 0.4
    """least share of letters among a side's visible characters"""
    repeated: int | None = 12
    """longest run of one character"""
    copied: float | None = 0.9
    """share of the source's words (of five or more) that may stand in the target; the sides may never be equal"""
    leak: Literal["side", "source", "pair", "off"] = "side"
    """drop training pairs that stand in dev or test, or of which a side of 20 characters or more or any source does"""
    language: float | None = 5.0
    """how far from what is usual on its side, beside what is on the other, a line's letters may be, in deviations"""
    script: bool = True
    """drop pairs with a side in another script than that side of the corpus"""
    ratio: float | None = 2.0
    """how far the ratio of the sides' lengths may be from the corpus's usual one"""
    duplicate: bool = True
    """drop pairs that stood before"""
    near_duplicate: bool = True
    """drop pairs that stood before but for case, punctuation or spaces"""
    tokens: int | None = 256
    """most subwords on a side"""

    def problems(self) -> Iterator[str]:
        """Values that cannot be meant."""
        for name, low, high in (("letters", 0, 1), ("copied", 0, 1), ("language", 1, 100), ("ratio", 1, 1000)):
            value = getattr(self, name)
            if value is not None and not low < value <= high:
                yield f"clean.{name} = {value} is not above {low} and at most {high}; use such a number, or off"
        for name in ("long", "repeated", "tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                yield f"clean.{name} = {value} is not positive; use a positive number, or off"
        if self.tokens is not None and self.tokens > 65_534:
            yield f"clean.tokens = {self.tokens} is more than a data set can hold; use at most 65534"


SCRIPTS = (
    "NONE LATIN CYRILLIC GREEK ARABIC HEBREW CJK HIRAGANA KATAKANA HANGUL DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA "
    "TAMIL TELUGU KANNADA MALAYALAM SINHALA THAI LAO TIBETAN MYANMAR GEORGIAN ARMENIAN ETHIOPIC KHMER MONGOLIAN "
    "CHEROKEE SYRIAC THAANA NKO TIFINAGH OTHER"
).split()


class _Script(dict[str, int]):
    """The script of each letter, by the first word of its Unicode name; found once, then remembered."""

    def __missing__(self, letter: str) -> int:
        name = unicodedata.name(letter, "").replace("-", " ").split(" ")[0]  # KATAKANA-HIRAGANA PROLONGED SOUND MARK
        self[letter] = SCRIPTS.index(name if name in SCRIPTS else "OTHER")
        return self[letter]


class _Kept(dict[int, int | None]):
    """A table for `str.translate` that keeps letters, marks and digits only."""

    def __missing__(self, code: int) -> int | None:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else None
        return self[code]


# The same for the 256 characters of Latin-1 as bytes, which is ten times faster and does for most lines of Europe.
_LATIN = bytes(range(256)).decode("latin-1")
_LATIN_LOWER = _LATIN.lower().encode("latin-1")
_LATIN_DROPPED = bytes(code for code in range(256) if unicodedata.category(_LATIN[code])[0] not in "LMN")
_LATIN_NUMBERS = bytes(code for code in range(256) if unicodedata.category(_LATIN[code])[0] == "N")


class _Invisible(dict[int, int | str | None]):
    """A table for `str.translate` that removes characters nobody sees, but for the joiners that some scripts need.

    What stands at the control characters from U+0080 was Windows-1252 and is read as that, as in HTML.
    """

    DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F))
    REMOVED = frozenset([0xAD, 0x200B, *DIRECTIONS, *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC)])

    def __missing__(self, code: int) -> int | str | None:
        character = chr(code)
        if unicodedata.category(character) == "Cc":
            meant = bytes([code]).decode("cp1252", "replace") if code > 0x7F else None
            self[code] = " " if character.isspace() else meant
        else:
            self[code] = None if code in self.REMOVED else code
        return self[code]


_SCRIPT, _KEPT, _INVISIBLE = _Script(), _Kept(), _Invisible()
_THREE_ALIKE = re.compile(r"(.)\1\1")
# U+FFFD, and UTF-8 that was read as Latin-1 or Windows-1252 and encoded once more. A capital within a small word gives
# it away (aquÃ); so does most of what follows, but AMANHÃ” may be Portuguese, so that a quote or dash is no proof.
_DAMAGE = re.compile(
    "\ufffd|(?<=[a-zß-ÿ])[ÃÂ]|[ÃÂ](?:[\u0080-\u009f¡-º¼-¿€‚ƒ„†‡ˆ‰Š‹ŒŽ‘•˜™šœžŸ]|[»›’“”–—…](?=[a-zß-ÿ]))|â€"
)
# Only with its semicolon: "?page=1&region=de" is no "®ion".
_REFERENCE = re.compile("&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


class Side(NamedTuple):
    """One side of a pair, normalised, with what the rules ask about it."""

    text: str
    key: str  # letters and digits only, in lower case: equal for near duplicates; the text itself if it has none
    letters: int
    script: int


def normalise(text: str, config: CleanConfig) -> tuple[str, list[str]]:
    """Bring text to one Unicode form without invisible characters and runs of spaces; names what was changed."""
    text, changes = _normalise_once(text, config)
    again = changes
    while again and config.entities and "&" in text:  # &amp;lt; is &lt; only now
        text, again = _normalise_once(text, config)
        changes += [change for change in again if change not in changes]
    return text, changes


def _normalise_once(text: str, config: CleanConfig) -> tuple[str, list[str]]:
    changes: list[str] = []
    if config.entities and "&" in text and (resolved := _REFERENCE.sub(_resolve, text)) != text:
        text = resolved
        changes.append("entities")
    text = text.rstrip("\r")
    if text.isascii() and text.isprintable() and text == text.strip() and "  " not in text:
        return text, changes  # nothing else can be wrong with it
    if not text.isprintable():
        visible = text.translate(_INVISIBLE)
        if visible != text:
            text = visible
            changes.append("control")
    form = config.unicode  # after the invisible, which may have kept a letter and its accent apart
    if form != "off" and not unicodedata.is_normalized(form, text):
        text = unicodedata.normalize(form, text)
        changes.append("unicode")
    folded = " ".join(text.split())
    if folded != text:
        changes.append("spaces")
    return folded, changes


def _resolve(reference: re.Match[str]) -> str:
    found = reference[0]
    return html.unescape(found) if found[1] == "#" else html5.get(found[1:], found)


def make_side(text: str) -> Side:
    """Measure a normalised line."""
    try:
        raw = text.encode("latin-1").translate(_LATIN_LOWER, _LATIN_DROPPED)
        letters = len(raw.translate(None, _LATIN_NUMBERS))
        return Side(text, raw.decode("latin-1") or text, letters, 1 if letters else 0)
    except UnicodeEncodeError:
        key = text.lower().translate(_KEPT)
        # Some letters are numeric (三), and vowel signs are not alphabetic.
        letters = len(key) if key.isalpha() else sum(1 for c in key if c.isalpha() or not c.isnumeric())
        return Side(text, key or text, letters, find_script(key))


def find_script(key: str) -> int:
    """The script most letters are in; 0 where there are none."""
    if key and max(key) < "\u0250":  # nothing below but Latin
        return 1 if any(map(str.isalpha, key)) else 0
    counts = Counter(_SCRIPT[letter] for letter in key if letter.isalpha())
    return counts.most_common(1)[0][0] if counts else 0


def hash_text(text: str) -> int:
    """64 bits that stand for a text; two of five million pairs share them once in a million corpora."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class Cleaner:
    """Applies the rules of one configuration; `held_out` are the keys of the dev and test sets' sides."""

    def __init__(self, config: CleanConfig, held_out: "HeldOut", languages: Languages | None = None):
        self.config = config
        self.held_out = held_out
        self.languages = languages
        self.run = re.compile(rf"(\S)\1{{{config.repeated},}}") if config.repeated else None
        self.stride = ((config.repeated or 0) + 1) // 3

    def find_foreign(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Which pairs have a side in another language than that side of the corpus."""
        if self.config.language is None or self.languages is None:
            return np.zeros(len(pairs), bool)
        return self.languages.find_foreign(pairs, self.config.language)

    def has_run(self, text: str) -> bool:
        """Whether one character is repeated too often; a long run shows as three alike when characters are skipped."""
        assert self.run
        hint = _THREE_ALIKE.search(text[:: self.stride]) if self.stride else True
        return hint is not None and self.run.search(text) is not None

    def judge(self, source: Side, target: Side, source_hash: int, target_hash: int) -> str | None:
        """The name of the first rule that drops this pair, or nothing."""
        config = self.config
        if not source.text or not target.text:
            return "empty"
        if config.damaged and (_is_damaged(source.text) or _is_damaged(target.text)):
            return "damaged"
        if config.long and max(source.text.count(" "), target.text.count(" ")) >= config.long:
            return "long"
        if config.letters and min(_share_of_letters(source), _share_of_letters(target)) < config.letters:
            return "letters"
        if self.run and (self.has_run(source.text) or self.has_run(target.text)):
            return "repeated"
        if config.copied and _is_copied(source, target, config.copied):
            return "copied"
        if config.leak != "off" and self.held_out.holds(source_hash, target_hash, config.leak):
            return "leak"
        return None


# A shorter side is no leak by itself: a model must learn "Yes." though it stands in a test set with another answer.
LEAK_CHARACTERS = 20
_FACTOR = 0x9E3779B97F4A7C15


class HeldOut:
    """The hashes of the dev and test sets' keys, to find leaks by."""

    def __init__(self) -> None:
        self.source: set[int] = set()
        self.sources: set[int] = set()  # short ones too
        self.target: set[int] = set()
        self.pairs: set[int] = set()

    def add_rows(self, rows: np.ndarray) -> None:
        """Hold out pairs that were cleaned, and their sides where they are long enough."""
        self.source.update(rows["source"][rows["source_length"] >= LEAK_CHARACTERS].tolist())
        self.sources.update(rows["source"].tolist())
        self.target.update(rows["target"][rows["target_length"] >= LEAK_CHARACTERS].tolist())
        self.pairs.update(join_hashes(rows["source"], rows["target"]).tolist())

    def holds(self, source: int, target: int, leak: str) -> bool:
        """Whether the pair, or one side of it, is held out."""
        if ((source * _FACTOR + target) & 0xFFFFFFFFFFFFFFFF) in self.pairs:
            return True
        if leak == "source":
            return source in self.sources
        return leak == "side" and (source in self.source or target in self.target)


def join_hashes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """One hash for each pair of hashes: equal for near duplicates."""
    return source * np.uint64(_FACTOR) + target


def _is_damaged(text: str) -> bool:
    return any(mark in text for mark in ("\ufffd", "Ã", "Â", "â€")) and _DAMAGE.search(text) is not None


def _share_of_letters(side: Side) -> float:
    visible = len(side.text) - side.text.count(" ")
    return side.letters / visible


def _is_copied(source: Side, target: Side, share: float) -> bool:
    """Whether the sides are equal but for case and punctuation, or too many of five or more words stand in both."""
    if source.key == target.key:
        return True
    words = source.text.lower().split()
    if len(words) < 5:
        return False
    text = target.text.lower()
    missing, allowed = 0, (1 - share) * len(words)
    for word in words[:100]:  # most pairs are done with after a few words
        if word not in text:
            missing += 1
            if missing >= allowed:
                return False
    found = set(text.split())
    return sum(word in found for word in words) > share * len(words)


# What the rules over the whole corpus need of each pair: 30 bytes.
ROW = np.dtype(
    [
        ("check", np.uint32),
        ("source", np.uint64),
        ("target", np.uint64),
        ("source_length", np.uint16),
        ("target_length", np.uint16),
        ("source_script", np.uint8),
        ("target_script", np.uint8),
        ("line", np.uint32),
    ]
)


class Example(NamedTuple):
    """A pair that a rule dropped or changed, and where it stood."""

    where: str
    source: str
    target: str


@dataclass
class Judged:
    """What was dropped of the pairs of a block: how many by which rule, with examples."""

    input: int
    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)


@dataclass
class Cleaned(Judged):
    """What is left of a block after pass one: the pairs as text, and a row of facts for each."""

    text: bytes = b""  # source, tab, target, line feed for each pair
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, ROW))
    changed: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)


def clean_block(block: Block, given: Input, cleaner: Cleaner, all_dropped: bool) -> Cleaned:
    """Normalise and judge every pair of a block; keeps one example a rule, or every dropped pair if asked."""
    decoded: Decoded = decode_block(block, given)
    cleaned = Cleaned(block.input, block.count)
    lines: list[str] = []
    rows: list[tuple[int, ...]] = []

    def note(name: str, where: str, source: str, target: str) -> None:
        kept = cleaned.examples.setdefault(name, [])
        if not kept or (all_dropped and name in RULES):
            kept.append(Example(where, source, target))

    malformed = sum(problem.rule == "format" for problem in decoded.problems)
    unread = {"format": malformed, "utf8": block.count - len(decoded.rows) - malformed}  # a pair for both its sides
    for problem in sorted(decoded.problems, key=lambda problem: problem.line):
        if getattr(cleaner.config, problem.rule) == "drop":
            cleaned.dropped[problem.rule] = unread[problem.rule]
            note(problem.rule, f"{problem.file}:{problem.line}", " ".join(problem.text.split()), problem.what)
        else:
            cleaned.problems.append(problem)
    pairs: list[tuple[str, str]] = []
    for row, raw_source, raw_target in zip(decoded.rows, decoded.source, decoded.target, strict=True):
        source_text, changes = normalise(raw_source, cleaner.config)
        target_text, more = normalise(raw_target, cleaner.config)
        if changes or more:
            for change in dict.fromkeys([*changes, *more]):
                cleaned.changed[change] += 1
                note(change, f"{given.files[0]}:{block.line(row)}", raw_source, raw_target)
        pairs.append((source_text, target_text))
    foreign = cleaner.find_foreign(pairs).tolist()
    for row, (source_text, target_text), is_foreign in zip(decoded.rows, pairs, foreign, strict=True):
        source, target = make_side(source_text), make_side(target_text)
        source_hash, target_hash = hash_text(source.key), hash_text(target.key)
        rule = cleaner.judge(source, target, source_hash, target_hash) or ("language" if is_foreign else None)
        if rule:
            cleaned.dropped[rule] += 1
            note(rule, f"{given.files[0]}:{block.line(row)}", source_text, target_text)
            continue
        line = f"{source_text}\t{target_text}\n"
        lines.append(line)
        rows.append(
            (
                zlib.crc32(line.encode()),
                source_hash,
                target_hash,
                min(len(source_text), 65535),
                min(len(target_text), 65535),
                source.script,
                target.script,
                block.line(row),
            )
        )
    cleaned.text = "".join(lines).encode()
    cleaned.rows = np.array(rows, ROW)
    return cleaned
