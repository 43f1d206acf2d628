"""Characters without a subword, which a model spells in bytes: whether they are whole, and which ones are allowed."""

import unicodedata
from codecs import utf_8_decode
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

BLOCK = 128  # neighbouring characters in Unicode that tend to be used together, such as those of a script
_SMALLEST = {2: 0x80, 3: 0x800, 4: 0x10000}  # code point by number of bytes
_LARGEST = 0x10FFFF


class Characters:
    """What may be spelled with a vocabulary's single-byte subwords; `texts` are all its subwords as UTF-8."""

    def __init__(self, texts: Sequence[bytes]):
        self._texts = texts
        whole = "".join(own.decode(errors="ignore") for own in texts if not is_byte(own))
        self._usual = {ord(character) // BLOCK for character in set(whole)}
        self._known: dict[bytes, bool] = {}
        self._breaking: dict[tuple[bytes, frozenset[bytes]], np.ndarray] = {}

    def breaking(self, begun: bytes, source: frozenset[bytes]) -> Int[np.ndarray, " tokens"]:
        """Return the subwords that must not come after the first bytes of a character (`begun`, perhaps none).

        A character may be spelled if it is in the source, or in the same block as one that the vocabulary has.
        """
        if (begun, source) not in self._breaking:
            copied = {one[:end] for one in source for end in range(1, len(one) + 1)}
            fitting = (
                begun + own in copied or self._may_begin(begun + own) if is_byte(own) else not begun
                for own in self._texts
            )
            self._breaking[begun, source] = np.flatnonzero(~np.fromiter(fitting, bool, len(self._texts)))
        return self._breaking[begun, source]

    def _may_begin(self, begun: bytes) -> bool:
        """Whether the UTF-8 of any usual character begins with these bytes."""
        if begun not in self._known:
            self._known[begun] = any(map(self._is_usual, _find_characters(begun)))
        return self._known[begun]

    def _is_usual(self, character: str) -> bool:
        return ord(character) // BLOCK in self._usual and unicodedata.category(character)[0] in "LMNPS"


def _find_characters(begun: bytes) -> Iterator[str]:
    """Yield all characters whose UTF-8 begins with these bytes."""
    first = begun[0]
    many = 2 if 0xC2 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4 if 0xF0 <= first < 0xF5 else 0
    if len(begun) > many or any(not 0x80 <= byte < 0xC0 for byte in begun[1:]):
        return
    code = first & (0x7F >> many)
    for byte in begun[1:]:
        code = code << 6 | byte & 0x3F
    missing = 6 * (many - len(begun))
    low, high = code << missing, (code + 1 << missing) - 1
    yield from map(chr, range(max(low, _SMALLEST[many]), min(high, _LARGEST) + 1))


def find_unfinished(text: bytes) -> bytes:
    """Return the bytes of an unfinished character at the end of a text."""
    for end in (text[-many:] for many in range(1, min(3, len(text)) + 1)):
        if end[0] >= 0xC2 and is_text(end) and not end.decode(errors="ignore"):
            return end
    return b""


def is_text(text: bytes) -> bool:
    """Whether a text is UTF-8; its last character may be unfinished."""
    try:
        utf_8_decode(text, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def is_byte(text: bytes) -> bool:
    """Whether a text is a single byte of a multi-byte character."""
    return len(text) == 1 and text >= b"\x80"
