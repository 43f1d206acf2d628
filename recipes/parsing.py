"""Constituency parsing (section 6.3): from a treebank to F1.

    python recipes/parsing.py DATA --out runs/craft                        DATA holds train, dev and test.mrg
    python recipes/parsing.py DATA --out runs/craft-3 --models 3           and an ensemble of three
    python recipes/parsing.py DATA --out runs/craft-en --encoder en-de     starts with a translator's encoder
    python recipes/parsing.py DATA --out runs/both --beside OTHER          learns two treebanks, then each by itself
    python recipes/parsing.py DATA --out runs/wsj --preset parsing --wsj   DATA holds the sections 00 to 24

With `--wsj` the sections are the paper's: 02 to 21 for training, 22 for dev and 23 for test, as in the folder
`parsed/mrg/wsj` of the Penn Treebank, which needs a licence. The recipe scores the last checkpoint, the mean of the
last five and an ensemble of such means, each with and without test sentences that are also in the training set. Other
treebanks are other text: do not compare their scores with Table 4.

If the training set also has trees in another style, from another treebank or another annotator of the same one,
training ends with the trees that are bracketed like the dev set (alike.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alike import find_alike
from recipe import Arguments, Found, Recipe, count, find_text, run, write_lines

from transduce.config import Config
from transduce.errors import DataError, UsageError
from transduce.model.saved import find_model, read_config
from transduce.presets import PRESETS, fit_to_encoder
from transduce.scoring.texts import read_treebank
from transduce.text.inputs import PARSING
from transduce.training.averaging import choose_checkpoints
from transduce.training.warm import Start

# How trees are written, and how more of them are made; docs/log.md says what each gains.
WRITING = {
    "parsing": {"openings": "labelled", "leaves": "tags"},
    "parsing-small": {"openings": "labelled", "leaves": "words", "constituents": 4, "joined": 1},
}
SUBWORDS = {"parsing": PARSING.subwords.size, "parsing-small": 8000}
SHARES = 0.75, 0.5, 0.35  # weights of the words in the search, besides 1; the best on the dev set is used
BEAMS = 1, 4, 8  # besides the paper's 21, to see on the dev set what a smaller one costs
STEPS, LAST_STEPS = 24_000, 4000  # on several treebanks, and then on trees like those of a dev set
LAST_RATE = {"peak_rate": 0.0005, "warmup_steps": 200}


@dataclass(frozen=True)
class Treebank:
    """Files of trees; the name is a prefix of everything made for them, empty if there is only one treebank."""

    name: str
    train: Path
    dev: Path
    test: Path


def find_treebank(recipe: Recipe, folder: Path, name: str) -> Treebank:
    """Return the treebank whose parts are files of a folder."""
    files = [find_text(folder, f"{part}.mrg") for part in ("train", "dev", "test")]
    recipe.read(files[-1])
    return Treebank(name, *files)


def find_sections(recipe: Recipe, folder: Path, sections: Iterable[int], name: str) -> Path:
    """Write all trees of some sections of the WSJ to one file."""
    lines: list[str] = []
    for section in sections:
        files = sorted((folder / f"{section:02}").glob("*.mrg"))
        if not files:
            raise DataError(f"{folder}: has no {section:02}/*.mrg; give the folder that holds the sections 00 to 24")
        recipe.read(*files)
        for path in files:
            lines += path.read_text(encoding="utf-8").splitlines()
    return write_lines(recipe.out / "text" / name, lines)


def find_wsj(recipe: Recipe, folder: Path) -> Treebank:
    """Return the paper's sections of the WSJ as a treebank."""
    parts = {"train": range(2, 22), "dev": [22], "test": [23]}
    return Treebank("", *(find_sections(recipe, folder, of, f"{name}.mrg") for name, of in parts.items()))


def find_alike_in(recipe: Recipe, bank: Treebank) -> tuple[Path, bool]:
    """Return the training trees that are bracketed like the dev set, and whether these are only some of them."""
    own = recipe.out / "text" / f"{bank.name}alike.mrg"

    def work() -> Found:
        trees = [tree for _, tree in read_treebank(bank.train)]
        alike = find_alike(trees, (tree for _, tree in read_treebank(bank.dev)))
        write_lines(own, [str(tree) for tree in alike])
        return {"trees": len(trees), "alike": len(alike)}

    found = recipe.step(f"{bank.name}alike", work)
    return own, found["alike"] < found["trees"]


def find_seen(recipe: Recipe, bank: Treebank, train: Iterable[Path]) -> Path | None:
    """Return a file of the test sentences that are also in the training set, or None if there are none."""
    own = recipe.out / "text" / f"{bank.name}seen.mrg"

    def work() -> Found:
        known = {tuple(tree.words()) for path in train for _, tree in read_treebank(path)}
        tested = [tree for _, tree in read_treebank(bank.test)]
        seen = [tree for tree in tested if tuple(tree.words()) in known]
        write_lines(own, [str(tree) for tree in seen])
        return {"sentences": len(tested), "seen": len(seen)}

    return own if recipe.step(f"{bank.name}seen", work)["seen"] else None


class Course:
    """Trains models on treebanks: on all trees, and at the end on those that are bracketed like a dev set."""

    def __init__(self, recipe: Recipe, banks: list[Treebank], preset: str, encoder: Path | None, subwords: int):
        self.recipe, self.banks = recipe, banks
        self.trees = tuple(bank.train for bank in banks)
        self.writing: dict[str, Any] = {"task": "parsing", "clean": PARSING.clean, **WRITING[preset]}
        self.says_words = WRITING[preset]["leaves"] == "words"
        self.config = PRESETS[preset].config
        if len(banks) > 1:
            self.config = change(self.config, steps=STEPS, checkpoint_steps=STEPS // 12)
        if encoder:
            self.config = fit_to_encoder(self.config, read_config(find_model(encoder)))
        self.start = Start(encoder, encoder=True) if encoder else None
        settings = {"subwords": replace(PARSING.subwords, size=subwords, reuse=encoder), **self.writing}
        self.data = recipe.prepare("data", trees=self.trees, dev_trees=(banks[0].dev,), **settings)
        self.alike = {bank: find_alike_in(recipe, bank) for bank in banks}
        self.seen = {bank: find_seen(recipe, bank, self.trees) for bank in banks}

    def has_last(self, bank: Treebank) -> bool:
        """Return whether a treebank has last steps: it has trees unlike its dev set, or there are other treebanks."""
        return len(self.banks) > 1 or self.alike[bank][1]

    def learn(self, name: str, seed: int) -> Path:
        """Train a model on all trees."""
        return self.recipe.train(name, self.data, change(self.config, seed=seed), self.start)

    def learn_last(self, name: str, bank: Treebank, seed: int, first: Path) -> Path:
        """Train the last steps, from a lower rate to zero again."""
        settings = {"subwords": replace(PARSING.subwords, reuse=self.data), **self.writing}
        own = self.alike[bank][0]
        data = self.recipe.prepare(f"{bank.name}data-last", trees=(own,), dev_trees=(bank.dev,), **settings)
        config = change(self.config, steps=LAST_STEPS, checkpoint_steps=LAST_STEPS // 8, seed=seed, **LAST_RATE)
        return self.recipe.train(name, data, config, Start(first))


def change(config: Config, **training: Any) -> Config:
    """Return the settings with some of the training's changed."""
    return replace(config, training=replace(config.training, **training))


def main() -> None:
    """Train on trees and score the models."""
    arguments = Arguments(__doc__, subwords=None)
    arguments.add_argument("--preset", choices=list(WRITING), default="parsing-small")
    arguments.add_argument(
        "--models",
        type=count,
        default=1,
        help="train this many models with different seeds and combine them as an ensemble",
    )
    arguments.add_argument(
        "--encoder", metavar="MODEL", help="start with the encoder of a model that translates from English"
    )
    arguments.add_argument(
        "--beside", nargs="+", action="extend", metavar="OTHER", help="train on these treebanks as well"
    )
    arguments.add_argument("--wsj", action="store_true", help="DATA holds the sections of the Wall Street Journal")
    given = arguments.parse_args()
    given.subwords = given.subwords or SUBWORDS[given.preset]
    if given.wsj and given.beside:
        raise UsageError("--wsj and --beside do not go together yet; use one of them")
    recipe = Recipe(given)
    if given.wsj:
        banks = [find_wsj(recipe, given.data)]
    else:
        folders = [given.data, *map(Path, given.beside or ())]
        banks = [find_treebank(recipe, folder, f"{folder.name}-" if given.beside else "") for folder in folders]
    course = Course(recipe, banks, given.preset, Path(given.encoder) if given.encoder else None, given.subwords)
    for bank in banks:
        test(course, bank, range(1, given.models + 1))
    show(recipe)
    recipe.finish()


def test(course: Course, bank: Treebank, seeds: Sequence[int]) -> None:
    """Train the models of one treebank, and parse and score its dev and test sets with them."""
    recipe, before = course.recipe, None
    # Each from the beginning: models that differ only in their last steps find the same trees.
    runs = [course.learn(f"run-{seed}", seed) for seed in seeds]
    if course.has_last(bank):
        before = runs[0]
        runs = [course.learn_last(f"{bank.name}last-{seed}", bank, seed, run) for seed, run in zip(seeds, runs)]
    means = [recipe.average(f"{bank.name}mean-{seed}", run) for seed, run in zip(seeds, runs, strict=True)]

    def parse(name: str, models: Sequence[Path], gold: Path, **settings: bool | float) -> float:
        name = bank.name + name
        found = recipe.parse(f"{name}.trees", models, gold, **settings)
        score = recipe.score_trees(name, found, gold)
        if gold == bank.test and (seen := course.seen[bank]):
            recipe.score_trees(f"{name} without sentences of train", found, gold, leave_out=(seen,))
        return score

    last = choose_checkpoints(runs[0], last=1)
    scores = {1.0: parse("dev mean", means[:1], bank.dev, word_share=1.0)}
    for share in SHARES if course.says_words else ():
        scores[share] = parse(f"dev mean, words {share}", means[:1], bank.dev, word_share=share)
    best = max(scores, key=scores.__getitem__)
    parse("test mean", means[:1], bank.test, word_share=best)
    if len(means) > 1:
        parse(f"test {len(means)} models", means, bank.test, word_share=best)
    if before:
        parse("dev before the last steps", [before], bank.dev, word_share=best)
    parse("dev last", last, bank.dev, word_share=best)
    parse("test last", last, bank.test, word_share=best)
    parse("dev not constrained", means[:1], bank.dev, constrained=False)
    for beam in BEAMS:
        parse(f"dev mean, beam {beam}", means[:1], bank.dev, beam=beam, word_share=best)


def show(recipe: Recipe) -> None:
    """Print all scores in a table."""
    titles = {
        "f1": "F1",
        "precision": "precision",
        "recall": "recall",
        "complete": "complete",
        "sentences": "sentences",
    }
    rows = {step[6:]: found for step, found in recipe.found["steps"].items() if step.startswith("score ")}
    width = max(map(len, rows))
    print(" " * width, *(f"{title:>9}" for title in titles.values()))
    for name, found in rows.items():
        values = (f"{found[key]['value']:9.2f}" for key in list(titles)[:-1])
        print(f"{name:{width}}", *values, f"{found['sentences']:9,}")


if __name__ == "__main__":
    run(main)
