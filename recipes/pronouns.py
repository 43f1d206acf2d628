"""Which heads find what "it" refers to? The paper's Figure 4 shows two that seem to; here each is switched off.

    python recipes/pronouns.py MODEL --out pronouns.json

MODEL translates from English to German, where "it" is er, sie or es, depending on the noun: "I bought the lamp because
it was cheap" needs sie, for die Lampe. The translations of 108 such sentences are fixed up to the pronoun; the right
one of the three must then be the most probable. For each head, the result tells how this changes without it, and how
much of its attention goes to the noun and its article, from "it" or from the step that outputs the pronoun. A base
model takes twenty minutes on one core; --kinds restricts the heads.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from recipe import Found, find_commit, run

from transduce import Translator
from transduce.decoding.force import Pair, score_pairs
from transduce.disk import write_json
from transduce.errors import DataError
from transduce.progress import show_progress
from transduce.seeing.attention import look
from transduce.seeing.kinds import KINDS
from transduce.seeing.switching import Head, all_heads, switched_off

NOUNS = {
    "er": "table Tisch, chair Stuhl, coat Mantel, key Schlüssel, computer Computer, ball Ball, spoon Löffel, hat Hut, "
    "carpet Teppich, umbrella Regenschirm, plan Plan, tractor Traktor",
    "sie": "lamp Lampe, bag Tasche, clock Uhr, newspaper Zeitung, flower Blume, bottle Flasche, door Tür, "
    "camera Kamera, machine Maschine, map Karte, guitar Gitarre, bridge Brücke",
    "es": "book Buch, house Haus, bed Bett, picture Bild, knife Messer, ship Schiff, dress Kleid, bicycle Fahrrad, "
    "glass Glas, boat Boot, paper Papier, window Fenster",
}
PRONOUNS = tuple(NOUNS)
WHOM = {"er": "den", "sie": "die", "es": "das"}
WHO = {"er": "Der", "sie": "Die", "es": "Das"}
# The English sentence, the German one up to the pronoun, and what follows it.
FRAMES = (
    ("I bought the {en} because it was cheap.", "Ich habe {whom} {de} gekauft, weil", "billig war."),
    ("We saw the {en} yesterday, but it was too old.", "Wir haben {whom} {de} gestern gesehen, aber", "war zu alt."),
    ("The {en} is new, but it is not good.", "{who} {de} ist neu, aber", "ist nicht gut."),
)


class Probe(NamedTuple):
    """A sentence whose "it" has one right German pronoun."""

    source: str
    noun: str
    right: str
    before: str
    after: str
    german: str
    """the German noun"""

    def target(self, pronoun: str) -> str:
        """Return the translation with a pronoun."""
        return f"{self.before} {pronoun} {self.after}"


@dataclass(frozen=True)
class Spots:
    """Where the words of a probe stand among its tokens."""

    it: int
    source_noun: range
    step: int
    """the step that outputs the pronoun"""
    target_noun: range
    """the steps that read the noun and its article"""


def make_probes() -> Iterator[Probe]:
    """Yield every noun in every frame."""
    for right, nouns in NOUNS.items():
        for english, german in (noun.split() for noun in nouns.split(", ")):
            for source, before, after in FRAMES:
                before = before.format(de=german, whom=WHOM[right], who=WHO[right])
                yield Probe(source.format(en=english), english, right, before, after, german)


def read_pair(translator: Translator, probe: Probe, pronoun: str) -> Pair:
    """Return a probe and its translation as tokens."""
    return translator.tokens(probe.source, "source"), translator.tokens(probe.target(pronoun), "target")


def find_spots(translator: Translator, probe: Probe) -> Spots:
    """Find where "it", the noun and the pronoun stand."""

    def reach(side: str, words: Sequence[str]) -> int:
        """Return how many tokens the first words of a sentence have."""
        return len(translator.tokens(" ".join(words), side)) - 1

    source, before = probe.source.split(), probe.before.split()
    noun, it, german = source.index(probe.noun), source.index("it"), before.index(probe.german)
    if reach("source", source[: it + 1]) != reach("source", source[:it]) + 1:
        raise DataError('the model splits the word "it"; this recipe is for those that do not')
    return Spots(
        it=reach("source", source[:it]),
        source_noun=range(reach("source", source[:noun]), reach("source", source[: noun + 1])),
        step=reach("target", before),
        # The article stands before the noun, and the decoder reads a token one step after its output.
        target_noun=range(reach("target", before[: german - 1]) + 1, reach("target", before[: german + 1]) + 1),
    )


def measure(translator: Translator, probes: Sequence[Probe], spots: Sequence[Spots]) -> Found:
    """Return how probable the right pronouns are among the three, and how often they are the most probable."""
    pairs = [read_pair(translator, probe, pronoun) for probe in probes for pronoun in PRONOUNS]
    scores = score_pairs(translator.loaded[0].model, pairs)
    steps = [each.step for each in spots for _ in PRONOUNS]
    said = np.array([score[step] for score, step in zip(scores, steps)]).reshape(-1, len(PRONOUNS))
    shares = np.exp(said) / np.exp(said).sum(1, keepdims=True)
    right = np.array([PRONOUNS.index(probe.right) for probe in probes])
    by_pronoun = {
        pronoun: float((shares.argmax(1) == right)[right == number].mean()) for number, pronoun in enumerate(PRONOUNS)
    }
    return {
        "probability": float(shares[np.arange(len(right)), right].mean()),
        "right": float((shares.argmax(1) == right).mean()),
        "right_by_pronoun": by_pronoun,
    }


def measure_looks(translator: Translator, probes: Sequence[Probe], spots: Sequence[Spots]) -> dict[Head, float]:
    """Return how much of each head's attention goes to the noun, from "it" or the step that outputs the pronoun."""
    model = translator.loaded[0].model
    pairs = [read_pair(translator, probe, probe.right) for probe in probes]
    found = dict.fromkeys(all_heads(model), 0.0)
    for number, looked in look(model, pairs):
        here = spots[number]
        seen = {
            "encoder": (here.it, here.source_noun),
            "decoder": (here.step, here.target_noun),
            "cross": (here.step, here.source_noun),
        }
        for head in found:
            query, keys = seen[head.kind]
            weights = looked.attention.of(head.kind)[head.layer][head.head, query]
            found[head] += float(weights[keys.start : keys.stop].sum()) / len(pairs)
    return found


def main() -> None:
    """Measure the whole model, then without each head."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for all numbers")
    parser.add_argument(
        "--kinds", nargs="+", action="extend", choices=KINDS, help="kinds of heads to test (default: all)"
    )
    given = parser.parse_args()
    translator = Translator.load(given.model, precision="float32", engine="torch")
    model = translator.loaded[0].model
    probes = list(make_probes())
    spots = [find_spots(translator, probe) for probe in probes]
    whole = measure(translator, probes, spots)
    looks = measure_looks(translator, probes, spots)
    rows: list[Found] = []
    heads = [head for head in all_heads(model) if head.kind in (given.kinds or KINDS)]
    with show_progress("switch", len(heads), "heads") as task:
        for head in heads:
            with switched_off(model, [head]):
                without = measure(translator, probes, spots)
            rows.append(
                {"kind": head.kind, "layer": head.layer + 1, "head": head.head + 1, "looks": looks[head], **without}
            )
            task.update(len(rows), len(rows))
    found = {"recipe": "pronouns", "commit": find_commit(), "sentences": len(probes), "whole": whole, "heads": rows}
    write_json(given.out, found)
    show(whole, rows)


def show(whole: Found, rows: Sequence[Found]) -> None:
    """Print the heads whose absence hurts the most, and those that look at the noun the most."""
    print(f"the right pronoun: {whole['right']:.1%}, probability {whole['probability']:.3f}")
    for title, key in (
        ("missed the most", lambda row: row["probability"]),
        ("look the most", lambda row: -row["looks"]),
    ):
        print(f"\n{title:24}{'looks':>8}{'right':>9}{'probability':>13}")
        for row in sorted(rows, key=key)[:8]:
            name = f"{row['kind']} {row['layer']}, head {row['head']}"
            print(f"{name:24}{row['looks']:8.2f}{row['right']:9.1%}{row['probability']:13.3f}")


if __name__ == "__main__":
    run(main)
