"""Subwords with SentencePiece (section 5.1): learn a model, encode and decode exactly.

The text is not normalised here (`clean.py` does that once), runs of spaces are kept and unknown characters are spelled
in bytes, so `decode(encode(text)) == text` for every text.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import sentencepiece

from transduce import places
from transduce.disk import write_synced
from transduce.errors import ConfigError, DataError, suggest
from transduce.strict import Settings
from transduce.text.detect import drop_region, plain_code

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPACE = "\u2581"  # what SentencePiece writes for a space
LEAST_COVERAGE = 0.98  # SentencePiece accepts no less
LAST = "<last>"  # texts may be split into the pieces after it, but the vocabulary does not have them
# Appended to a model, this switches off the space before a text: a protocol buffer's last field overrides earlier ones.
NO_DUMMY_PREFIX = bytes([3 << 3 | 2, 2, 3 << 3, 0])  # normalizer_spec { add_dummy_prefix: false }
HIDDEN = "\ufdd0"  # is in no text, so no text is split into a piece with it; decoding removes it
_LINE_END = "\n"
_TAG = re.compile(r"\s*(>>\S+<<)")
Tokens = TypeVar("Tokens", list[int], np.ndarray)
TABLE_WORDS = 300_000  # most words in a table of words, to bound its memory


@dataclass(frozen=True, kw_only=True)
class SubwordsConfig(Settings):
    """How subwords are learned."""

    section: ClassVar[str] = "subwords"

    size: int = field(default=37_000, metadata={"flag": "--subwords"})
    """number of subwords: 37,000 for both languages together in the paper; parsing has 16,000 by default"""
    kind: Literal["bpe", "unigram"] = "bpe"
    """byte-pair encoding, or a unigram language model"""
    joint: bool = True
    """learn one vocabulary for both languages, not one for each"""
    coverage: float = 0.9995
    """share of the text's characters that get subwords of their own, at least 0.98; the rest is spelled in bytes"""
    split_digits: bool = False
    """split numbers into digits"""
    symbols: tuple[str, ...] = ()
    """words that are never split, such as tags"""
    sample: int = 1_000_000
    """most pairs to learn from"""
    reuse: Path | None = None
    """learn none; take the subwords of another data set, run or model, or of a SentencePiece .model file (for train
    --from)"""
    extend: int = 0
    """with reuse: learn up to this many new subwords from this text and append them to the old ones"""

    def problems(self) -> Iterator[str]:
        """Yield values that cannot be meant."""
        if self.size < 270:
            yield f"subwords.size = {self.size} is too small; the 256 bytes and a few letters need at least 270"
        if not LEAST_COVERAGE <= self.coverage <= 1.0:
            yield f"subwords.coverage = {self.coverage} is not between {LEAST_COVERAGE} and 1"
        if self.extend < 0:
            yield f"subwords.extend = {self.extend} is negative"
        if self.extend and self.reuse is None:
            yield f"subwords.extend = {self.extend} has nothing to extend; name a run or a model with --subwords.reuse"
        if self.sample < 1:
            yield f"subwords.sample = {self.sample} is not positive"
        for symbol in self.symbols:
            if not symbol or any(map(str.isspace, symbol)) or SPACE in symbol:
                yield f"subwords.symbols has {symbol!r}; a symbol is a word without white space"


def learn(lines: Iterable[str], config: SubwordsConfig) -> bytes:
    """Learn a model from lines of text; return it as SentencePiece writes it."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.size,
            character_coverage=config.coverage,
            split_digits=config.split_digits,
            user_defined_symbols=spell_symbols(config.symbols),
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            max_sentence_length=1 << 20,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error)
        if high := re.search(r"size too high .* value <= (\d+)", reason):
            wrong = f"is more than this corpus can give; use --subwords {high[1]} or fewer"
        elif low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
            wrong = f"is too small for the corpus's characters; use --subwords {low[1]} or more"
            if config.coverage > LEAST_COVERAGE:
                wrong += f", or a lower --subwords.coverage (at least {LEAST_COVERAGE})"
        else:
            raise DataError(f"SentencePiece could not learn subwords: {reason}") from error
        raise ConfigError(f"subwords.size = {config.size} {wrong}") from error
    return model.getvalue()


def spell_symbols(symbols: Iterable[str]) -> list[str]:
    """Return symbols as pieces: a tag such as >>de<< includes the space before it, as in Marian's vocabularies."""
    return [SPACE + symbol if _TAG.fullmatch(symbol) else symbol for symbol in symbols]


def learn_symbols(symbols: Iterable[str]) -> bytes:
    """Make a model for texts of these symbols with spaces between them: each is one token, nothing is split."""
    model = io.BytesIO()
    each = list(dict.fromkeys(symbols))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(each),
        model_writer=model,
        model_type="word",
        vocab_size=len(each) + 4,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=PAD,
        unk_id=UNKNOWN,
        bos_id=BEGIN,
        eos_id=END,
        minloglevel=2,
    )
    return model.getvalue()


class Subwords:
    """A learned model: text to token ids and back."""

    model: bytes
    processor: sentencepiece.SentencePieceProcessor
    by_word: bool
    ends: bool
    """whether its texts are closed by END; those of some imported models' source sides are not"""

    def __init__(self, model: bytes):
        self.model = model
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.ends = self.processor.eos_id() == END
        last = self.processor.piece_to_id(LAST)
        self._size = self.processor.get_piece_size() if last == UNKNOWN else last
        # A twin that does not put a space before the text, for what follows a literal U+2581.
        self._inner = sentencepiece.SentencePieceProcessor(model_proto=model + NO_DUMMY_PREFIX)
        self._space = [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]
        if UNKNOWN in self._space:  # an imported model may have no bytes: then U+2581 is a space
            self._space = []
        # A word's subwords do not depend on its neighbours if no subword crosses a space and merges go by rank.
        # Unigram models are excluded: they sum scores over a whole line, and rounding may break a tie differently.
        self.kind = self._find_kind()
        self.by_word = self.kind != "unigram" and not any(SPACE in piece[1:] for piece in self.pieces(range(len(self))))
        self._table = _Table(self) if self.by_word else None
        self._hides = any(HIDDEN in self.processor.id_to_piece(token) for token in range(len(self)))

    @classmethod
    def load(cls, path: Path) -> "Subwords":
        """Read a model from a file."""
        try:
            found = cls(path.read_bytes())
        except (OSError, RuntimeError) as error:
            raise DataError(f"{path}: not a readable SentencePiece model ({error})") from error
        inner = found.processor
        known = (inner.pad_id(), inner.unk_id(), inner.bos_id()) == (PAD, UNKNOWN, BEGIN)
        if not known or inner.eos_id() not in (END, -1):
            raise DataError(
                f"{path}: its padding, unknown, begin and end tokens are not {PAD}, {UNKNOWN}, {BEGIN} and {END}; "
                "use a model learned by transduce prepare"
            )
        return found

    def __len__(self) -> int:
        return self._size

    def _find_kind(self) -> Literal["bpe", "unigram", "word"]:
        """Infer the model's kind, which SentencePiece does not tell.

        In a model of whole words, every piece begins with a space, and no piece is a byte. BPE's scores are ranks,
        those of a unigram model are log-probabilities.
        """
        own = [piece for piece in self.pieces(range(len(self))) if not re.fullmatch("<.*>", piece)]
        if len(own) == len(self) - 4 and all(piece.startswith(SPACE) and len(piece) > 1 for piece in own):
            return "word"
        inner = self.processor
        ranks = all(inner.get_score(token).is_integer() for token in range(len(self)) if not inner.is_unused(token))
        return "bpe" if ranks else "unigram"

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without begin or end."""
        if not self._space:
            return self._encode_known(text)
        first, *rest = text.split(SPACE)
        tokens = self.processor.encode(first)
        for fragment in rest:
            # SentencePiece takes this character for a space; spelled in bytes, it remains itself.
            tokens += self._space + self._inner.encode(fragment)
        return self._known(tokens)

    def close(self, tokens: list[int]) -> list[int]:
        """Return the token ids of a text with END after them, if the model has it; never an empty list."""
        return [*tokens, END] if self.ends else tokens or [UNKNOWN]

    def open(self, tokens: Tokens) -> Tokens:
        """Return the token ids of a closed text without END."""
        return tokens[:-1] if self.ends else tokens

    def _encode_known(self, text: str) -> list[int]:
        """Encode with a model without bytes; what it cannot split may be a subword of the other side."""
        tokens = self.processor.encode(text)
        if UNKNOWN in tokens:
            pieces = self.processor.encode(text, out_type=str)
            tokens = [token if token != UNKNOWN else self._find(piece) for token, piece in zip(tokens, pieces)]
        return self._known(tokens)

    def _known(self, tokens: list[int]) -> list[int]:
        return (
            tokens
            if self._size == self.processor.get_piece_size()
            else [token if token < self._size else UNKNOWN for token in tokens]
        )

    def _find(self, piece: str) -> int:
        token = self.processor.piece_to_id(piece)
        return self.processor.piece_to_id(hide(piece)) if token == UNKNOWN else token

    def find_unknown(self, text: str) -> list[str]:
        """Return the subwords of a text for which `encode` has UNKNOWN; none if that cannot be told."""
        tokens, pieces = self.encode(text), self.processor.encode(text, out_type=str)
        if len(tokens) != len(pieces):  # a literal U+2581 was spelled in bytes
            return []
        return [piece for token, piece in zip(tokens, pieces) if token == UNKNOWN]

    def decode(self, tokens: Iterable[int], unknown: Sequence[str] = ()) -> str:
        """Return the text of token ids, without begin, end and padding; `unknown` are subwords in place of UNKNOWN."""
        numbers = [int(token) for token in tokens]
        text = self.processor.decode(self._name(numbers, unknown) if unknown else numbers)
        return text.replace(HIDDEN, "") if self._hides else text

    def _name(self, tokens: Sequence[int], unknown: Sequence[str]) -> list[str]:
        """Return the subwords of token ids, with those of `unknown` in place of UNKNOWN."""
        pieces: list[str] = []
        others = iter(unknown)
        for token in tokens:
            piece = next(others) if token == UNKNOWN else self.processor.id_to_piece(token)
            spaced = token == UNKNOWN and pieces and pieces[-1].endswith(SPACE)
            pieces.append(piece.removeprefix(SPACE) if spaced else piece)
        return pieces

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """Return the subwords of token ids in readable form."""
        return [self.processor.id_to_piece(int(token)).replace(HIDDEN, "") for token in tokens]

    def splits_into(self, token: int) -> bool:
        """Whether a text can be split into this subword; some only take up a number."""
        return not self.processor.is_unused(token) and HIDDEN not in self.processor.id_to_piece(token)

    @cached_property
    def tags(self) -> list[str]:
        """The language tags, such as >>de<<, that are subwords: a model with several target languages has them."""
        words = (piece.removeprefix(SPACE) for piece in self.pieces(range(len(self))) if piece.startswith(SPACE))
        return [word for word in words if _TAG.fullmatch(word)]

    def tag_of(self, language: str) -> str:
        """Return the tag of a target language, or else of the one it is a region of; nothing if there is none.

        So >>de<< is the tag of de, of de-AT, and, as it is written itself, of >>de<<.
        """
        tags = {plain_code(tag.strip("<>")): tag for tag in reversed(self.tags)}
        own = plain_code(language.strip("<>"))
        return tags.get(own) or tags.get(drop_region(own, tags), "")

    def find_tag(self, text: str) -> str:
        """Return the tag that a text begins with, such as >>de<<, if it is one subword of this model; else nothing."""
        found = _TAG.match(text)
        known = found and self.processor.piece_to_id(SPACE + found[1]) != UNKNOWN
        return found[1] if found and known else ""

    def numbers_like(self, other: "Subwords") -> bool:
        """Whether another model has the same subwords with the same numbers, however it splits texts."""
        return other is self or self.pieces(range(len(self))) == other.pieces(range(len(other)))

    def extends(self, other: "Subwords") -> bool:
        """Whether these are the other model's subwords with their numbers, and perhaps more after them."""
        return other is self or self.pieces(range(min(len(self), len(other)))) == other.pieces(range(len(other)))

    def encode_piece(self, piece: str) -> list[int]:
        """Return the token ids of another model's subword, including the space before it if it has one."""
        text = piece.replace(SPACE, " ")
        return self._known(self.processor.encode(text[1:]) if text.startswith(" ") else self._inner.encode(text))

    def encode_words(self, words: list[str]) -> list[list[int]]:
        """Return the token ids of words without white space."""
        whole = self._space and self._size == self.processor.get_piece_size()
        return self.processor.encode(words, num_threads=1) if whole else list(map(self.encode, words))

    def encode_lines(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encode many lines into one row of tokens, each line closed, and the lines' lengths."""
        # The table needs words with single spaces between them, as all cleaned lines have.
        if self._table and not any(map(_has_odd_spaces, lines)):
            return self._table.encode(lines)
        encoded = [self.close(self.encode(line)) for line in lines]
        lengths = np.array([len(tokens) for tokens in encoded], np.int64)
        return np.array([token for tokens in encoded for token in tokens], np.int32), lengths


def hide(piece: str) -> str:
    """Return a subword in a form that no text is split into."""
    return (SPACE if piece.startswith(SPACE) else "") + HIDDEN + piece.removeprefix(SPACE)


def find_subwords(path: Path) -> dict[str, Path]:
    """Return the SentencePiece models of source and target in a data set, a model or a run; or a file for both."""
    if path.is_file():
        return {"source": path, "target": path}
    folders = (
        folder
        for place in places.places_of(path)
        for folder in (place, place / "model", *sorted(place.glob("checkpoints/step-*"), reverse=True))
    )
    for folder in folders:
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            return {
                side: folder / manifest.get("parts", "") / manifest["subwords"][side] for side in ("source", "target")
            }
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{folder / 'manifest.json'}: names no subwords ({error}); the folder is damaged"
            ) from error
    remedy = "; name a data set, a run, a model or a SentencePiece .model file"
    if path.is_dir():
        raise DataError(f"{path}: contains no subwords{remedy}")
    raise DataError(f"{path}: does not exist{suggest(str(path), places.names(), 0.75) or remedy}")


def load_sides(source: Path, target: Path) -> tuple[Subwords, Subwords]:
    """Read the models of both sides; one object if they are one file."""
    one = Subwords.load(source)
    other = one if source == target else Subwords.load(target)
    if not other.ends:
        raise DataError(f"{target}: has no end token, which the target side needs; only the source may lack it")
    return one, other


def _has_odd_spaces(line: str) -> bool:
    return not line or line[0] == " " or line[-1] == " " or "  " in line or SPACE in line or _LINE_END in line


class _Rows(dict[str, int]):
    """Numbers words when they are looked up, and lists the new ones."""

    def __init__(self) -> None:
        super().__init__({_LINE_END: 0})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        self.new.append(word)
        return number


class _Table:
    """The subwords of words met so far, so that a word is split once and then looked up."""

    def __init__(self, subwords: Subwords):
        self.subwords = subwords
        self.rows = _Rows()
        self.tokens = np.array([END], np.int32)
        self.lengths = np.array([int(subwords.ends)], np.int64)
        self.starts = np.array([0], np.int64)

    def encode(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        words = "".join(f"{line} {_LINE_END} " for line in lines).split(" ")[:-1]
        rows = np.fromiter(map(self.rows.__getitem__, words), np.int64, len(words))
        ends = np.flatnonzero(rows == 0)
        known = len(self.lengths)
        self.add(self.rows.new)
        lengths = self.lengths[rows]
        tokens = self.tokens[ragged_indices(self.starts[rows], lengths)]
        if len(self.rows) > TABLE_WORDS:
            self.forget(self.rows.new, known)
        self.rows.new = []
        line_ends = np.cumsum(lengths)[ends]
        return tokens, np.diff(line_ends, prepend=0)

    def add(self, words: list[str]) -> None:
        if not words:
            return
        encoded = self.subwords.encode_words(words)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        flat = np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum()))
        starts = len(self.tokens) + np.cumsum(lengths) - lengths
        self.tokens = np.concatenate([self.tokens, flat])
        self.lengths = np.concatenate([self.lengths, lengths])
        self.starts = np.concatenate([self.starts, starts])

    def forget(self, words: list[str], known: int) -> None:
        """Remove the words added last: the table is full, and those met first are the frequent ones."""
        if words:
            for word in words:
                del self.rows[word]
            self.tokens = self.tokens[: self.starts[known]].copy()
            self.lengths, self.starts = self.lengths[:known].copy(), self.starts[:known].copy()


def ragged_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the places start, start + 1, … of many runs, one run after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + lengths, lengths) + np.arange(total)


def save_sides(folder: Path, subwords: Mapping[Any, Subwords]) -> dict[str, str]:
    """Write the models of both sides into a folder, one file if they are one object; return the files' names."""
    joint = subwords["source"] is subwords["target"]
    names = {side: "subwords.model" if joint else f"{side}.model" for side in ("source", "target")}
    for name, side in {name: side for side, name in names.items()}.items():
        write_synced(folder / name, subwords[side].model)
    return names
