"""A test of word alignments without a gold standard: a word that is once on each side is aligned with itself.

    python benchmarks/align_twins.py MODEL --source newstest2013.en --target newstest2013.de

Such words are mostly names and numbers. The result is the share that is aligned correctly: by the heads that the
model's manifest names, by the place that is used if it names none, and by single heads (`--place`).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from transduce import Translator
from transduce.decoding.alignment import Place, align_words, attention_shares, number_words, read_places, usual_places
from transduce.decoding.force import Pair
from transduce.scoring.texts import read_lines


def find_words(pieces: list[str]) -> list[str]:
    """Return a sentence's words, without adjacent punctuation."""
    words: dict[int, str] = {}
    for piece, number in zip(pieces, number_words(pieces).tolist()):
        words[number] = words.get(number, "") + piece
    return [word.strip("▁.,;:!?\"'()»«„“") for word in words.values()]


def find_twins(source: list[str], target: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the places, on both sides, of words of two or more letters that occur once on each."""
    for place, word in enumerate(target):
        if len(word) > 1 and source.count(word) == target.count(word) == 1:
            yield source.index(word), place


def main() -> None:
    """Print how many of these words are aligned with themselves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--first", type=int, default=200, help="lines to skip at the start (default %(default)s)")
    parser.add_argument("--sentences", type=int, default=500, help="sentences to align (default %(default)s)")
    parser.add_argument(
        "--place",
        nargs="+",
        default=[],
        help="also measure a single head: 2.6.1 is layer 2, head 6, one step after the word was output",
    )
    given = parser.parse_args()
    translator = Translator.load(given.model, precision="float32", engine="torch")
    model, names = translator.loaded[0].model, translator.subwords
    lines = zip(read_lines(given.source), read_lines(given.target), strict=True)
    pairs: list[Pair] = [
        (translator.tokens(source, "source"), translator.tokens(target, "target")) for source, target in lines
    ]
    pairs = pairs[given.first : given.first + given.sentences]
    pieces = [(names["source"].pieces(source[:-1]), names["target"].pieces(target[:-1])) for source, target in pairs]
    twins = [set(find_twins(*map(find_words, pair))) for pair in pieces]

    def measure(places: list[Place]) -> float:
        shares = attention_shares(model, pairs, places)
        right = sum(len(own & {*align_words(share, *pair)}) for own, share, pair in zip(twins, shares, pieces))
        return right / sum(map(len, twins))

    print(f"{sum(map(len, twins)):,} words in {len(pairs):,} sentences")
    print(f"the model's own heads: {measure(read_places(translator.loaded[0].about, model)):.1%}")
    print(f"the usual place:       {measure(usual_places(model)):.1%}")
    for place in given.place:
        one = dict(zip(("layer", "head", "after"), map(int, place.split("."))))
        print(f"{place:22} {measure(read_places({'alignment': [one]}, model)):.1%}")


if __name__ == "__main__":
    main()
