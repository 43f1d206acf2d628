"""Clean pairs on their way through `prepare`: a file between its two passes, and what a worker does in each of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from transduce.text.clean import ROW, CleanConfig, Cleaned, Cleaner, Example, HeldOut, Judged, clean_block
from transduce.text.corpus import Block, Input
from transduce.text.language import Languages
from transduce.text.select import CODES, DEV, KEPT
from transduce.text.shards import SIDES, Side
from transduce.text.subwords import Subwords
from transduce.text.vary import Varier, VaryConfig

SideTokens = dict[Side, tuple[np.ndarray, np.ndarray]]  # all tokens in a row, and the sentences' lengths
_RULE_OF = {code: rule for rule, code in CODES.items()}


@dataclass(frozen=True)
class SpoolBlock:
    """A piece of the spool file, with the verdicts on its pairs and the file and lines that they came from."""

    offset: int
    size: int
    input: int
    where: str
    verdicts: np.ndarray
    lines: np.ndarray


@dataclass
class Spool:
    """Clean lines on disk and the facts about them in memory, block by block."""

    path: Path
    inputs: tuple[Input, ...]
    blocks: list[tuple[int, int, int, int]] = field(default_factory=list)  # offset, bytes, pairs, input
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, ROW))

    def append(self, file: BinaryIO, cleaned: Cleaned) -> None:
        """Write a block's lines to the open spool file; the caller sets `rows` once all blocks are there."""
        self.blocks.append((file.tell(), len(cleaned.text), len(cleaned.rows), cleaned.input))
        file.write(cleaned.text)

    def weights(self) -> np.ndarray:
        """Return the weight of each pair's input."""
        return np.concatenate([np.full(pairs, self.inputs[number].weight) for _, _, pairs, number in self.blocks])

    def cut(self, verdicts: np.ndarray) -> Iterator[SpoolBlock]:
        """Yield the blocks with the verdicts on their pairs."""
        first = 0
        for offset, size, pairs, number in self.blocks:
            here = slice(first, first + pairs)
            where = str(self.inputs[number].files[0])
            yield SpoolBlock(offset, size, number, where, verdicts[here], self.rows["line"][here])
            first += pairs

    def lines(
        self,
        chosen: np.ndarray,
        sides: tuple[Side, ...],
        update: Callable[[float, int], None] = lambda done, count: None,
        vary: Varier | None = None,
    ) -> Iterator[str]:
        """Yield the chosen pairs' lines of some sides, each pair followed by its other forms."""
        first = count = 0
        with self.path.open("rb") as file:
            for _, size, pairs, _ in self.blocks:
                lines = file.read(size).decode().split("\n")
                for row in np.flatnonzero(chosen[first : first + pairs]):
                    source, target = lines[row].split("\t")
                    others = [other.pair for other in vary(source, target)] if vary else []
                    for pair in ((source, target), *others):
                        yield from (pair[SIDES.index(side)] for side in sides)
                    count += 1
                first += pairs
                update(count, count)


@dataclass
class EncodedBlock(Judged):
    """The pairs of a block as tokens, by split: for each side a row of tokens and the sentences' lengths."""

    splits: dict[str, SideTokens] = field(default_factory=dict)
    varied: Counter[str] = field(default_factory=Counter)
    """how many training pairs were added in each other form"""

    def count(self, split: str) -> int:
        """Return the number of pairs that went to a split."""
        return len(self.splits[split]["source"][1]) if split in self.splits else 0


class CleanTask:
    """What a worker does in pass one."""

    def __init__(
        self,
        inputs: tuple[Input, ...],
        config: CleanConfig,
        held_out: HeldOut,
        languages: Languages | None,
        all_dropped: bool,
    ):
        self.inputs, self.cleaner, self.all_dropped = inputs, Cleaner(config, held_out, languages), all_dropped

    def __call__(self, block: Block) -> Cleaned:
        return clean_block(block, self.inputs[block.input], self.cleaner, self.all_dropped)


class EncodeTask:
    """What a worker does in pass two."""

    def __init__(
        self,
        spool: Path,
        source: bytes,
        target: bytes,
        limit: int | None,
        all_dropped: bool,
        vary: VaryConfig,
        seed: int,
    ):
        model = Subwords(source)
        self.models: dict[Side, Subwords] = {"source": model, "target": model if source == target else Subwords(target)}
        self.spool, self.limit, self.all_dropped = spool, limit, all_dropped
        self.vary = Varier(vary, seed, is_rare=lambda word: len(model.encode(word)) > 1)

    def __call__(self, block: SpoolBlock) -> EncodedBlock:
        with self.spool.open("rb") as file:
            file.seek(block.offset)
            pairs = [line.split("\t") for line in file.read(block.size).decode().split("\n")[:-1]]
        encoded = EncodedBlock(block.input, len(pairs))
        for code in np.unique(block.verdicts):
            rows = np.flatnonzero(block.verdicts == code)
            if code == KEPT:
                sides = self.encode(pairs, rows, block, encoded, self.limit)
                encoded.splits["train"] = self.add_variants(sides, [pairs[row] for row in rows], encoded)
            elif code == DEV:
                encoded.splits["dev"] = self.encode(pairs, rows, block, encoded, None)
            else:
                self.note_dropped(_RULE_OF[int(code)], rows, pairs, block, encoded)
        return encoded

    def encode(
        self, pairs: list[list[str]], rows: np.ndarray, block: SpoolBlock, encoded: EncodedBlock, limit: int | None
    ) -> SideTokens:
        """Return the tokens of some pairs, without those that are too long."""
        sides, fits = self.encode_fitting([pairs[row] for row in rows], limit)
        if not fits.all():
            self.note_dropped("tokens", rows[~fits], pairs, block, encoded)
        return sides

    def encode_fitting(self, pairs: Sequence[Sequence[str]], limit: int | None) -> tuple[SideTokens, np.ndarray]:
        """Return the tokens of those pairs that are not too long, and which these are."""
        sides: SideTokens = {
            side: self.models[side].encode_lines([pair[place] for pair in pairs]) for place, side in enumerate(SIDES)
        }
        if limit is None:
            return sides, np.ones(len(pairs), bool)
        # The end token is not counted.
        fits = np.maximum(sides["source"][1], sides["target"][1]) <= limit + 1
        if not fits.all():
            sides = {
                side: (tokens[np.repeat(fits, lengths)], lengths[fits]) for side, (tokens, lengths) in sides.items()
            }
        return sides, fits

    def add_variants(self, sides: SideTokens, pairs: list[list[str]], encoded: EncodedBlock) -> SideTokens:
        """Return the same pairs, followed by those in other forms."""
        others = [other for source, target in pairs for other in self.vary(source, target)] if self.vary.chosen else []
        if not others:
            return sides
        more, fits = self.encode_fitting([other.pair for other in others], self.limit)
        encoded.varied.update(other.kind for other, fit in zip(others, fits) if fit)
        return {
            side: (np.append(sides[side][0], more[side][0]), np.append(sides[side][1], more[side][1])) for side in SIDES
        }

    def note_dropped(
        self, rule: str, rows: np.ndarray, pairs: list[list[str]], block: SpoolBlock, encoded: EncodedBlock
    ) -> None:
        """Count pairs that a rule dropped, and note one of them, or all if asked."""
        encoded.dropped[rule] += len(rows)
        shown = rows if self.all_dropped else rows[:1]
        encoded.examples[rule] = [Example(f"{block.where}:{block.lines[row]}", *pairs[row]) for row in shown]
