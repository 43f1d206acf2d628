"""Cleaning rules that judge one pair at a time, and the normalisation before them.

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

# Increase this when a rule changes, so that data sets made by the old rules are prepared again.
VERSION = 3

# In the order in which they are tried: a pair is dropped by the first rule that applies.
RULES = {
    "utf8": "a side is not UTF-8",
    "format": "a row lacks a column or a key, or is not in the file's format",
    "empty": "a side is empty",
    "damaged": "a side has replacement characters or doubly encoded text",
    "long": "a side has too many words",
    "letters": "a side is mostly punctuation or numbers",
    "repeated": "a side repeats one character too often",
    "copied": "the target is the source, left untranslated",
    "leak": "the pair, or one side of it, is also in the dev or test set",
    "language": "a side is not in the language of that side of the corpus, or in no language, or the sides are swapped",
    "script": "a side is in a script that is rare on that side of the corpus",
    "ratio": "one side is too long for the other",
    "duplicate": "the pair repeats an earlier one",
    "near_duplicate": "the pair repeats an earlier one except for case, punctuation or spaces",
    "tokens": "a side has too many subwords",
}
CHANGES = {
    "entities": "character references such as &#40; resolved",
    "unicode": "converted to one Unicode form",
    "control": "control and invisible characters removed",
    "spaces": "runs of white space collapsed",
}


@dataclass(frozen=True, kw_only=True)
class CleanConfig(Settings):
    """What `prepare` repairs and what it drops; `off` switches a rule off."""

    section: ClassVar[str] = "clean"

    unicode: Literal["NFC", "NFKC", "off"] = "NFC"
    """Unicode form to convert all text to"""
    entities: bool = True
    """resolve character references (&#40; &amp; &lt;), which often remain on one side only"""
    utf8: Literal["error", "drop"] = "error"
    """on a line that is not UTF-8, stop with an error or drop the pair"""
    format: Literal["error", "drop"] = "error"
    """on a row that lacks a column or a key, or is not JSON or a tree, stop with an error or drop it"""
    damaged: bool = True
    """drop pairs with replacement characters or doubly encoded text (Ã¼)"""
    long: int | None = 200
    """most words on a side"""
    letters: float | None = 0.4
    """smallest share of letters among a side's visible characters"""
    repeated: int | None = 12
    """longest run of the same character"""
    copied: float | None = 0.9
    """largest share of the source's words, if five or more, that may also be in the target; equal sides are dropped"""
    leak: Literal["side", "source", "pair", "off"] = "side"
    """drop training pairs if dev or test has the same pair (pair), the same source (source) or the same side of 20
    characters or more (side)"""
    language: float | None = 5.0
    """drop pairs with a side in another language: by how many standard deviations its letters may be less usual than
    the other side's"""
    script: bool = True
    """drop pairs with a side in a script that is rare on that side of the corpus"""
    ratio: float | None = 2.0
    """largest factor by which the ratio of the sides' lengths may differ from the corpus's usual one"""
    duplicate: bool = True
    """drop pairs that repeat an earlier one"""
    near_duplicate: bool = True
    """drop pairs that repeat an earlier one except for case, punctuation or spaces"""
    tokens: int | None = 256
    """most subwords on a side"""

    def problems(self) -> Iterator[str]:
        """Yield values that cannot be meant."""
        for name, low, high in (("letters", 0, 1), ("copied", 0, 1), ("language", 1, 100), ("ratio", 1, 1000)):
            value = getattr(self, name)
            if value is not None and not low < value <= high:
                yield f"clean.{name} = {value} is out of range; use a number above {low} and at most {high}, or off"
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
    """The number in SCRIPTS of each letter's script, by the first word of its Unicode name; a cache."""

    def __missing__(self, letter: str) -> int:
        name = unicodedata.name(letter, "").replace("-", " ").split(" ")[0]  # KATAKANA-HIRAGANA PROLONGED SOUND MARK
        self[letter] = SCRIPTS.index(name if name in SCRIPTS else "OTHER")
        return self[letter]


class _Kept(dict[int, int | None]):
    """A table for `str.translate` that keeps only letters, marks and numbers."""

    def __missing__(self, code: int) -> int | None:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else None
        return self[code]


# The same for Latin-1 text as bytes, which is ten times faster and covers most lines in European languages.
_LATIN = bytes(range(256)).decode("latin-1")
_LATIN_LOWER = _LATIN.lower().encode("latin-1")
_LATIN_DROPPED = bytes(code for code in range(256) if unicodedata.category(_LATIN[code])[0] not in "LMN")
_LATIN_NUMBERS = bytes(code for code in range(256) if unicodedata.category(_LATIN[code])[0] == "N")


class _Invisible(dict[int, int | str | None]):
    """A table for `str.translate` that removes invisible characters, except the joiners that some scripts need.

    Control characters from U+0080 on were Windows-1252 and are read as that, as in HTML.
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
# U+FFFD, and UTF-8 that was read as Latin-1 or Windows-1252 and encoded again. Ã or Â after a small letter gives it
# away (aquÃ), and so does most of what may follow these; but AMANHÃ” may be Portuguese, so a quote or dash counts only
# before a small letter.
_DAMAGE = re.compile(
    "\ufffd|(?<=[a-zß-ÿ])[ÃÂ]|[ÃÂ](?:[\u0080-\u009f¡-º¼-¿€‚ƒ„†‡ˆ‰Š‹ŒŽ‘•˜™šœžŸ]|[»›’“”–—…](?=[a-zß-ÿ]))|â€"
)
# Only with a semicolon: "&region" in "?page=1&region=de" is not "®ion".
_REFERENCE = re.compile("&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


class SideFacts(NamedTuple):
    """One side of a pair, normalised, with the facts that rules need."""

    text: str
    key: str  # only letters, marks and numbers, in lower case: equal for near duplicates; the text if it has none
    letters: int
    script: int


def normalise(text: str, config: CleanConfig) -> tuple[str, list[str]]:
    """Return text in one Unicode form, without invisible characters or runs of spaces, and the names of the changes."""
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
    form = config.unicode  # after removing what may separate a letter from its accent
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


def make_side(text: str) -> SideFacts:
    """Measure a normalised line."""
    try:
        raw = text.encode("latin-1").translate(_LATIN_LOWER, _LATIN_DROPPED)
        letters = len(raw.translate(None, _LATIN_NUMBERS))
        return SideFacts(text, raw.decode("latin-1") or text, letters, 1 if letters else 0)
    except UnicodeEncodeError:
        key = text.lower().translate(_KEPT)
        # Some letters are numeric (三), and vowel signs are not alphabetic.
        letters = len(key) if key.isalpha() else sum(1 for c in key if c.isalpha() or not c.isnumeric())
        return SideFacts(text, key or text, letters, find_script(key))


def find_script(key: str) -> int:
    """Return the number of the script that most letters are in; 0 without letters."""
    if key and max(key) < "\u0250":  # all letters below are Latin
        return 1 if any(map(str.isalpha, key)) else 0
    counts = Counter(_SCRIPT[letter] for letter in key if letter.isalpha())
    return counts.most_common(1)[0][0] if counts else 0


def hash_text(text: str) -> int:
    """Return a 64-bit hash; of a million corpora with five million texts, about one has two with the same hash."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class Cleaner:
    """Applies the rules of one configuration; `held_out` has the dev and test sets, to find leaks by."""

    def __init__(self, config: CleanConfig, held_out: "HeldOut", languages: Languages | None = None):
        self.config = config
        self.held_out = held_out
        self.languages = languages
        self.run = re.compile(rf"(\S)\1{{{config.repeated},}}") if config.repeated else None
        self.stride = ((config.repeated or 0) + 1) // 3

    def find_foreign(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Return which pairs have a side in another language than that side of the corpus."""
        if self.config.language is None or self.languages is None:
            return np.zeros(len(pairs), bool)
        return self.languages.find_foreign(pairs, self.config.language)

    def has_run(self, text: str) -> bool:
        """Whether a character is repeated too often; of every `stride`-th character, a long run still has three."""
        assert self.run
        hint = _THREE_ALIKE.search(text[:: self.stride]) if self.stride else True
        return hint is not None and self.run.search(text) is not None

    def judge(self, source: SideFacts, target: SideFacts, source_hash: int, target_hash: int) -> str | None:
        """Return the name of the first rule that drops this pair, or None."""
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


# A shorter side alone is no leak: a model must learn "Yes." even if a test set has it, with another translation.
LEAK_CHARACTERS = 20
_FACTOR = 0x9E3779B97F4A7C15


class HeldOut:
    """The hashes of the keys (`SideFacts.key`) of the dev and test sets, to find leaks by."""

    def __init__(self) -> None:
        self.source: set[int] = set()
        self.sources: set[int] = set()  # short ones too
        self.target: set[int] = set()
        self.pairs: set[int] = set()

    def add_rows(self, rows: np.ndarray) -> None:
        """Hold out cleaned pairs, and each of their sides that is long enough."""
        self.source.update(rows["source"][rows["source_length"] >= LEAK_CHARACTERS].tolist())
        self.sources.update(rows["source"].tolist())
        self.target.update(rows["target"][rows["target_length"] >= LEAK_CHARACTERS].tolist())
        self.pairs.update(join_hashes(rows["source"], rows["target"]).tolist())

    def holds(self, source: int, target: int, leak: str) -> bool:
        """Whether the pair is held out, or a side of it that `leak` protects."""
        if ((source * _FACTOR + target) & 0xFFFFFFFFFFFFFFFF) in self.pairs:
            return True
        if leak == "source":
            return source in self.sources
        return leak == "side" and (source in self.source or target in self.target)


def join_hashes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return one hash for each pair of hashes; near duplicates have the same."""
    return source * np.uint64(_FACTOR) + target


def _is_damaged(text: str) -> bool:
    return any(mark in text for mark in ("\ufffd", "Ã", "Â", "â€")) and _DAMAGE.search(text) is not None


def _share_of_letters(side: SideFacts) -> float:
    visible = len(side.text) - side.text.count(" ")
    return side.letters / visible


def _is_copied(source: SideFacts, target: SideFacts, share: float) -> bool:
    """Whether the sides are equal but for case and punctuation, or the target repeats too much of a longer source."""
    if source.key == target.key:
        return True
    words = source.text.lower().split()
    if len(words) < 5:
        return False
    text = target.text.lower()
    missing, allowed = 0, (1 - share) * len(words)
    for word in words[:100]:  # most pairs are settled after a few words
        if word not in text:
            missing += 1
            if missing >= allowed:
                return False
    found = set(text.split())
    return sum(word in found for word in words) > share * len(words)


# The facts about each pair that the rules over the whole corpus need: 30 bytes.
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
    """A pair that was dropped or changed, and the file and line it came from."""

    where: str
    source: str
    target: str


@dataclass
class Judged:
    """The dropped pairs of a block: how many by which rule, with examples."""

    input: int
    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)


@dataclass
class Cleaned(Judged):
    """The result of pass one for a block: the remaining pairs as text, and a row of facts for each."""

    text: bytes = b""  # source, tab, target, line feed for each pair
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, ROW))
    changed: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)


def clean_block(block: Block, given: Input, cleaner: Cleaner, all_dropped: bool) -> Cleaned:
    """Normalise and judge every pair of a block; keep one example per rule, or every dropped pair if asked."""
    decoded: Decoded = decode_block(block, given)
    cleaned = Cleaned(block.input, block.count)
    lines: list[str] = []
    rows: list[tuple[int, ...]] = []

    def note(name: str, where: str, source: str, target: str) -> None:
        kept = cleaned.examples.setdefault(name, [])
        if not kept or (all_dropped and name in RULES):
            kept.append(Example(where, source, target))

    malformed = sum(problem.rule == "format" for problem in decoded.problems)
    unread = {"format": malformed, "utf8": block.count - len(decoded.rows) - malformed}  # pairs, not sides
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
