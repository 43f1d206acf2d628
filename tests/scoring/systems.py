"""Sentences and systems of any quality for the tests of scoring."""

import random
from collections.abc import Sequence
from pathlib import Path

from transduce.scoring.texts import System, Texts

WORDS = (
    "das die der Haus Hund-Katze »geht« läuft schnell, sehr heute. gestern; z.B. 3,5 1.000 Kilo-Meter-Zahl 'n rot grün "
    "Straße über und oder (nicht) 5% U.S. Dr. naïve Äpfel! ja? – weiß…"
).split()


def make_sentences(count: int, seed: int = 0, longest: int = 14) -> list[str]:
    """Return sentences of random words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, longest))) for _ in range(count)]


def damage(lines: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Return the sentences with a share of their words dropped, replaced or moved."""
    chance = random.Random(seed)
    damaged: list[str] = []
    for line in lines:
        words = [word if chance.random() > share else chance.choice([*WORDS, ""]) for word in line.split()]
        if len(words) > 2 and chance.random() < 2 * share:
            words.insert(0, words.pop())
        damaged.append(" ".join(filter(None, words)))
    return damaged


def make_texts(
    systems: Sequence[list[str]], references: Sequence[Sequence[str | None]], source: list[str] | None = None
) -> Texts:
    """Return texts that were never files."""
    named = [System(f"system {number}", lines) for number, lines in enumerate(systems, start=1)]
    return Texts(named, [list(reference) for reference in references], source)


def write(path: Path, lines: Sequence[str]) -> Path:
    """Write lines to a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
