"""Split English text into words as the Penn Treebank does; tell whether a word continues, or text is in capitals.

In a treebank, punctuation is separate, and so are the parts of `do n't` and `the dog 's`. Treebanks differ in more than
these rules cover (some split words at hyphens): if a text has been split into words already, use those.
"""

import re
from functools import cache
from itertools import groupby
from unicodedata import category

# Thai, Lao, Burmese, Khmer, kana and Chinese characters: they need no space between words, and any may begin one.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_NUMBER_MARK = r"(?<!\d)[,:]|[,:](?!\d)"  # the comma of 1,000 and the colon of 10:30 stay
_RULES = [
    (re.compile(pattern, flags), new)
    for pattern, flags, new in (
        (r"``|''", 0, r" \g<0> "),
        (r"…|\.{3,}", 0, r" ... "),
        (r"--+|—", 0, r" \g<0> "),
        (_NUMBER_MARK, 0, r" \g<0> "),
        (r"[;@#$%&?!()\[\]{}<>“”«»„]", 0, r" \g<0> "),
        # Only the last full stop of the line: that of an abbreviation is part of its word.
        (r"(?<![.\s])\.(?=[\s\"'”’)\]}]*$)", 0, r" . "),
        (r"‘(?=\w)|(?<=\w)’(?!\w)", 0, r" \g<0> "),
        (r"(?<=\s)'(?=\w)(?!(?:s|m|d|re|ve|ll|t|n|em|til|tis|twas|cause)\b)", re.I, r" ' "),
        (r"(?<=\w)'(?=\s|$)(?<!s')", 0, r" ' "),
        (r"(?<=\w)('s|'m|'d|'re|'ve|'ll|’s|’m|’d|’re|’ve|’ll)\b", re.I, r" \1"),
        (r"(?<=s)(['’])(?=\s|$)", re.I, r" \1"),
        (r"(?<=[a-z])(n['’]t)\b", re.I, r" \1"),
        (r"\b(can)(not)\b", re.I, r"\1 \2"),
        (r"\b(gon|wan)(na)\b", re.I, r"\1 \2"),
        (r"\b(got)(ta)\b", re.I, r"\1 \2"),
    )
]
_OPENING = re.compile(r'(^|[\s(\[{<])"')


def split_words(text: str, *, treebank_quotes: bool = True) -> list[str]:
    """Split a line into words; with `treebank_quotes`, straight quotation marks become `` and ''."""
    opening, closing = (" `` ", " '' ") if treebank_quotes else (' " ', ' " ')
    text = _OPENING.sub(lambda found: found[1] + opening, f" {text.strip()} ").replace('"', closing)
    for pattern, new in _RULES:
        text = pattern.sub(new, text)
    return text.split()


def in_capitals(text: str) -> bool:
    """Whether a whole sentence is in capitals; a few short words might be abbreviations."""
    if any(map(str.islower, text)):
        return False
    words = [letters for word in text.split() if (letters := sum(map(str.isupper, word)))]
    longest = max(words, default=0)
    return longest >= 5 or (longest >= 3 and len(words) >= 3)


def is_small(letter: str) -> bool:
    """Return whether a letter has a capital at the start of a sentence; Georgian ones, small to Unicode, have none."""
    return letter.title() != letter


def is_unspaced(text: str) -> bool:
    """Whether a text has characters of scripts that need no space between words."""
    return _UNSPACED.search(text) is not None


def is_one_word(before: str, behind: str) -> bool:
    """Whether a text continues the last word of the one before it, with letters, digits or accents on them."""
    last, first = before[-1:], behind[:1]
    return is_of_word(last) and (_is_mark(first) or (first.isalnum() and not is_unspaced(last + first)))


def is_of_word(character: str) -> bool:
    """Return whether a character is part of a word: a letter, a digit, or a mark on one, such as a Hindi vowel."""
    return character.isalnum() or _is_mark(character)


@cache
def all_marks() -> str:
    """Return all marks that stand on letters, for a character class: `re` does not count them as parts of words."""
    codes = [code for code in range(0x300, 0x1F000) if _is_mark(chr(code))]
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda found: found[1] - found[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


def find_width(text: str) -> int:
    """Return how many characters wide a text is: accents, vowel points and joiners take no room of their own."""
    return len(text) if text.isascii() else sum(category(character) not in ("Mn", "Me", "Cf") for character in text)


def _is_mark(character: str) -> bool:
    return character != "" and category(character).startswith("M")
